package bridge

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// owedOf is what is owed to the port's first snapshot.
func owedOf(p *Port) int {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return len(p.behind)
}

// listing hands over a list in another goroutine, and returns what is closed at its end.
func listing(w *watching, names []string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.lists("S", names...)
	}()
	synctest.Wait()
	return done
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestAListWaitsForASinkThatTakesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish, func(o *Options) { o.MaxBytes, o.Fold, o.FoldAfter = 64<<20, true, 5*time.Second })
		p := r.port()
		all := names("thing", 3*maxOwed)
		done := listing(watchOf(t, p), all)
		for most := 0; !ended(done); {
			if most = max(most, owedOf(p)); most > maxOwed {
				t.Fatalf("%d objects are owed, of which each takes memory", most)
			}
			d.answer(1000)
			time.Sleep(100 * time.Millisecond)
		}
		if left := owedOf(p); left < maxOwed/4 {
			t.Errorf("at the list's end %d are owed: it was held up for longer than need be", left)
		}
		d.run()
		r.drain()
		if told := d.told(); len(told) != len(all)+2 || told[len(told)-1] != "completed S" {
			t.Errorf("%d events of %d objects, the last is %s", len(told), len(all), told[len(told)-1])
		}
		if strings.Contains(r.log.String(), "folded") {
			t.Error("the sink fell behind over a list: ", r.log)
		}
	})
}

func TestAListDoesNotWaitForLongForASinkThatIsSlowOrDead(t *testing.T) {
	for name, test := range map[string]struct {
		perSecond int
		within    time.Duration
	}{
		"dead":      {0, listStall},
		"very slow": {100, listStall},
		"slow":      {1000, listPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, quick := &desk{}, &desk{flow: true}
				r, other := newRig(t, slow.publish), newRig(t, quick.publish)
				all := names("thing", 20*maxOwed)
				began := time.Now()
				done := listing(watchOf(t, r.port(), other.port()), all)
				for !ended(done) {
					slow.answer(test.perSecond)
					time.Sleep(time.Second)
				}
				if took := time.Since(began); took > test.within+2*time.Second || took < test.within-2*time.Second {
					t.Errorf("the list was held up for %s, want %s", took, test.within)
				}
				other.drain()
				if told := quick.told(); !slices.Contains(told, "completed S") {
					t.Errorf("the other sink has %d events, and no end", len(told))
				}
			})
		})
	}
}
