package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

func stored(_ context.Context, _ *event.Event, done func(error)) { done(nil) }

func silent(context.Context, *event.Event, func(error)) {}

func TestAnObjectHasOneEventUnderWayAndKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, _ := r.feed()
		for version, name := range []string{"a", "a", "b", "a"} {
			r.send(f, update(name, version, 10))
		}
		if got := sink.came(); got != "a/0 b/2" {
			t.Fatalf("under way: %s", got)
		}
		sink.answer(t, "a/0", errAgain)
		time.Sleep(time.Second)
		if got := sink.came(); got != "a/0 b/2 a/0" {
			t.Fatalf("after a failure: %s", got)
		}
		sink.answer(t, "a/0", nil)
		sink.answer(t, "a/1", nil)
		sink.answer(t, "a/3", nil)
		sink.answer(t, "b/2", nil)
		if got := sink.came(); got != "a/0 b/2 a/0 a/1 a/3" {
			t.Fatalf("in all: %s", got)
		}
		r.drain()
	})
}

func TestAnObjectThatFailsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var others atomic.Int64
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			if e.Key.Name == "bad" {
				done(errAgain)
				return
			}
			others.Add(1)
			done(nil)
		})
		f, p := r.feed()
		began := time.Now()
		for i := range 100 {
			r.send(f, update("bad", 3*i, 10))
			r.send(f, update("good-"+strconv.Itoa(i), 3*i+1, 10))
			r.send(f, update("good", 3*i+2, 10))
		}
		synctest.Wait()
		if n := others.Load(); n != 200 || time.Since(began) != 0 {
			t.Errorf("%d of 200 other events went out in %s", n, time.Since(began))
		}
		if got := p.Position(); got != "" {
			t.Errorf("the position passes the failing event: %s", got)
		}
	})
}

func TestRetriesSlowDownUpToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts []time.Time
		r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) {
			attempts = append(attempts, time.Now())
			if len(attempts) == 80 {
				done(nil)
				return
			}
			done(errAgain)
		})
		f, _ := r.feed()
		r.send(f, update("a", 1, 10))
		r.drain()
		for i, want := 1, 100*time.Millisecond; i < len(attempts); i, want = i+1, min(2*want, 5*time.Second) {
			if pause := attempts[i].Sub(attempts[i-1]); pause < want/2 || pause > want {
				t.Errorf("pause %d is %s, want %s to %s", i, pause, want/2, want)
			}
		}
		if got := r.sum("kbridge_publish_failures_total"); got != 79 {
			t.Errorf("%d failures are counted, want 79", got)
		}
	})
}

// Run waits for the soonest retry it knows of; an answer from another goroutine may
// bring a sooner one.
func TestARetryThatIsDueSoonerWakesTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, _ := r.feed()
		r.send(f, update("slow", 1, 10))
		for range 10 { // up to a pause of seconds
			sink.came()
			sink.answer(t, "slow/1", errAgain)
			for before := sink.came(); sink.came() == before; {
				time.Sleep(10 * time.Millisecond)
			}
		}
		sink.answer(t, "slow/1", errAgain)
		r.send(f, update("quick", 2, 10))
		sink.came()
		sink.answer(t, "quick/2", errAgain)
		time.Sleep(100 * time.Millisecond)
		if got := sink.came(); !strings.HasSuffix(got, " quick/2 quick/2") {
			t.Errorf("the retry waits for a later one: %s", got)
		}
	})
}

func TestBytesOfTheWindowAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish, func(o *Options) { o.MaxBytes, o.Format = 4000, event.Binary })
		f, _ := r.feed()
		r.send(f, update("a", 1, 1000))
		r.send(f, update("b", 2, 1000))
		var third, oversized atomic.Bool
		go func() {
			r.send(f, update("c", 3, 1000))
			third.Store(true)
			r.send(f, update("d", 4, 50_000))
			oversized.Store(true)
		}()
		synctest.Wait()
		if bytes, events, waiting := r.Usage(); bytes != 2*(1024+512) || events != 2 || waiting != 1 || third.Load() {
			t.Fatalf("%d bytes in %d events, %d waiting", bytes, events, waiting)
		}
		sink.answer(t, "b/2", nil)
		if !third.Load() || oversized.Load() {
			t.Fatal("the third has no room, or the fourth has")
		}
		sink.answer(t, "a/1", nil)
		if oversized.Load() {
			t.Fatal("what is larger than the window is not alone")
		}
		sink.answer(t, "c/3", nil)
		if !oversized.Load() {
			t.Fatal("what is larger than the window never passes")
		}
		sink.came()
		sink.answer(t, "d/4", nil)
		r.drain()
	})
}

func TestEventsOfTheWindowAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish, func(o *Options) { o.MaxEvents = 2 })
		f, _ := r.feed()
		r.send(f, update("a", 1, 10))
		r.send(f, update("b", 2, 10))
		var taken atomic.Bool
		go func() { r.send(f, update("c", 3, 10)); taken.Store(true) }()
		synctest.Wait()
		// An event behind one that is open keeps its place: it holds the position.
		sink.answer(t, "b/2", nil)
		if _, events, waiting := r.Usage(); taken.Load() || events != 2 || waiting != 1 {
			t.Fatalf("%d events are in a window of 2, %d wait", events, waiting)
		}
		sink.answer(t, "a/1", nil)
		if !taken.Load() {
			t.Fatal("the one that waited did not get the room")
		}
		sink.came()
		sink.answer(t, "c/3", nil)
	})
}

// Without turns, the watches with small events would keep the window full, and the
// large event would wait for as long as they last.
func TestALargeEventIsNotStarvedBySmallOnes(t *testing.T) {
	// Small ones that wait for room too, and such as find it at once and never all
	// leave the window.
	synctest.Test(t, func(t *testing.T) { starve(t, 8, time.Millisecond) })
	synctest.Test(t, func(t *testing.T) { starve(t, 3, 12*time.Millisecond) })
}

func starve(t *testing.T, small int, pause time.Duration) {
	calls := 0
	r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) {
		calls++
		time.AfterFunc(time.Duration(8+calls%4)*time.Millisecond, func() { done(nil) })
	}, func(o *Options) { o.MaxBytes, o.Format = 10_000, event.Binary })
	ctx, stop := context.WithTimeout(r.ctx, 10*time.Second)
	defer stop()
	var watches sync.WaitGroup
	for i := range small {
		f, _ := r.feed()
		watches.Go(func() {
			time.Sleep(time.Duration(4*i) * time.Millisecond)
			for n := 0; f.Delta(ctx, update(fmt.Sprintf("small-%d-%d", i, n), n, 1500)) == nil; n++ {
				time.Sleep(pause)
			}
		})
	}
	time.Sleep(time.Second)
	f, _ := r.feed()
	began := time.Now()
	for _, size := range []int{8000, 50_000} {
		if err := f.Delta(ctx, update("large", size, size)); err != nil {
			t.Errorf("an event of %d bytes got no room: %v", size, err)
		}
	}
	if waited := time.Since(began); waited > time.Second {
		t.Errorf("the large events waited %s", waited)
	}
	stop()
	watches.Wait()
	r.drain()
}

func TestOneThatWaitsForRoomGetsItsContextsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish, func(o *Options) { o.MaxBytes, o.Format = 3200, event.Binary })
		f, p := r.feed()
		r.send(f, update("a", 1, 1000))
		errGone := errors.New("the watch has ended")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errGone)
		defer cancel()
		// The next in the queue fits as soon as the first has given up.
		behind, _ := r.feed()
		var got atomic.Bool
		go func() {
			time.Sleep(time.Second)
			r.send(behind, update("c", 3, 100))
			got.Store(true)
		}()
		began := time.Now()
		err := f.Delta(ctx, update("b", 2, 2900))
		if !errors.Is(err, errGone) || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if want := "hand an event to sink live: the watch has ended"; err == nil || err.Error() != want {
			t.Errorf("the error says %v", err)
		}
		synctest.Wait()
		if !got.Load() {
			t.Error("the one behind in the queue was forgotten")
		}
		if err := f.Delta(ctx, update("d", 4, 1)); !errors.Is(err, errGone) {
			t.Errorf("with room, after the end: %v", err)
		}
		sink.came()
		sink.answer(t, "a/1", nil)
		sink.answer(t, "c/3", nil)
		r.drain()
		if got := p.Position(); got != "1" {
			t.Errorf("the position is %q", got)
		}
	})
}

func TestDrainWaitsForTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		r.drain() // empty
		f, _ := r.feed()
		r.send(f, update("a", 1, 10))
		r.send(f, update("b", 2, 10))
		drained := make(chan error, 1)
		go func() { drained <- r.Drain(t.Context(), false) }()
		sink.came()
		sink.answer(t, "b/2", nil)
		select {
		case err := <-drained:
			t.Fatalf("drained with one left: %v", err)
		default:
		}
		sink.answer(t, "a/1", nil)
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainNamesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, _ := r.feed()
		for version, name := range []string{"a", "b", "b", "c"} {
			r.send(f, update(name, version, 10))
		}
		sink.came()
		sink.answer(t, "c/3", nil) // is dealt with, behind others
		errLate := errors.New("the grace period is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errLate)
		defer cancel()
		err := r.Drain(ctx, false)
		if want := "drain sink live: not acknowledged: 3 events: the grace period is over"; !errors.Is(err, errLate) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

func TestRunEndsWithASinkThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, silent)
		f, p := r.feed()
		r.send(f, update("a", 1, 10))
		synctest.Wait()
		r.stop() // the bubble ends only when nothing is left running
		if got := p.Position(); got != "" {
			t.Errorf("the position is %q", got)
		}
	})
}

func TestRunEndsWhileTheSinkBlocksAndLeavesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		r := newRig(t, func(ctx context.Context, _ *event.Event, done func(error)) {
			calls.Add(1)
			<-ctx.Done()
			done(ctx.Err())
		})
		f, p := r.feed()
		for i := range 10 {
			r.send(f, update(strconv.Itoa(i), i, 10))
		}
		synctest.Wait()
		r.stop()
		// One batch for the first, and one for those that came while it blocked.
		if n := calls.Load(); n != 1 {
			t.Errorf("%d events were published, all but one after the end", n)
		}
		if r.open() != 10 || p.Position() != "" {
			t.Errorf("%d of 10 are left, the position is %q", r.open(), p.Position())
		}
		if err := r.check(); err != nil {
			t.Error(err)
		}
	})
}

func TestAnswersAfterRunHasEndedCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, p := r.feed()
		for i, name := range []string{"a", "b", "b", "c", "d"} {
			r.send(f, update(name, i, 10))
		}
		sink.came()
		r.stop()
		sink.answer(t, "a/0", nil)
		sink.answer(t, "b/1", nil)
		sink.answer(t, "c/3", errAgain)
		sink.answer(t, "d/4", errNever)
		if got := p.Position(); got != "1" || r.open() != 3 {
			t.Errorf("the position is %q, %d are left", got, r.open())
		}
		if err := r.check(); err != nil {
			t.Error(err)
		}
	})
}

// Entries, events and buffers are used again. What a sink holds must stay as it is.
func TestAnEventStaysAsItIsUntilItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type held struct {
			e     *event.Event
			id    string
			value string
		}
		var mu sync.Mutex
		under := map[string]held{}
		n := 0
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			mu.Lock()
			defer mu.Unlock()
			n++
			if n%3 == 0 {
				done(nil)
				return
			}
			h := held{e, e.ID, string(e.Value)}
			under[e.ID] = h
			time.AfterFunc(time.Duration(n%7)*time.Millisecond, func() {
				mu.Lock()
				defer mu.Unlock()
				if h.e.ID != h.id || string(h.e.Value) != h.value {
					t.Errorf("%s became %s", h.id, h.e.ID)
				}
				delete(under, h.id)
				if n%5 == 0 {
					done(errAgain)
					return
				}
				done(nil)
			})
		}, func(o *Options) { o.MaxEvents = 20 })
		f, _ := r.feed()
		for i := range 3000 {
			r.send(f, update(strconv.Itoa(i%50), i, i%3000))
		}
		r.drain()
		if len(under) > 0 {
			t.Errorf("%d events are still under way", len(under))
		}
	})
}

func TestUsedEntriesAndBuffersLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			got = append(got, fmt.Sprintf("%s %v %s", e.ID, e.Inferred, e.Snapshot))
			done(nil)
		})
		f, p := r.feed()
		d := update("a", 1, 10)
		d.Inferred, d.Snapshot = true, "s"
		r.send(f, d)
		synctest.Wait()
		// No position follows this one: it must not move it with the last one's label.
		if err := f.Delta(t.Context(), update("b", 2, 10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := strings.Join(got, ", "); s != "uid-a.1 true s, uid-b.2 false " {
			t.Error(s)
		}
		f.Position("7")
		if err := f.Delta(t.Context(), update("c", 3, 10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := p.Position(); got != "7" {
			t.Errorf("the position is %q, want 7", got)
		}
	})
}

func TestMetricsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			switch e.Key.Name {
			case "stored":
				done(nil)
			case "refused":
				done(errNever)
			case "failing":
				done(errAgain)
			}
		})
		f, _ := r.feed(event.Updated)
		for i, name := range []string{"stored", "refused", "failing", "silent", "stored"} {
			r.send(f, update(name, i, 10))
		}
		d := update("stored", 9, 10)
		d.Type = event.Synced
		r.send(f, d)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for name, want := range map[string]int{
			"kbridge_published_total": 2, "kbridge_filtered_total": 1, "kbridge_dead_letters_total": 1,
			"kbridge_window_events": 3, "kbridge_window_max_events": 1000, "kbridge_window_max_bytes": 1 << 20,
			"kbridge_window_waiting": 0, "kbridge_window_bytes": 2 * (1024 + entryOverhead),
			"kbridge_oldest_unacknowledged_seconds": 10, "kbridge_dead_letter_errors_total": 0,
		} {
			if got := r.sum(name); got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
		if r.open() != 2 {
			t.Errorf("%d are open", r.open())
		}
	})
}

func TestAnOutageIsLoggedWhenItBeginsAndEndsAndNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) {
			if down.Load() {
				done(errAgain)
				return
			}
			done(nil)
		})
		f, _ := r.feed()
		for i := range 50 {
			r.send(f, update(strconv.Itoa(i), i, 10))
		}
		time.Sleep(89 * time.Second)
		down.Store(false)
		r.drain()
		r.stop()
		log := r.log.String()
		if n := strings.Count(log, "publish failed"); n != 3 {
			t.Errorf("an outage of 89 s is told %d times", n)
		}
		if n := strings.Count(log, "published again"); n != 1 {
			t.Errorf("its end is told %d times", n)
		}
	})
}

func TestWhatPassesBesideAFailureIsNoEndOfIt(t *testing.T) {
	for name, attempts := range map[string]int{"until it passes": 0, "until it is given up": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var refused atomic.Bool
				refused.Store(true)
				r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
					if e.Key.Name == "bad" && refused.Load() {
						done(errAgain)
						return
					}
					done(nil)
				}, poison(attempts, 0))
				f, _ := r.feed()
				r.send(f, update("bad", 1, 10))
				r.pass(f, 10, time.Second)
				if log := r.log.String(); strings.Contains(log, "published again") || !strings.Contains(log, "publish failed") {
					t.Errorf("while it still fails the log is\n%s", log)
				}
				refused.Store(attempts > 0)
				r.pass(f, 300, time.Second)
				if n := strings.Count(r.log.String(), "published again"); n != 1 {
					t.Errorf("its end is told %d times:\n%s", n, r.log)
				}
			})
		})
	}
}

func TestOneObjectThatFailsAmongManyThatPassDoesNotFloodTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			if e.Key.Name == "bad" {
				done(errAgain)
				return
			}
			done(nil)
		})
		bad, _ := r.feed()
		r.send(bad, update("bad", 1, 10))
		f, _ := r.feed()
		for i := range 600 {
			r.send(f, update("good", i, 10))
			time.Sleep(100 * time.Millisecond)
		}
		r.stop()
		if n := strings.Count(r.log.String(), "\n"); n > 6 {
			t.Errorf("%d lines in a minute:\n%s", n, r.log)
		}
	})
}

func TestBuffersHaveTheSizeAskedForAndLargeOnesAreNotKept(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 64 << 10, 64<<10 + 1, 1 << 20} {
		buf := getBuffer(n)
		if cap(*buf) < n || cap(*buf) >= n+bufferStep || len(*buf) != 0 {
			t.Errorf("for %d bytes there is a buffer of %d, %d of them used", n, cap(*buf), len(*buf))
		}
		*buf = append(*buf, "used"...)
		putBuffer(buf)
	}
	// One that the encoder has grown is put where it is large enough for all who ask.
	grown := make([]byte, 0, 3000)
	putBuffer(&grown)
	for range 100 {
		if buf := getBuffer(2048); cap(*buf) < 2048 {
			t.Fatalf("a buffer of %d for 2048 bytes", cap(*buf))
		}
	}
}
