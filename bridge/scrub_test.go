package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// scrubbed is a life whose keeper runs on a store with residue.
type scrubbed struct {
	*life
	m     *memory
	desk  *desk
	log   *logText
	ended chan error
}

// withResidue starts a life that has objects under old rules, and steps to scrub. The keeper
// runs when prepare is done.
func withResidue(t *testing.T, objects, steps int, prepare func(*memory)) *scrubbed {
	t.Helper()
	m, count := underOldRules(objects), 0
	m.since, m.rules, m.steps = time.Now().Add(-time.Hour), "new", steps
	s := &scrubbed{m: m, desk: &desk{flow: true}, log: &logText{}, ended: make(chan error, 1)}
	s.life = start(t, m, newAPIServer(), setup{rules: cleaning(&count)}, s.desk)
	s.server.version = 5
	s.keeper.log = slog.New(slog.NewTextHandler(s.log, nil))
	if prepare != nil {
		prepare(m)
	}
	if err := s.keeper.Residue(); err == nil || !strings.Contains(err.Error(), "not all of things is stored under the rules that hold now") {
		t.Errorf("before anything is stored: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { s.ended <- s.keeper.Run(ctx) }()
	t.Cleanup(cancel)
	return s
}

func (s *scrubbed) logged(text string, times int) {
	s.t.Helper()
	if n := strings.Count(s.log.String(), text); n != times {
		s.t.Errorf("%q is logged %d times, want %d:\n%s", text, n, times, s.log)
	}
}

// calls is how often the store was asked to scrub.
func (s *scrubbed) calls() int {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.scrubs
}

const isGone = "the state has no values of earlier rules any more"

func TestTheStateIsScrubbedWhenAllIsStoredUnderItsRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withResidue(t, 2*storeObjects+10, 100, func(m *memory) { m.rules = "others still" })
		time.Sleep(5 * time.Second)
		if n := s.calls(); n > 0 {
			t.Errorf("%d steps while bodies are under other rules", n)
		}
		s.m.mu.Lock()
		s.m.rules = "new"
		s.m.mu.Unlock()
		time.Sleep(5 * time.Second)
		if err := s.keeper.Residue(); err == nil || !strings.Contains(err.Error(), s.m.since.Format(time.RFC3339)+": they are being removed") {
			t.Errorf("while it is under way: %v", err)
		}
		if n := s.keeper.scrubber.age(); n < 3600 || n > 3700 {
			t.Errorf("there is residue for %v s", n)
		}
		// Batches are written in between.
		s.server.has("late")
		s.at.Store(5)
		s.sync()
		time.Sleep(2 * time.Second)
		if _, ok := s.m.view().objects["shop/late"]; !ok || s.keeper.Residue() == nil {
			t.Errorf("a change is stored while the state is scrubbed: %t; residue: %v", ok, s.keeper.Residue())
		}
		time.Sleep(time.Minute)
		if err := s.keeper.Residue(); err != nil || s.calls() != 100 {
			t.Errorf("after %d steps: %v", s.calls(), err)
		}
		if n := s.keeper.scrubber.age(); n != 0 {
			t.Errorf("there is residue for %v s", n)
		}
		s.logged("are being removed", 1)
		s.logged(isGone, 1)
	})
}

// A resource that the server does not have is not loaded.
func TestResidueIsToldBeforeAnyWatchIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := underOldRules(3)
		m.since, m.rules = time.Now(), "new"
		keeper := NewKeeper(m, "cluster", &event.History{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := keeper.Run(ctx); err != nil {
			t.Error(err)
		}
		if err := keeper.Residue(); err == nil || m.scrubs > 0 {
			t.Errorf("%v, and %d steps", err, m.scrubs)
		}
	})
}

func TestAScrubThatFailsIsToldOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withResidue(t, 3, 500, func(m *memory) { m.cannot = errDisk })
		time.Sleep(time.Hour)
		if err := s.keeper.Residue(); !errors.Is(err, errDisk) {
			t.Errorf("while it fails: %v", err)
		}
		if n := s.calls(); n < 50 || n > 80 || int(testutil.ToFloat64(s.keeper.scrubber.errors)) != n {
			t.Errorf("%d attempts in an hour, %v are counted", n, testutil.ToFloat64(s.keeper.scrubber.errors))
		}
		if err := s.keeper.Err(); err != nil {
			t.Errorf("what is stored is stored: %v", err)
		}
		s.logged(errDisk.Error(), 1)
		s.m.mu.Lock()
		s.m.cannot = nil
		s.m.mu.Unlock()
		time.Sleep(longestScrubPause + time.Second)
		if err := s.keeper.Residue(); err == nil || errors.Is(err, errDisk) {
			t.Errorf("after it could not for an hour: %v", err)
		}
		time.Sleep(time.Minute)
		if err := s.keeper.Residue(); err != nil {
			t.Errorf("at the end: %v", err)
		}
		s.logged(isGone, 1)
	})
}

func TestADiskThatTakesNoBatchIsNotScrubbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withResidue(t, 3, 1000, nil)
		time.Sleep(5 * time.Second)
		s.m.mu.Lock()
		s.m.fail = errDisk
		s.m.mu.Unlock()
		s.server.has("late")
		s.at.Store(5)
		s.sync()
		time.Sleep(2 * time.Second)
		before := s.calls()
		time.Sleep(time.Minute)
		if n := s.calls() - before; n > 0 || before == 0 {
			t.Errorf("%d steps, and %d while no batch could be stored", before, n)
		}
		if s.keeper.Residue() == nil || s.keeper.Err() == nil {
			t.Error("there is nothing to tell")
		}
	})
}

func TestAScrubOfWhatIsAnothersEndsTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withResidue(t, 3, 1, func(m *memory) { m.cannot = state.ErrFenced })
		time.Sleep(5 * time.Second)
		select {
		case err := <-s.ended:
			if !errors.Is(err, state.ErrFenced) {
				t.Error(err)
			}
		default:
			t.Error("it goes on")
		}
	})
}

// A sink that is away, and blocks, holds up what is stored of changes, but not of bodies
// that are under other rules.
func TestASinkThatBlocksHoldsUpNoRules(t *testing.T) {
	for _, journalFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("the journal is folded before anything is stored: %t", journalFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const count = 2*minCompaction + storeObjects
				m, scanned := underOldRules(count), 0
				m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{info: state.LaneInfo{Position: "5"}}
				d := &desk{}
				block := setup{rules: cleaning(&scanned), change: []change{func(o *Options) { o.Fold = false }}}
				l := start(t, m, newAPIServer(), block, d)
				l.server.version = 5
				l.at.Store(5)
				if !journalFirst {
					l.store()
				}
				for range 2*count/500 + 2 { // no more than the window takes
					for range 500 {
						l.feed.Restated(thing("o1", "uid1", 5))
					}
					if l.feed.number == 0 {
						l.server.has("busy")
						l.sync()
					}
					bookmark(l)
				}
				l.store()
				v := m.view()
				if v.info.Rules != "new" {
					t.Errorf("the stored rules are %q", v.info.Rules)
				}
				if v.info.Position != "5" {
					t.Errorf("the position %q has passed what is not acknowledged", v.info.Position)
				}
				if n := l.feed.journal.length(); n > 2*minCompaction {
					t.Errorf("%d steps are held", n)
				}
				if _, stored := v.objects["shop/busy"]; stored {
					t.Error("what is not acknowledged is stored")
				}
			})
		})
	}
}
