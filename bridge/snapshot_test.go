package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// completed is what the closing marker says.
func (d *desk) completed(t *testing.T, nth int) (count int, version string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, told := range d.log {
		if !strings.HasPrefix(told, "completed ") {
			continue
		}
		if nth > 0 {
			nth--
			continue
		}
		var e struct {
			Data struct {
				Count           *int
				ResourceVersion string
			}
		}
		if err := json.Unmarshal([]byte(d.values[i]), &e); err != nil || e.Data.Count == nil {
			t.Fatalf("%s: %v", d.values[i], err)
		}
		return *e.Data.Count, e.Data.ResourceVersion
	}
	t.Fatalf("no snapshot is completed: %s", d.log)
	return 0, ""
}

func TestAFirstListStandsBetweenMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish)
		w := watchOf(t, r.port())
		w.lists("S", "a", "b")
		d.wants(t, 0, "started S")
		time.Sleep(time.Hour)
		d.wants(t, 0, "started S") // no event goes before it is acknowledged
		d.answer(1)
		d.wants(t, 0, "started S", "added a1/1 in S", "added b1/2 in S")
		d.answer(1)
		d.wants(t, 3) // nor the end before all are
		d.answer(1)
		d.wants(t, 3, "completed S")
		if count, version := d.completed(t, 0); count != 2 || version != "3" {
			t.Errorf("%d events of a list at %s", count, version)
		}
		w.has("a")
		d.run()
		d.wants(t, 4, "updated a1/4")
		r.drain()
		r.books(3 + 2)
	})
}

func TestAnEmptyFirstListHasItsMarkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true}
		r := newRig(t, d.publish)
		watchOf(t, r.port()).lists("S")
		d.wants(t, 0, "started S", "completed S")
		if count, version := d.completed(t, 0); count != 0 || version != "1" {
			t.Errorf("%d events of a list at %s", count, version)
		}
		r.drain()
	})
}

func TestAFirstListWithoutAdditionsHasItsMarkersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true}
		r := newRig(t, d.publish)
		w := watchOf(t, r.port(event.Updated, event.Deleted))
		w.lists("S", "a", "b")
		r.drain()
		w.has("a")
		d.wants(t, 0, "started S", "completed S", "updated a1/4")
		if count, _ := d.completed(t, 0); count != 0 {
			t.Errorf("%d events", count)
		}
		r.books(3 + 2)
	})
}

func TestAChangeBeforeAnObjectsTurnIsPartOfItsAddition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish)
		w := watchOf(t, r.port())
		w.lists("S", "a", "b", "c", "d")
		w.has("a")  // changed
		w.gone("b") // never told
		w.gone("c") // never told, and made anew: that is not of the list
		w.has("c", "new")
		d.run()
		// The new ones wait for the marker too: they are not to be missed at the end.
		d.wants(t, 0, "started S", "added a1/6 in S", "added d1/4 in S", "added c2/9", "added new1/10", "completed S")
		if count, version := d.completed(t, 0); count != 2 || version != "5" {
			t.Errorf("%d events of a list at %s", count, version)
		}
		r.books(9 + 2)
		if n := r.sum("kbridge_unseen_total"); n != 2 {
			t.Errorf("%d are counted as unseen", n)
		}
	})
}

func TestASnapshotWithRefusedEventsCompletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true, refuse: func(e *event.Event) error {
			if e.Key.Name == "b" {
				return errNever
			}
			return nil
		}}
		r := newRig(t, d.publish)
		w := watchOf(t, r.port())
		w.lists("S", "a", "b")
		d.wants(t, 0, "started S", "added a1/1 in S", "added b1/2 in S", "completed S")
		if count, _ := d.completed(t, 0); count != 1 {
			t.Errorf("%d events are counted, one was refused", count)
		}
		r.books(2 + 2)
	})
}

func TestAWalkSaysEachObjectOnceWithItsStateAtItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true}
		r := newRig(t, d.publish, folds, func(o *Options) { o.MaxEvents = 8 })
		w := watchOf(t, r.port())
		w.has(names("n", 20)...)
		r.drain()
		d.mu.Lock()
		d.flow = false
		d.mu.Unlock()
		ended := make(chan error, 1)
		go func() { ended <- snapshotAll(t.Context(), w.feed, "R") }()
		d.wants(t, 20, "started R") // and no event before it is acknowledged
		d.answer(1)
		d.wants(t, 21, "synced n001/1 in R", "synced n011/2 in R", "synced n021/3 in R", "synced n031/4 in R")
		w.has("n00", "n19") // after its turn, and before
		w.gone("n18")
		time.Sleep(time.Hour)
		if r.isFolding() {
			t.Error("a snapshot makes the sink fall behind")
		}
		most := 0
		for range 60 {
			d.answer(1)
			_, events, _ := r.Usage()
			most = max(most, events)
		}
		if most > 7 { // half of the window, and three changes
			t.Errorf("%d events are in a window of 8", most)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		counts := map[string]int{}
		for _, told := range d.told()[20:] {
			counts[told]++
		}
		for told, n := range counts {
			if n != 1 {
				t.Errorf("%s came %d times", told, n)
			}
		}
		if counts["synced n191/22 in R"] != 1 || counts["synced n181/19 in R"] != 0 || len(counts) != 19+3+2 {
			t.Errorf("%d events: %v", len(counts), d.told()[20:])
		}
		if count, version := d.completed(t, 0); count != 19 || version != "20" {
			t.Errorf("%d events at %s", count, version)
		}
		r.books(23 + 21)
	})
}

func TestAWalkWaitsWhileTheSinkIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		ended := make(chan error, 1)
		go w.has("k")
		time.Sleep(5 * time.Second)
		w.has("a")
		go func() { ended <- snapshotAll(t.Context(), w.feed, "R") }()
		synctest.Wait()
		w.gone("a") // what it waits for may come to nothing
		d.run()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		got := d.told()[5:]
		if got[0] != "updated k1/6" && got[0] != "started R" || len(got) != 1+1+5+1 || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, " a1/") }) {
			t.Errorf("%s", got)
		}
		r.books(8 + 5 + 2)
	})
}

func TestAnObjectThatIsBehindHasNoTurnBeforeItsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		d.run()
		r.drain()
		p := w.feed.ports[0]
		p.lane.mu.Lock()
		s := p.beginSnapshot("R", false, 0)
		s.began = true
		p.lane.mu.Unlock()
		r.drain()
		p.lane.mu.Lock()
		p.lane.folding = true
		delta := event.Delta{Type: event.Updated, Resource: things, Object: thing("k", "k1", 9), Old: w.index["shop/k"], Time: time.Now()}
		p.fold(&delta, 1)
		p.lane.mu.Unlock()
		if said, _ := p.say(delta.Object, s); said {
			t.Error("a snapshot says a state whose change the sink has not received")
		}
		r.drain()
	})
}

func TestASnapshotThatComesWhileOneRunsIsPartOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish)
		p := r.port()
		w := watchOf(t, p)
		w.lists("S", "a")
		if err := snapshotAll(t.Context(), w.feed, "R"); !errors.Is(err, ErrSnapshotUnderWay) {
			t.Errorf("a second snapshot ends with %v", err)
		}
		d.run()
		d.wants(t, 0, "started S", "added a1/1 in S", "completed S")
		for _, id := range []string{"R1", "R2"} { // one after the other
			if err := snapshotAll(t.Context(), w.feed, id); err != nil {
				t.Error(err)
			}
		}
		d.wants(t, 3, "started R1", "synced a1/1 in R1", "completed R1", "started R2", "synced a1/1 in R2", "completed R2")
		r.books(1 + 2 + 6)
	})
}

func TestAWalkEndsWithItsContextWhereverItIs(t *testing.T) {
	for answers := range 8 {
		synctest.Test(t, func(t *testing.T) {
			d := &desk{flow: true}
			r := newRig(t, d.publish, func(o *Options) { o.MaxEvents = 4 })
			w := watchOf(t, r.port())
			w.has(names("n", 5)...)
			r.drain()
			d.mu.Lock()
			d.flow = false
			d.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- snapshotAll(ctx, w.feed, "R") }()
			d.answer(answers)
			began := time.Now()
			err := <-ended
			if answers < 7 && (!errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute) || answers == 7 && err != nil {
				t.Errorf("after %d answers and %s: %v", answers, time.Since(began), err)
			}
			d.run()
			r.drain()
		})
	}
}

func TestTwoSinksHaveASnapshotAtTheirOwnPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &desk{}, &desk{flow: true}
		r, s := newRig(t, slow.publish), newRig(t, quick.publish, called("quick"))
		none := newRig(t, quick.publish, called("none"))
		w := watchOf(t, r.port(), s.port(), none.port(event.Added))
		w.lists("S", "a", "b")
		slow.run()
		r.drain()
		slow.mu.Lock()
		slow.flow = false
		slow.mu.Unlock()
		before := len(quick.told())
		ended := make(chan error, 1)
		go func() { ended <- snapshotAll(t.Context(), w.feed, "R") }()
		quick.wants(t, before, "started R", "synced a1/1 in R", "synced b1/2 in R", "completed R")
		slow.wants(t, 4, "started R")
		select {
		case err := <-ended:
			t.Errorf("it returns with one sink left: %v", err)
		default:
		}
		slow.run()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		slow.wants(t, 4, "started R", "synced a1/1 in R", "synced b1/2 in R", "completed R")
	})
}

func TestASinkThatIsAwayHoldsUpNoSnapshotOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead, healthy := &desk{}, &desk{flow: true}
		away := newRig(t, dead.publish, folds)
		w := watchOf(t, away.port(), newRig(t, healthy.publish, folds, called("healthy")).port())
		w.has("a", "b") // the window of the one that is away does not fill
		synctest.Wait()
		for _, id := range []string{"R1", "R2", "R3"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := w.feed.Snapshot(ctx, "healthy", id); err != nil {
				t.Errorf("snapshot %s: %v", id, err)
			}
			cancel()
		}
		dead.run()
		away.drain()
	})
}

func TestTheSnapshotsOfNamespacesAreTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			got = append(got, fmt.Sprintf("%s %s %s/%s", e.Type, e.ID, e.Key.Namespace, e.Key.Name))
			done(nil)
		})
		for _, ns := range []string{"shop", "billing"} {
			w := watchOf(t, r.NewPort(things.Name(), things, ns, allTypes))
			w.lists(ns[:1])
		}
		r.drain()
		slices.Sort(got)
		if want := []string{"completed b.completed billing/_snapshot", "completed s.completed shop/_snapshot", "started b.started billing/_snapshot", "started s.started shop/_snapshot"}; !slices.Equal(got, want) {
			t.Error(got)
		}
	})
}

// A live change stands behind a bounded part of a snapshot, whatever the window.
func TestASnapshotTakesAsMuchOfTheQueueAsALiveChangeMayWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true}
		r := newRig(t, d.publish, func(o *Options) { o.MaxBytes, o.MaxEvents = 1<<30, 1<<20 })
		w := watchOf(t, r.port())
		var names []string
		for n := range 3 * maxShared {
			names = append(names, fmt.Sprint("o", n))
		}
		w.lists("S", names...)
		r.drain()
		hold(d)
		go func() { _ = snapshotAll(t.Context(), w.feed, "R") }()
		d.answer(1)
		for range 3 {
			synctest.Wait()
			if n := r.open(); n != maxShared {
				t.Fatalf("%d events of the snapshot are under way", n)
			}
			d.answer(10)
		}
		d.run()
		r.drain()
	})
}
