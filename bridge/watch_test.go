package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// things are selected whole: an object of theirs is deleted once.
var things = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "things", Kind: "Thing"})

// tell is an event in a few words: what happened to which uid at which version.
func tell(e *event.Event) string {
	s := e.Type.String()
	if e.Type > event.Synced {
		return s + " " + e.Snapshot
	}
	s += " " + e.UID + "/" + e.ResourceVersion
	if e.Snapshot != "" {
		s += " in " + e.Snapshot
	}
	if e.Inferred {
		s += " inferred"
	}
	return s
}

// desk is a broker that answers when the test says so.
type desk struct {
	mu     sync.Mutex
	log    []string // all that came, told
	values []string // their bodies
	open   []sheet
	flow   bool // everything is answered at once
	refuse func(*event.Event) error
	faults []string
}

type sheet struct {
	key  event.Key
	told string
	done func(error)
}

func (d *desk) publish(_ context.Context, e *event.Event, done func(error)) {
	d.mu.Lock()
	told := tell(e)
	for _, s := range d.open {
		if s.key == e.Key {
			d.faults = append(d.faults, told+" came while "+s.told+" was under way")
		}
	}
	d.log = append(d.log, told)
	d.values = append(d.values, string(e.Value))
	var err error
	if d.refuse != nil {
		err = d.refuse(e)
	}
	if d.flow || err != nil {
		d.mu.Unlock()
		done(err)
		return
	}
	d.open = append(d.open, sheet{e.Key, told, done})
	d.mu.Unlock()
}

// answer says yes to the n oldest.
func (d *desk) answer(n int) {
	for range n {
		synctest.Wait()
		d.mu.Lock()
		if len(d.open) == 0 {
			d.mu.Unlock()
			return
		}
		s := d.open[0]
		d.open = d.open[1:]
		d.mu.Unlock()
		s.done(nil)
	}
	synctest.Wait()
}

// run answers all from here on.
func (d *desk) run() {
	d.mu.Lock()
	d.flow = true
	n := len(d.open)
	d.mu.Unlock()
	d.answer(n)
}

func (d *desk) told() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.log)
}

// since is what has come after the first n.
func (d *desk) wants(t *testing.T, n int, want ...string) {
	t.Helper()
	got := d.told()
	if len(got) < n || !slices.Equal(got[n:], want) {
		t.Errorf("the sink got\n\t%s\nafter %d events, want\n\t%s", strings.Join(got[min(n, len(got)):], "\n\t"), n, strings.Join(want, "\n\t"))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.faults {
		t.Error(f)
	}
}

// watching is what an informer does: an index, and deltas of its changes.
type watching struct {
	t        *testing.T
	ctx      context.Context
	feed     *Feed
	resource *event.Resource
	version  int
	mu       lock
	index    map[string]*event.Object
	made     map[string]int // objects of that name
}

// lock is a mutex that lets virtual time go on while it is waited for.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

func watchOf(t *testing.T, ports ...*Port) *watching {
	w := &watching{t: t, ctx: t.Context(), resource: things, mu: make(lock, 1), index: map[string]*event.Object{}, made: map[string]int{}}
	w.feed = NewFeed(w, ports...)
	return w
}

// port is one for all types of things.
func (r *rig) port(types ...event.Type) *Port {
	if types == nil {
		types = allTypes
	}
	return r.NewPort(things.Name(), things, "", types)
}

func (w *watching) Keys() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []string
	for key := range w.index {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (w *watching) With(key string, do func(*event.Object)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do(w.index[key])
}

func (*watching) Keep(o *event.Object) *event.Object { return o }
func (*watching) Stored(map[string]*event.Object)    {}

func thing(name, uid string, version int) *event.Object {
	v := strconv.Itoa(version)
	return &event.Object{
		Namespace: "shop", Name: name, UID: uid, ResourceVersion: v,
		Body: []byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"` + name + `","uid":"` + uid + `","resourceVersion":"` + v + `"}}`),
	}
}

func (w *watching) deliver(d event.Delta) error {
	d.Resource, d.Time = w.resource, time.Now()
	if err := w.feed.Delta(w.ctx, &d); err != nil {
		return err
	}
	return nil
}

// has makes the object, or changes it.
func (w *watching) has(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.mu.Lock()
		w.version++
		old := w.index["shop/"+name]
		d := event.Delta{Type: event.Updated, Old: old}
		if old == nil {
			d.Type = event.Added
			w.made[name]++
		}
		d.Object = thing(name, name+strconv.Itoa(w.made[name]), w.version)
		w.index["shop/"+name] = d.Object
		w.give(d)
		w.mu.Unlock()
	}
}

// gone deletes the object.
func (w *watching) gone(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.mu.Lock()
		w.version++
		old := w.index["shop/"+name]
		delete(w.index, "shop/"+name)
		w.give(event.Delta{Type: event.Deleted, Old: old, Object: thing(name, old.UID, w.version)})
		w.mu.Unlock()
	}
}

func (w *watching) give(d event.Delta) {
	w.t.Helper()
	if err := w.deliver(d); err != nil {
		if !errors.Is(err, context.Cause(w.ctx)) {
			w.t.Error(err)
		}
		return
	}
	w.feed.Position(d.Object.ResourceVersion)
}

// lists hands over a first list with new objects of these names.
func (w *watching) lists(snapshot string, names ...string) {
	w.t.Helper()
	w.feed.ListBegins(snapshot)
	for _, name := range names {
		w.mu.Lock()
		w.version++
		w.made[name]++
		o := thing(name, name+strconv.Itoa(w.made[name]), w.version)
		w.index["shop/"+name] = o
		if err := w.deliver(event.Delta{Type: event.Added, Object: o, Snapshot: snapshot}); err != nil {
			w.t.Error(err)
		}
		w.mu.Unlock()
	}
	w.version++
	w.feed.ListEnds(strconv.Itoa(w.version))
}

// snapshotAll says again what is there to all sinks, each at its own pace, and returns
// when they have it.
func snapshotAll(ctx context.Context, f *Feed, id string) error {
	sinks := f.Sinks()
	errs := make([]error, len(sinks))
	var running sync.WaitGroup
	for i, sink := range sinks {
		running.Go(func() { errs[i] = f.Snapshot(ctx, sink, id) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// folds lets a sink fall behind after five seconds of a full window of four events.
func folds(o *Options) { o.Fold, o.FoldAfter, o.MaxEvents = true, 5*time.Second, 4 }

// books checks that each of the deltas had one end.
func (r *rig) books(deltas int) {
	r.t.Helper()
	synctest.Wait()
	published, filtered, folded, dead := r.sum("kbridge_published_total"), r.sum("kbridge_filtered_total"), r.sum("kbridge_folded_total"), r.sum("kbridge_dead_letters_total")
	if published+filtered+folded+dead != deltas {
		r.t.Errorf("%d deltas: %d published + %d filtered + %d folded + %d dead letters", deltas, published, filtered, folded, dead)
	}
	if n := r.Behind(); n != 0 || r.sum("kbridge_behind_objects") != 0 {
		r.t.Errorf("at rest it is behind on %d objects", n)
	}
	if err := r.check(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) isFolding() bool {
	synctest.Wait()
	r.Lane.mu.Lock()
	defer r.Lane.mu.Unlock()
	return r.folding
}

func names(prefix string, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%s%02d", prefix, i))
	}
	return list
}
