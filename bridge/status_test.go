package bridge

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/status"
)

func TestTheStatusOfALaneFollowsItsSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r, d, w := stuck(t) // one event is acknowledged, four are under way
		time.Sleep(time.Minute)
		now := func() status.Sink {
			s := r.Status(time.Now())
			s.Window.Bytes = 0
			return s
		}
		want := status.Sink{
			Name: "live", Events: 1, OldestSeconds: 60,
			Window: status.Window{Events: 4, MaxEvents: 4, MaxBytes: 1 << 20},
		}
		if diff := cmp.Diff(want, now()); diff != "" {
			t.Errorf("with a full window: -want +got\n%s", diff)
		}
		if lag := w.feed.Lag(time.Now()); lag != time.Minute {
			t.Errorf("the lag is %s", lag)
		}
		go w.has("k")
		time.Sleep(time.Second)
		if s := now(); s.Window.Waiting != 1 || s.BehindObjects != 0 {
			t.Errorf("while a watch waits for room: %+v", s)
		}
		time.Sleep(5 * time.Second)
		if s := now(); s.Window.Waiting != 0 || s.BehindObjects != 1 || s.FoldedObjects != 1 {
			t.Errorf("when it has fallen behind: %+v", s)
		}
		if d.answer(3); w.feed.Lag(time.Now()) != time.Minute+6*time.Second {
			t.Errorf("with one of the first four the lag is %s", w.feed.Lag(time.Now()))
		}
		d.answer(1)
		if lag := w.feed.Lag(time.Now()); lag != 6*time.Second { // of the change, and not of its event
			t.Errorf("while what it is behind on is on its way the lag is %s", lag)
		}
		d.run()
		r.drain()
		want = status.Sink{Name: "live", Events: 6, Window: status.Window{MaxEvents: 4, MaxBytes: 1 << 20}}
		if diff := cmp.Diff(want, now()); diff != "" {
			t.Errorf("when it has caught up: -want +got\n%s", diff)
		}
		if lag := w.feed.Lag(time.Now()); lag != 0 {
			t.Errorf("when it has caught up the lag is %s, %s after the start", lag, time.Since(began))
		}
	})
}

func TestTheLagOfASinkThatIsBehindIsOfWhatItHasNotHadForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		go w.has("k")
		time.Sleep(6 * time.Second) // it has been behind for one
		for _, name := range []string{"a", "b", "c", "d"} {
			w.has(name)
		}
		time.Sleep(100 * time.Second)
		w.has("k", "a", "b", "c", "d") // what is sent then is new
		time.Sleep(time.Second)
		d.answer(4)
		synctest.Wait()
		if s := r.Status(time.Now()); s.BehindObjects == 0 || s.OldestSeconds != 0 {
			t.Fatalf("it is %+v", s)
		}
		if lag := w.feed.Lag(time.Now()); lag != 102*time.Second {
			t.Errorf("the lag is %s", lag)
		}
		d.run()
		r.drain()
	})
}

// answering is a sink that answers as the object's name says.
func answering(_ context.Context, e *event.Event, done func(error)) {
	switch e.Key.Name {
	case "never":
		done(errNever)
	case "again":
		if time.Since(e.Time) < time.Minute {
			done(errAgain)
			return
		}
		fallthrough
	default:
		done(nil)
	}
}

func TestFailuresAndDeadLettersAreInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, answering)
		f, _ := r.feed()
		r.send(f, update("again", 1, 10))
		time.Sleep(time.Second)
		s := r.Status(time.Now())
		if s.Failures < 2 || s.LastError == nil || s.LastError.Text != errAgain.Error() || time.Since(s.LastError.Time) > time.Second {
			t.Errorf("an event that fails: %+v, %+v", s, s.LastError)
		}
		time.Sleep(2 * time.Minute)
		before := time.Now()
		r.send(f, update("never", 2, 10))
		synctest.Wait()
		s = r.Status(time.Now())
		if s.Events != 1 || s.DeadLetters.Events != 1 || !s.DeadLetters.Last.Equal(before) || s.LastError.Text != errNever.Error() {
			t.Errorf("an event that is refused: %+v, %+v", s, s.LastError)
		}
	})
}

func TestTheTailHasTheMetadataOfWhatWasDealtWithWhileItIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tail := &status.Tail{}
		r := newRig(t, answering, func(o *Options) { o.Tail = tail })
		f, _ := r.feed()
		r.send(f, update("nobody-looks", 1, 10))
		synctest.Wait()
		follower := tail.Follow()
		r.send(f, update("good", 2, 1000))
		synctest.Wait() // so that there is an order
		inferred := update("never", 3, 1000)
		inferred.Inferred, inferred.Time = true, time.Now().Add(-3*time.Second)
		r.send(f, inferred)
		synctest.Wait()
		got, lost := follower.Events()
		at := time.Now().UTC()
		want := []status.Event{
			{Time: at, Sink: "live", Outcome: status.Acknowledged, Type: "updated", Resource: "pods", Namespace: "shop", Name: "good", ResourceVersion: "2"},
			{Time: at, Seconds: 3, Sink: "live", Outcome: status.DeadLetter, Reason: errNever.Error(), Type: "updated", Resource: "pods", Namespace: "shop", Name: "never", ResourceVersion: "3", Inferred: true},
		}
		if diff := cmp.Diff(want, got); diff != "" || lost != 0 {
			t.Errorf("%d are lost; -want +got\n%s", lost, diff)
		}
		follower.Close()
		r.send(f, update("nobody-looks-again", 4, 10))
		r.drain()
		if events, _ := follower.Events(); len(events) != 0 {
			t.Errorf("when nobody follows there are %v", events)
		}
	})
}

func TestTheStatusOfTheStateFollowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		l := start(t, m, s, setup{}, d)
		l.list()
		l.drain()
		l.store()
		before := *l.keeper.Status()
		if before.Commits == 0 || before.LastCommit.IsZero() || before.Errors != 0 || before.Error != "" {
			t.Errorf("once it is stored it is %+v", before)
		}
		time.Sleep(time.Minute)
		m.fail = errDisk
		s.has("a")
		l.sync()
		l.drain()
		if err := l.keeper.Store(); !errors.Is(err, errDisk) {
			t.Fatal(err)
		}
		failing := *l.keeper.Status()
		if failing.Errors != before.Errors+1 || failing.Error != errDisk.Error() || failing.LastCommit != before.LastCommit || failing.Commits != before.Commits {
			t.Errorf("when it can not be stored it is %+v, after %+v", failing, before)
		}
		m.fail = nil
		l.store()
		if after := *l.keeper.Status(); after.Error != "" || after.Errors != failing.Errors || !after.LastCommit.Equal(time.Now()) || after.Commits <= before.Commits {
			t.Errorf("when it can be it is %+v", after)
		}
	})
}
