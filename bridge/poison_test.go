package bridge

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// failBad fails the objects whose names begin with bad, and takes the others.
func failBad(_ context.Context, e *event.Event, done func(error)) {
	if strings.HasPrefix(e.Key.Name, "bad") {
		done(errAgain)
		return
	}
	done(nil)
}

func poison(attempts int, after time.Duration) change {
	return func(o *Options) { o.Poison = Poison{Attempts: attempts, After: after} }
}

// pass sends an event that is acknowledged, each time so long after the one before.
func (r *rig) pass(f *Feed, times int, pause time.Duration) {
	r.t.Helper()
	for range times {
		time.Sleep(pause)
		r.send(f, update("good", int(time.Now().UnixNano()), 10))
		synctest.Wait()
	}
}

func TestAnEventThatFailsWhileOthersPassIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		after    time.Duration
		earliest time.Duration // when it may be given up, where an event passes each second
	}{
		"when it has failed often and for long": {3, time.Minute, time.Minute},
		"not for long alone":                    {100, time.Second, 4 * time.Minute}, // a pause is 2.5 to 5 s
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, failBad, poison(c.attempts, c.after))
				f, p := r.feed()
				began := time.Now()
				r.send(f, update("bad", 1, 10))
				for len(r.letters()) == 0 && time.Since(began) < time.Hour {
					r.pass(f, 1, time.Second)
				}
				letters := r.letters()
				if took := time.Since(began); len(letters) != 1 || took < c.earliest || took > 3*c.earliest {
					t.Fatalf("after %s there are %d dead letters", took, len(letters))
				}
				if l := letters[0]; idOf(t, l) != "uid-bad.1" || !strings.HasPrefix(l.Reason, "failed ") || !strings.HasSuffix(l.Reason, "s while other events were acknowledged: try again") {
					t.Errorf("%s: %s", idOf(t, l), l.Reason)
				}
				r.drain()
				wantPosition(t, p, p.newest)
				if r.counted("poison") != 1 || r.counted("refused") != 0 {
					t.Errorf("%d are counted as poison, %d as refused", r.counted("poison"), r.counted("refused"))
				}
				if log := r.log.String(); strings.Count(log, "failed again and again") != 1 || !strings.Contains(log, "uid-bad.1") {
					t.Errorf("it is not named:\n%s", log)
				}
			})
		})
	}
}

// counted is how many dead letters are counted for that reason.
func (r *rig) counted(reason string) (n int) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kbridge_dead_letters_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == reason {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

func TestAnOutageOfTheWholeSinkGivesNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down, passes atomic.Bool // the sink; and the one that is suspect
		down.Store(true)
		r := newRig(t, func(ctx context.Context, e *event.Event, done func(error)) {
			switch {
			case down.Load():
				done(errAgain)
			case passes.Load():
				done(nil)
			default:
				failBad(ctx, e, done)
			}
		}, poison(2, time.Minute))
		f, _ := r.feed()
		for _, name := range []string{"a", "b", "bad"} {
			r.send(f, update(name, 1, 10))
		}
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		// One of them is suspect for half a minute, when the next outage begins.
		down.Store(false)
		r.pass(f, 30, time.Second)
		down.Store(true)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		down.Store(false)
		passes.Store(true)
		r.drain()
		if n := len(r.letters()); n != 0 || r.sum("kbridge_published_total") != 33 {
			t.Errorf("%d dead letters, %d published", n, r.sum("kbridge_published_total"))
		}
	})
}

func TestAFailureCountsOnlyWhereAnotherEventPassedSinceTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, failBad, poison(4, 0))
		f, _ := r.feed()
		r.send(f, update("bad", 1, 10))
		r.pass(f, 3, time.Hour) // some 800 attempts each
		time.Sleep(time.Hour)
		if n := len(r.letters()); n != 0 {
			t.Fatalf("three events have passed, and it is given up")
		}
		r.pass(f, 1, time.Second)
		time.Sleep(time.Minute)
		if n := len(r.letters()); n != 1 {
			t.Errorf("four events have passed, and there are %d dead letters", n)
		}
	})
}

func TestWithoutAttemptsNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, failBad, poison(0, 0))
		f, _ := r.feed()
		r.send(f, update("bad", 1, 10))
		r.pass(f, 500, time.Minute)
		if n := len(r.letters()); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// An object that changes all the time would else fill the window.
func TestWhatWaitedBehindAnEventThatIsGivenUpFailsOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		r := newRig(t, func(ctx context.Context, e *event.Event, done func(error)) {
			if down.Load() {
				done(errAgain)
				return
			}
			failBad(ctx, e, done)
		}, poison(100, 30*time.Minute), func(o *Options) { o.MaxEvents = 10_000 })
		f, _ := r.feed()
		for version := range 50 {
			r.send(f, update("bad", version+1, 10))
		}
		for len(r.letters()) == 0 {
			r.pass(f, 1, time.Second)
		}
		down.Store(true)
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		if n := len(r.letters()); n > 2 { // the last one that passed may count for the second
			t.Fatalf("in an outage of the whole sink %d are given up", n)
		}
		down.Store(false)
		r.pass(f, 100, time.Second) // one at most with each that passes
		if n := len(r.letters()); n != 50 {
			t.Fatalf("%d of 50 are given up", n)
		}
		r.drain()
		// What comes later is not suspected.
		r.send(f, update("bad", 100, 10))
		r.pass(f, 60, time.Second)
		if n := len(r.letters()); n != 50 {
			t.Errorf("there are %d dead letters after a minute", n)
		}
	})
}

func TestASnapshotWhoseFirstMarkerIsADeadLetterHasNoLastOne(t *testing.T) {
	for name, fail := range map[string]error{"refused": errNever, "poison": errAgain} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &desk{flow: true, refuse: func(e *event.Event) error {
					if e.Type == event.SnapshotStarted {
						return fail
					}
					return nil
				}}
				r := newRig(t, d.publish, poison(2, time.Minute))
				w, other := watchOf(t, r.port()), watchOf(t, r.NewPort(pods.Name(), pods, "", allTypes))
				w.lists("S", "a", "b")
				other.feed.Position("0")
				for range 100 {
					time.Sleep(time.Second)
					r.send(other.feed, update("good", int(time.Now().UnixNano()), 10))
				}
				r.drain()
				var events []string
				for _, told := range d.told() {
					if !strings.HasPrefix(told, "started S") && !strings.HasPrefix(told, "updated uid-good") {
						events = append(events, told)
					}
				}
				if got := strings.Join(events, ", "); got != "added a1/1 in S, added b1/2 in S" {
					t.Errorf("the sink got %s", got)
				}
				letters := r.letters()
				if len(letters) != 2 || idOf(t, letters[0]) != "S.started" || idOf(t, letters[1]) != "S.completed" || !strings.Contains(letters[1].Reason, letters[0].Reason) {
					t.Fatalf("the dead letters are %+v", letters)
				}
				if r.counted(name) != 2 {
					t.Errorf("%d are counted", r.counted(name))
				}
				// The next snapshot is one of its own.
				d.mu.Lock()
				d.refuse = nil
				d.mu.Unlock()
				if err := w.feed.ports[0].walk(t.Context(), "T", w); err != nil {
					t.Fatal(err)
				}
				told := d.told()
				if last := told[len(told)-1]; last != "completed T" {
					t.Errorf("the last event is %s", last)
				}
			})
		})
	}
}
