package bridge

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/state"
)

// scrubber has what the keeper knows of the store's residue: values that stay where they
// are stored although the watch that had them is gone, or its rules are others.
type scrubber struct {
	residue atomic.Pointer[state.Residue] // nil: the store was not asked yet
	err     atomic.Pointer[error]         // of the last attempt to remove it
	errors  prometheus.Counter
	steps   attempts
	began   time.Time // the first step; zero: there was none
}

// longestScrubPause is how long it may take until what failed is tried again.
const longestScrubPause = time.Minute

func newScrubber(reg prometheus.Registerer) *scrubber {
	s := &scrubber{
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kbridge_state_scrub_errors_total",
			Help: "Attempts to remove values of earlier rules from the state that failed, and are repeated.",
		}),
		steps: attempts{every: gatherEvery, longest: longestScrubPause},
	}
	reg.MustRegister(s.errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kbridge_state_residue_seconds",
		Help: "For how long the state has had values of earlier rules, or of watches that are gone; 0: it has none.",
	}, s.age))
	return s
}

// age is for how long there has been residue, in seconds.
func (s *scrubber) age() float64 {
	if r := s.residue.Load(); r != nil && !r.Since.IsZero() {
		return time.Since(r.Since).Seconds()
	}
	return 0
}

// look asks the store for its residue, where it has not said that there is none: only
// Retain, which comes before, makes new one. The keeper's lock is held.
func (s *scrubber) look(store state.Store) error {
	if r := s.residue.Load(); r != nil && r.Since.IsZero() {
		return nil
	}
	r, err := store.Residue()
	if err != nil {
		return err
	}
	s.residue.Store(&r)
	return nil
}

// scrub removes a part of the residue, if all that is to be stored anew is. Batches are
// written in between.
func (k *Keeper) scrub() error {
	s := k.scrubber
	if r := s.residue.Load(); r != nil && r.Since.IsZero() || k.err.Load() != nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !s.steps.due() {
		return nil
	}
	err := s.step(k)
	s.steps.took(err)
	if err == nil {
		s.err.Store(nil)
		return nil
	}
	s.errors.Inc()
	if s.err.Swap(&err) == nil {
		k.log.Warn("values of earlier rules can not be removed from the state: it is tried again", "err", err)
	}
	return fmt.Errorf("scrub the state: %w", err)
}

func (s *scrubber) step(k *Keeper) error {
	if err := s.look(k.store); err != nil {
		return err
	}
	r := s.residue.Load()
	if r.Since.IsZero() || len(r.Views) > 0 {
		return nil
	}
	if s.began.IsZero() {
		s.began = time.Now()
		k.log.Info("values of earlier rules, or of watches that are gone, are being removed from the state", "since", r.Since)
	}
	done, err := k.store.Scrub()
	if err != nil || !done {
		return err
	}
	s.residue.Store(&state.Residue{})
	k.log.Info("the state has no values of earlier rules any more", "took", time.Since(s.began).Round(time.Millisecond))
	return nil
}

// Residue is why the state still has values that it is not to have, or nil.
func (k *Keeper) Residue() error {
	r := k.scrubber.residue.Load()
	if r == nil || r.Since.IsZero() {
		return nil
	}
	why := errors.New("they are being removed")
	if err := k.scrubber.err.Load(); err != nil {
		why = *err
	} else if len(r.Views) > 0 {
		var names []string
		for _, id := range r.Views {
			names = append(names, strings.TrimRight(string(id), "|"))
		}
		why = fmt.Errorf("not all of %s is stored under the rules that hold now", strings.Join(names, ", "))
	}
	return fmt.Errorf("values of earlier rules, or of watches that are gone, are still in the file, since %s: %w", r.Since.Format(time.RFC3339), why)
}

// attempts says when something is to be done again: when every has passed, and after twice
// as long with each failure.
type attempts struct {
	every, longest time.Duration
	last           time.Time
	failures       int
}

func (a *attempts) pause() time.Duration { return min(a.every<<min(a.failures, 20), a.longest) }

func (a *attempts) due() bool { return time.Since(a.last) >= a.pause() }

// took notes that it was done, and whether it failed.
func (a *attempts) took(err error) {
	a.last = time.Now()
	if a.failures++; err == nil {
		a.failures = 0
	}
}
