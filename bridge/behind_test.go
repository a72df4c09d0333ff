package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// A sink whose window of four is full, and a watch that has known k since long.
func stuck(t *testing.T, types ...event.Type) (*rig, *desk, *watching) {
	d := &desk{flow: true}
	r := newRig(t, d.publish, folds)
	w := watchOf(t, r.port(types...))
	w.has("k") // k1/1
	synctest.Wait()
	d.mu.Lock()
	d.flow = false
	d.mu.Unlock()
	w.has("w", "x", "y", "z") // versions 2 to 5
	synctest.Wait()
	return r, d, w
}

var firstFive = []string{"added k1/1", "added w1/2", "added x1/3", "added y1/4", "added z1/5"}

func TestASinkFallsBehindWhenItsWindowHasBeenFullForFoldAfterAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		time.Sleep(time.Hour) // a full window for which nobody waits is no reason
		if r.isFolding() {
			t.Fatal("it folds although nobody waits")
		}
		began := time.Now()
		var took atomic.Int64
		go func() { w.has("k"); took.Store(int64(time.Since(began))) }()
		time.Sleep(5*time.Second - 1)
		synctest.Wait()
		if r.isFolding() || took.Load() != 0 {
			t.Fatal("it folds before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !r.isFolding() || time.Duration(took.Load()) != 5*time.Second {
			t.Fatalf("after five seconds: folding %t, the delta took %s", r.isFolding(), time.Duration(took.Load()))
		}
		w.has("k", "k", "k")
		if time.Since(began) != 5*time.Second {
			t.Error("the watch waits although the sink folds")
		}
		d.run()
		r.drain()
		d.wants(t, 0, append(slices.Clone(firstFive), "updated k1/9 inferred")...)
		if r.isFolding() {
			t.Error("it folds although it has caught up")
		}
		w.has("k", "k")
		r.drain()
		d.wants(t, 6, "updated k1/10", "updated k1/11")
		r.books(11)
		if n := r.sum("kbridge_folded_total"); n != 3 {
			t.Errorf("%d folded, want 3", n)
		}
	})
}

func TestABlockingSinkNeverFolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish, folds, func(o *Options) { o.Fold = false })
		w := watchOf(t, r.port())
		w.has("w", "x", "y", "z")
		taken := make(chan struct{})
		go func() { w.has("k", "k", "k"); close(taken) }()
		time.Sleep(time.Hour)
		if r.isFolding() || r.Behind() != 0 {
			t.Error("it folds")
		}
		d.run()
		<-taken
		r.drain()
		d.wants(t, 4, "added k1/5", "updated k1/6", "updated k1/7")
		r.books(7)
	})
}

// A sink that moves, and is slower than what comes, must not hold up others for ever.
func TestASlowSinkThatMovesFallsBehindToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := time.Now()
		r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) {
			if now := time.Now(); next.Before(now) {
				next = now
			}
			next = next.Add(700 * time.Millisecond) // one after the other
			time.AfterFunc(time.Until(next), func() { done(nil) })
		}, folds)
		w := watchOf(t, r.port())
		began := time.Now()
		for i := range 100 {
			w.has(fmt.Sprint("n", i%25))
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the watch was held up for %s", took)
		}
		if !r.isFolding() {
			t.Error("it does not fold")
		}
		r.drain()
		r.books(100)
		if r.isFolding() {
			t.Error("it folds although it has caught up")
		}
	})
}

// Answers in time reset the clock: a window that was full now and then is not a sink
// that is too slow.
func TestAWindowThatHasBeenHalfEmptyIsFullAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		go w.has("k")
		time.Sleep(4 * time.Second)
		d.answer(4) // one is left, the one that waited
		go w.has("l", "m", "n", "o")
		time.Sleep(4 * time.Second)
		if r.isFolding() {
			t.Error("it folds after 4 s")
		}
		time.Sleep(time.Second)
		if !r.isFolding() {
			t.Error("it does not fold after 5 s")
		}
		d.run()
		r.drain()
		r.books(10)
	})
}

func TestWhatHappensWhileASinkIsBehindIsFolded(t *testing.T) {
	type change func(w *watching)
	has := func(name string) change { return func(w *watching) { w.has(name) } }
	gone := func(name string) change { return func(w *watching) { w.gone(name) } }
	for _, c := range []struct {
		name           string
		types          []event.Type
		changes        []change
		want           []string
		folded, unseen int
		filtered       int
	}{
		{name: "one update stays what it was", changes: []change{has("k")}, want: []string{"updated k1/6"}},
		{name: "updates become one", changes: []change{has("k"), has("k"), has("k")}, want: []string{"updated k1/8 inferred"}, folded: 2},
		{name: "an addition takes its updates in", changes: []change{has("a"), has("a")}, want: []string{"added a1/7 inferred"}, folded: 1},
		{name: "what came and went is not told", changes: []change{has("a"), has("a"), gone("a")}, folded: 3, unseen: 1},
		{name: "a deletion takes the updates in", changes: []change{has("k"), gone("k")}, want: []string{"deleted k1/7 inferred"}, folded: 1},
		{name: "a deletion stays what it was", changes: []change{gone("k")}, want: []string{"deleted k1/6"}},
		{name: "an object made anew is deleted and added", changes: []change{gone("k"), has("k")}, want: []string{"deleted k1/6 inferred", "added k2/7 inferred"}},
		{name: "an object made anew is updated", changes: []change{has("k"), gone("k"), has("k"), has("k")}, want: []string{"deleted k1/7 inferred", "added k2/9 inferred"}, folded: 2},
		{name: "one that was made anew and went is deleted once", changes: []change{gone("k"), has("k"), gone("k")}, want: []string{"deleted k1/6 inferred"}, folded: 2, unseen: 1},
		{name: "the third of one name", changes: []change{gone("k"), has("k"), gone("k"), has("k")}, want: []string{"deleted k1/6 inferred", "added k3/9 inferred"}, folded: 2, unseen: 1},
		{name: "what is under way counts as received", changes: []change{has("z"), gone("w")}, want: []string{"updated z1/6", "deleted w1/7"}},
		{name: "the order is that of the first change", changes: []change{has("k"), has("a"), has("k"), has("b")}, want: []string{"updated k1/8 inferred", "added a1/7", "added b1/9"}, folded: 1},
		{name: "without updates", types: []event.Type{event.Added, event.Deleted}, changes: []change{has("k"), has("a"), has("a"), gone("k")},
			want: []string{"added a1/8 inferred", "deleted k1/9"}, folded: 1, filtered: 1},
		{name: "without deletions", types: []event.Type{event.Added, event.Updated}, changes: []change{has("k"), gone("k"), has("b")},
			want: []string{"added b1/8"}, folded: 1, filtered: 1},
		{name: "without deletions a new object is no update", types: []event.Type{event.Added, event.Updated}, changes: []change{gone("w"), has("w")},
			want: []string{"added w2/7"}, filtered: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, d, w := stuck(t, c.types...)
				go w.has("q") // waits until the sink is to fold
				time.Sleep(5 * time.Second)
				if !r.isFolding() {
					t.Fatal("it does not fold")
				}
				w.version, w.made = 5, map[string]int{"k": 1, "w": 1, "x": 1, "y": 1, "z": 1}
				for _, change := range c.changes {
					change(w)
				}
				d.wants(t, 0, firstFive...) // nothing overtakes what is in the window
				d.run()
				r.drain()
				d.wants(t, 5, append([]string{"added q1/6"}, c.want...)...)
				r.books(6 + len(c.changes))
				for name, want := range map[string]int{"kbridge_folded_total": c.folded, "kbridge_unseen_total": c.unseen, "kbridge_filtered_total": c.filtered} {
					if got := r.sum(name); got != want {
						t.Errorf("%s is %d, want %d", name, got, want)
					}
				}
			})
		})
	}
}

func TestAFoldedUpdateHasNoOldObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "things", Kind: "Thing", Change: true})
		d := &desk{}
		r := newRig(t, d.publish, folds)
		w := watchOf(t, r.NewPort(changes.Name(), changes, "", allTypes))
		w.resource = changes
		w.has("k", "x", "y", "k")
		go w.has("k")
		time.Sleep(5 * time.Second)
		w.has("k")
		d.run()
		r.drain()
		d.wants(t, 3, "updated k1/4", "updated k1/6 inferred")
		for i, old := range map[int]bool{3: true, 4: false} {
			var e struct {
				Data struct{ Object, OldObject json.RawMessage }
			}
			if err := json.Unmarshal([]byte(d.values[i]), &e); err != nil || e.Data.Object == nil || (e.Data.OldObject != nil) != old {
				t.Errorf("%s: %v", d.values[i], err)
			}
		}
	})
}

func TestASinkThatIsBehindHoldsUpNoOtherLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &desk{}, &desk{flow: true}
		r, s := newRig(t, slow.publish, folds), newRig(t, quick.publish, folds)
		w := watchOf(t, r.port(), s.port())
		began := time.Now()
		for i := range 200 {
			w.has(fmt.Sprint("n", i%20))
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the healthy sink waited %s", took)
		}
		s.drain()
		s.books(200)
		if n := len(quick.told()); n != 200 || s.sum("kbridge_folded_total") != 0 {
			t.Errorf("the healthy sink got %d of 200", n)
		}
		slow.run()
		r.drain()
		r.books(200)
		if n := r.sum("kbridge_folded_total"); n != 200-4-20 {
			t.Errorf("%d are folded", n)
		}
	})
}

// The waiter that is to be told that the sink folds may run after the lane has looked
// whether there is anything to catch up with: with nothing behind yet, the mode must
// not end again.
func TestFoldingDoesNotEndBeforeItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		var took atomic.Int64
		began := time.Now()
		go func() { w.has("k", "k"); took.Store(int64(time.Since(began))) }()
		time.Sleep(time.Second)
		synctest.Wait()
		r.Lane.mu.Lock()
		r.beginFolding()
		r.pump()
		r.Lane.mu.Unlock()
		time.Sleep(time.Minute)
		if took := time.Duration(took.Load()); took != time.Second {
			t.Errorf("the watch waited %s", took)
		}
		d.run()
		r.drain()
		r.books(7)
	})
}

// Half of the window is for what the sink is behind on, the other half for what
// happens now: an object that fails must not hold up the rest.
func TestALaneThatCatchesUpUsesHalfOfItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish, folds, func(o *Options) { o.MaxEvents = 10 })
		w := watchOf(t, r.port())
		w.has(names("w", 10)...)
		go w.has("b00")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		w.has(names("b", 30)[1:]...)
		d.answer(5) // five are left: more than half is not in use, less than half neither
		if got := len(d.told()); got != 10 {
			t.Errorf("%d events are out, want 10", got)
		}
		d.answer(1)
		for range 10 {
			d.answer(1)
			if _, events, _ := r.Usage(); events > 5 {
				t.Fatalf("%d events are in a window of 10 while it catches up", events)
			}
		}
		// What happens to others meanwhile is folded until it has caught up.
		w.has("new")
		d.run()
		r.drain()
		if got := d.told(); got[len(got)-1] != "added new1/41" {
			t.Errorf("the last is %s", got[len(got)-1])
		}
		r.books(41)
	})
}

// Less than half of the window is in use, and what the sink is behind on, or a snapshot, is
// larger than the rest: it waits, and passes alone where it is larger than the window.
func TestWhatASinkIsBehindOnKeepsTheWindowsBoundToo(t *testing.T) {
	large := func(uid string, version int) *event.Object {
		o := thing("k", uid, version)
		o.Body = append(o.Body, bytes.Repeat([]byte(" "), 5500)...)
		return o
	}
	behind := func(w *watching, p *Port) {
		w.has("a", "b")
		p.lane.mu.Lock()
		defer p.lane.mu.Unlock()
		p.fold(&event.Delta{Type: event.Updated, Resource: things, Object: large("k1", 9), Old: thing("k", "k1", 8), Time: time.Now()}, 3)
	}
	anew := func(w *watching, p *Port) {
		w.has("a", "b")
		p.lane.mu.Lock()
		defer p.lane.mu.Unlock()
		p.fold(&event.Delta{Type: event.Deleted, Resource: things, Object: large("k1", 9), Old: thing("k", "k1", 8), Time: time.Now()}, 3)
		p.fold(&event.Delta{Type: event.Added, Resource: things, Object: large("k2", 10), Time: time.Now()}, 4)
	}
	snapshot := func(w *watching, p *Port) {
		go func() { _ = p.walk(w.ctx, "R", w) }()
		synctest.Wait()
		w.has("a", "b")
		w.index = map[string]*event.Object{"shop/k": large("k1", 9)}
	}
	for name, test := range map[string]struct {
		begin func(*watching, *Port)
		want  []string
	}{
		"behind":     {behind, []string{"added a1/1", "added b1/2", "updated k1/9"}},
		"made anew":  {anew, []string{"added a1/1", "added b1/2", "deleted k1/9 inferred", "added k2/10 inferred"}},
		"a snapshot": {snapshot, []string{"started R", "added a1/1", "added b1/2", "synced k1/9 in R", "completed R"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &desk{}
				r := newRig(t, d.publish, func(o *Options) { o.MaxBytes, o.MaxEvents = 8<<10, 100 })
				p := r.port()
				w := watchOf(t, p)
				test.begin(w, p)
				for range test.want {
					time.Sleep(time.Second)
					if err := r.check(); err != nil {
						t.Error(err)
					}
					d.answer(1)
				}
				r.drain()
				d.wants(t, 0, test.want...)
			})
		})
	}
}

// After a start what a sink is behind on may wait for long, for a watch that is not allowed
// any more: the changes of other watches are not folded for as long.
func TestWhatWaitsForItsWatchKeepsNoSinkFromCatchingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish, folds)
		refused, p := r.port(), r.port()
		r.Lane.mu.Lock()
		refused.held = "5"
		refused.fold(&event.Delta{Type: event.Added, Resource: things, Object: thing("held", "held1", 5), Time: time.Now()}, 1)
		r.Lane.mu.Unlock()
		w := watchOf(t, p)
		w.has("w", "x", "y", "z")
		go w.has("k")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		d.run()
		time.Sleep(time.Minute)
		w.has("k", "k")
		d.wants(t, 4, "added k1/5", "updated k1/6", "updated k1/7")
		if strings.Count(r.log.String(), "has caught up") != 1 {
			t.Error(r.log)
		}
	})
}

// The first list is owed and is no reason to fold: live changes of other objects go on.
func TestLiveChangesGoOnWhileAFirstListIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish, folds, func(o *Options) { o.MaxEvents = 10 })
		w := watchOf(t, r.port())
		w.lists("S", names("b", 30)...)
		d.answer(1)
		w.has("live")
		if got := d.told(); len(got) != 7 || got[6] != "added live1/32" {
			t.Errorf("under way: %s", got)
		}
		d.run()
		r.drain()
		r.books(31 + 2)
	})
}

func TestADrainLeavesWhatIsBehindWhereTheStateKeepsIt(t *testing.T) {
	for _, kept := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r, d, w := stuck(t)
			go w.has("a")
			time.Sleep(5 * time.Second)
			w.has("b", "k")
			drained := make(chan error, 1)
			go func() { drained <- r.Drain(t.Context(), kept) }()
			synctest.Wait()
			d.answer(4)
			select {
			case err := <-drained:
				if !kept || err != nil || r.Behind() != 3 {
					t.Errorf("kept %t: drained with %d behind, %v", kept, r.Behind(), err)
				}
				d.wants(t, 0, firstFive...)
			default:
				if kept {
					t.Error("the drain waits for what the state keeps")
				}
				d.run()
				if err := <-drained; err != nil || r.Behind() != 0 {
					t.Errorf("%d are behind, %v", r.Behind(), err)
				}
			}
		})
	}
}

func TestADrainThatEndsEarlyNamesWhatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, w := stuck(t)
		go w.has("a")
		time.Sleep(5 * time.Second)
		w.has("b")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too late"))
		defer cancel()
		err := r.Drain(ctx, false)
		var left *LeftError
		if !errors.As(err, &left) || left.Events != 4 || left.Behind != 2 || !strings.Contains(err.Error(), "behind on: 2 objects: too late") {
			t.Errorf("%v", err)
		}
	})
}

// What is left behind may be nothing to send: nobody answers for it, and a drain must
// end all the same.
func TestADrainEndsWhenWhatWasBehindIsFiltered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish, folds)
		w := watchOf(t, r.port(event.Added, event.Updated))
		w.has("w", "x", "y", "w")
		go w.has("w")
		time.Sleep(5 * time.Second)
		w.gone("w") // folded into what is behind, and not sent
		d.run()
		r.drain()
		d.wants(t, 3, "updated w1/4")
		r.books(6)
	})
}

// All that is in the window may be refused, the markers beyond its bounds too, while
// the dead letters can not be written.
func TestMarkersMayBeRefusedBeyondTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{refuse: func(*event.Event) error { return errNever }}
		r := newRig(t, d.publish, func(o *Options) { o.MaxEvents = 1 })
		free := block(t, r.file)
		var watches []*watching
		for i := range 4 {
			ns := fmt.Sprint("ns", i)
			w := watchOf(t, r.NewPort(things.Name(), things, ns, allTypes))
			w.lists(fmt.Sprint("S", i))
			watches = append(watches, w)
		}
		time.Sleep(time.Minute)
		if _, events, _ := r.Usage(); events != len(watches) {
			t.Errorf("%d events", events)
		}
		free()
		r.drain()
		if n := len(r.letters()); n != 8 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestWhatComesAndGoesWhileASinkIsBehindLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		go w.has("k")
		time.Sleep(6 * time.Second)
		if !r.isFolding() {
			t.Fatal("it does not fold")
		}
		w.has("kept")
		for i := range 500 {
			job := "job" + strconv.Itoa(i)
			w.has(job)
			w.gone(job)
		}
		r.Lane.mu.Lock()
		p, listed := r.ports[0], 0
		for b := p.firstBehind; b != nil; b = b.next {
			listed++
		}
		if listed != len(p.behind) || listed > 10 {
			t.Errorf("%d objects are in the list, and %d in the map", listed, len(p.behind))
		}
		r.Lane.mu.Unlock()
		d.run()
		r.drain()
	})
}
