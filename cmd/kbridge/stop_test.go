package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
	"github.com/kbridge-io/kbridge/internal/spill"
	"github.com/kbridge-io/kbridge/internal/spill/spilltest"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/state"
)

// fakeSink does what a test says.
type fakeSink struct {
	name    string
	publish func(ctx context.Context, e *event.Event, done func(error))
	close   func()
}

var _ sink = (*fakeSink)(nil)

func (s *fakeSink) Name() string { return s.name }
func (s *fakeSink) Err() error   { return nil }
func (s *fakeSink) Close(context.Context) error {
	if s.close != nil {
		s.close()
	}
	return nil
}

func (s *fakeSink) Publish(ctx context.Context, e *event.Event, done func(error)) {
	s.publish(ctx, e, done)
}

func acknowledge(_ context.Context, _ *event.Event, done func(error)) { done(nil) }

func refuse(_ context.Context, _ *event.Event, done func(error)) {
	done(sinks.Permanent(errors.New("never")))
}

// fakeLetters keeps dead letters as a test says.
type fakeLetters func(ctx context.Context) error

func (f fakeLetters) Write(ctx context.Context, _ string, _ *event.Event, _ error) error {
	return f(ctx)
}
func (fakeLetters) Err() error { return nil }

// fakeStore notes when it was written to, and knows nothing.
type fakeStore struct {
	commit, close func()

	mu        sync.Mutex
	committed time.Time
}

var _ state.Store = (*fakeStore)(nil)

func (s *fakeStore) Contents() (state.Contents, error) { return state.Contents{}, nil }

func (s *fakeStore) Info(state.ViewID) (state.ViewInfo, error) { return state.ViewInfo{}, nil }

func (s *fakeStore) LoadView(state.ViewID, func(*event.Object) error) (state.ViewInfo, error) {
	return state.ViewInfo{}, nil
}

func (s *fakeStore) LoadLane(state.LaneID) (state.LaneInfo, map[string]state.Behind, bool, error) {
	return state.LaneInfo{}, nil, false, nil
}
func (s *fakeStore) Retain(map[state.ViewID]string, []state.LaneID) error { return nil }
func (s *fakeStore) Residue() (state.Residue, error)                      { return state.Residue{}, nil }
func (s *fakeStore) Scrub() (bool, error)                                 { return true, nil }
func (s *fakeStore) Commit(*state.Batch) error {
	if s.commit != nil {
		s.commit()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = time.Now()
	return nil
}

func (s *fakeStore) Close() error {
	if s.close != nil {
		s.close()
	}
	return nil
}

// outside is what is around a daemon in these tests: two sinks of the same resource.
type outside struct {
	live, other *fakeSink
	letters     fakeLetters
	store       *fakeStore
	window      int // of the sink live, in events
}

// stopped is a daemon that has ended.
type stopped struct {
	err  error
	took time.Duration // from the signal on
	log  string
}

const grace = 5 * time.Second

// runAndStop runs a daemon for a cluster with an object until all is at rest, and stops
// it. before is called right before that with what puts another object into the cluster,
// and meanwhile right after.
func runAndStop(t *testing.T, o outside, before func(put func(name string)), meanwhile func()) stopped {
	t.Helper()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	text := fmt.Sprintf("cluster: test\nresources: [{resource: configmaps}]\nsinks: [{name: live, window: {events: %d}, foldAfter: 0s, stdout: {}}, {name: other, nats: {urls: ['nats://n']}}]\nstate: {file: {dir: x}}\n", max(o.window, 100))
	if o.window > 0 {
		text = strings.Replace(text, "events: 100", fmt.Sprintf("events: %d", o.window), 1)
	}
	cfg, err := config.Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	api := scriptedapi.New()
	defer api.Close()
	api.Register(modelConfigMaps, "ConfigMap", true)
	put := func(name string) { api.Put(modelConfigMaps, scriptedapi.NewObject("a", name)) }
	put("first")
	client, err := informer.NewClient(api.Config(), 1e6, 1e6, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	around := adapters{
		sink: func(_ context.Context, c config.Sink) (sink, error) {
			s := map[string]*fakeSink{"live": o.live, "other": o.other}[c.Name]
			s.name = c.Name
			return s, nil
		},
		deadLetters: func(config.Sink) (sinks.DeadLetters, error) { return o.letters, nil },
		state:       func(context.Context, config.State) (state.Store, error) { return o.store, nil },
		aside:       func(config.State) (*spill.File, error) { return spilltest.Open(t), nil },
	}
	var log bytes.Buffer
	d := newDaemon(cfg, cfg.Sinks, around, grace, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx, client) }()
	time.Sleep(time.Minute + 530*time.Millisecond)
	before(put)
	cancel()
	began := time.Now()
	if meanwhile != nil {
		meanwhile()
	}
	result := stopped{err: <-ended, took: time.Since(began)}
	synctest.Wait() // what is left behind says nothing more
	result.log = log.String()
	return result
}

// A signal that nothing survives may follow the grace period, so the state is stored by
// then, and what hangs is left behind.
func TestAStopEndsInTimeAndStoresTheStateWhateverHangs(t *testing.T) {
	for name, c := range map[string]struct {
		hang func(o *outside, hang func())
		want string // what the error says; empty: none
	}{
		"a dead letter that takes long": {func(o *outside, _ func()) {
			o.live.publish = refuse
			o.letters = func(ctx context.Context) error {
				select { // three servers that do not answer
				case <-time.After(15 * time.Second):
				case <-ctx.Done():
				}
				return errors.New("timeout")
			}
		}, ""},
		"a dead letter": {func(o *outside, hang func()) {
			o.live.publish = refuse
			o.letters = func(context.Context) error { hang(); return errors.New("late") }
		}, "a lane hangs"},
		"publishing": {func(o *outside, hang func()) {
			o.live.publish = func(_ context.Context, _ *event.Event, done func(error)) { hang(); done(errors.New("late")) }
		}, "a lane hangs"},
		"closing a sink":    {func(o *outside, hang func()) { o.live.close = hang }, "closing sink live hangs"},
		"closing the state": {func(o *outside, hang func()) { o.store.close = hang }, "closing the state hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released := make(chan struct{})
				defer close(released)
				store := &fakeStore{}
				// The other sink answers for its last event when there is hardly any time left.
				late := make(chan func(error), 1)
				last := false
				o := outside{
					live: &fakeSink{publish: acknowledge}, store: store,
					other: &fakeSink{publish: func(_ context.Context, e *event.Event, done func(error)) {
						if last = e.Key.Name == "last"; last {
							late <- done
							return
						}
						done(nil)
					}},
				}
				c.hang(&o, func() { <-released })
				var began time.Time
				got := runAndStop(t, o, func(put func(string)) {
					put("last")
					synctest.Wait()
					began = time.Now()
				}, func() {
					time.AfterFunc(grace-grace/5-10*time.Millisecond, func() { (<-late)(nil) })
				})
				if got.took > grace+closeWithin+leastWait {
					t.Errorf("with a grace period of %s the stop took %s", grace, got.took)
				}
				if at := store.committed.Sub(began); at < grace-grace/5-10*time.Millisecond || at > grace {
					t.Errorf("the state was stored %s after the signal, want the last acknowledgement to be in it, and before the end of the grace period", at)
				}
				if (got.err == nil) != (c.want == "") || got.err != nil && !strings.Contains(got.err.Error(), c.want) {
					t.Errorf("the error is %v, want %q", got.err, c.want)
				}
			})
		})
	}
}

func TestAStopEndsInTimeWhenTheStateCanNotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		var hangs atomic.Bool
		store := &fakeStore{commit: func() {
			if hangs.Load() {
				<-released
			}
		}}
		closed := false
		o := outside{live: &fakeSink{publish: acknowledge, close: func() { closed = true }}, other: &fakeSink{publish: acknowledge}, store: store}
		got := runAndStop(t, o, func(put func(string)) {
			hangs.Store(true)
			put("last")
			synctest.Wait()
		}, nil)
		if got.took > grace+closeWithin+leastWait || got.err == nil || !strings.Contains(got.err.Error(), "storing the state hangs") || !closed {
			t.Errorf("after %s: %v; the sinks are closed: %t", got.took, got.err, closed)
		}
	})
}

func TestWhatHangsBeforeItHasBegunEndsWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		began := time.Now()
		err := within(ctx, grace, func() error { <-released; return nil })
		if took := time.Since(began); err == nil || took != time.Hour+grace {
			t.Errorf("after %s: %v", took, err)
		}
		if err := within(ctx, grace, func() error { return errScripted }); !errors.Is(err, errScripted) {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestAStopSaysOnceWhatIsTrue(t *testing.T) {
	const dealt, rest = "all that was read is dealt with", "the next start goes on with what is not delivered"
	var held []func(error)
	hold := func(_ context.Context, e *event.Event, done func(error)) {
		if e.Type >= event.Synced {
			done(nil)
			return
		}
		held = append(held, done)
	}
	for name, c := range map[string]struct {
		publish   func(context.Context, *event.Event, func(error))
		window    int
		meanwhile func()
		want      []string
	}{
		"all is delivered":    {acknowledge, 0, nil, []string{dealt}},
		"some is under way":   {hold, 0, nil, []string{rest + `" events=3 objects=0`, "not all that was read is delivered"}},
		"the sink was behind": {hold, 1, func() { held[0](nil) }, []string{rest + `" events=0 objects=2`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				held = nil
				o := outside{live: &fakeSink{publish: c.publish}, other: &fakeSink{publish: acknowledge}, store: &fakeStore{}, window: c.window}
				got := runAndStop(t, o, func(put func(string)) {
					put("second")
					put("third")
					synctest.Wait()
				}, c.meanwhile)
				if got.err != nil {
					t.Error(got.err)
				}
				for _, text := range c.want {
					if n := strings.Count(got.log, text); n != 1 {
						t.Errorf("%q is said %d times:\n%s", text, n, got.log)
					}
				}
				if n := strings.Count(got.log, "stopped: "); n != 1 {
					t.Errorf("that it has stopped is said %d times:\n%s", n, got.log)
				}
			})
		})
	}
}
