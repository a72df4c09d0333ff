package bridge

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// cleaning are rules that replace a word, and count what they have scanned.
func cleaning(scanned *int) Rules {
	return Rules{Name: "new", Rescan: func(_ string, o *event.Object) *event.Object {
		*scanned++
		c := *o
		c.Body = bytes.Replace(slices.Clone(o.Body), []byte(`"kind":"Thing"`), []byte(`"kind":"Clean"`), 1)
		return &c
	}}
}

// dirty are the stored objects that the rules have not been through.
func (m *memory) dirty() (n int) {
	for _, o := range m.view().objects {
		if !strings.Contains(string(o.Body), "Clean") {
			n++
		}
	}
	return n
}

// underOldRules is a store with that many objects.
func underOldRules(objects int) *memory {
	m := newMemory()
	v := memoryView{state.ViewInfo{Position: "5", Listed: true, Cluster: "cluster", Version: "v1", Rules: "old"}, map[string]*event.Object{}}
	for i := range objects {
		o := thing("o"+strconv.Itoa(i), "uid"+strconv.Itoa(i), 5)
		v.objects["shop/"+o.Name] = o
	}
	m.views[viewName] = v
	return m
}

// failing is a store whose disk takes so many batches.
type failing struct {
	*memory
	takes int
}

func (f *failing) Commit(b *state.Batch) error {
	if f.takes == 0 {
		return errDisk
	}
	f.takes--
	return f.memory.Commit(b)
}

func TestOtherRulesAreNotSaidToHoldBeforeAllIsStoredUnderThem(t *testing.T) {
	const count = 2*storeObjects + 10
	for name, busy := range map[string]bool{"nothing happens meanwhile": false, "changes come meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, scanned := underOldRules(count), 0
				change := func(l *life) {
					if !busy {
						return
					}
					l.server.version = 5
					l.at.Store(5)
					for range minCompaction { // the journal is folded
						l.server.has("busy")
						l.sync()
						l.server.history = nil
					}
				}
				for kill := range 3 { // in between the batches
					l := start(t, &failing{m, kill}, newAPIServer(), setup{rules: cleaning(&scanned)}, &desk{flow: true})
					if left := len(m.view().objects); scanned != left {
						t.Errorf("start %d: %d of %d bodies were scanned", kill+1, scanned, left)
					}
					scanned = 0
					change(l)
					if err := l.keeper.Store(); !errors.Is(err, errDisk) && !(busy && err == nil) {
						t.Errorf("start %d: %v", kill+1, err)
					}
					if rules := m.view().info.Rules; m.dirty() > 0 && (rules == "new" || kill > 0 && rules == "old") {
						t.Errorf("start %d: the stored rules are %q while %d bodies are under others", kill+1, rules, m.dirty())
					}
					l.kill()
				}
				l := start(t, m, newAPIServer(), setup{rules: cleaning(&scanned)}, &desk{flow: true})
				change(l)
				l.store()
				for key, o := range m.view().objects {
					if !strings.Contains(string(o.Body), "Clean") && key != "shop/busy" {
						t.Fatalf("%s is stored under other rules", key)
					}
				}
				if rules := m.view().info.Rules; rules != "new" {
					t.Errorf("the stored rules are %q", rules)
				}
				l.kill()
			})
		})
	}
}

// keeping is an index that notes what it is given to keep.
type keeping struct {
	*watching
	kept []*event.Object
}

func (k *keeping) Keep(o *event.Object) *event.Object {
	k.kept = append(k.kept, o)
	return o
}

func TestABodyUnderOtherRulesIsGivenToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, scanned := underOldRules(3), 0
		r := newRig(t, (&desk{flow: true}).publish)
		p := r.port()
		index := &keeping{watching: watchOf(t, p)}
		keeper := NewKeeper(m, "cluster", &event.History{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if _, _, err := keeper.Load(viewName, "v1", cleaning(&scanned), index, p); err != nil {
			t.Fatal(err)
		}
		if len(index.kept) != 3 {
			t.Errorf("%d bodies are kept", len(index.kept))
		}
		for _, o := range index.kept {
			if !strings.Contains(string(o.Body), "Clean") {
				t.Errorf("what is kept, perhaps in a file, is %s", o.Body)
			}
		}
	})
}
