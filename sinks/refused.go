package sinks

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Refused keeps why a broker does not store what it is given, by what that is for (a
// subject, a key), until it stores it: that something else is stored says nothing of it.
// The owner's lock guards it.
type Refused struct {
	keep time.Duration
	by   map[string]refused
}

type refused struct {
	err error
	at  time.Time
}

const (
	// leastKept is longer than the lane's longest pause between two attempts. What is not
	// refused again in that time is not tried any more: it is a dead letter.
	leastKept = time.Minute
	// mostRefused bounds what is kept. Beyond it the first ones stand for the others.
	mostRefused = 1024
)

// NewRefused makes an empty one for a sink whose attempts take as long as ackTimeout.
func NewRefused(ackTimeout time.Duration) Refused {
	return Refused{keep: leastKept + ackTimeout, by: map[string]refused{}}
}

// Note keeps that what is for key was refused.
func (r *Refused) Note(key string, err error, now time.Time) {
	if _, known := r.by[key]; known || len(r.by) < mostRefused {
		r.by[key] = refused{err, now}
	}
}

// Ended notes that what is for key was stored, or is not tried again.
func (r *Refused) Ended(key string) { delete(r.by, key) }

// None says that nothing was refused. It costs less than Err, and may say no though all
// of it has been given up.
func (r *Refused) None() bool { return len(r.by) == 0 }

// Err is why one of those is refused that still are, and how many more are; or nil.
func (r *Refused) Err(now time.Time) error {
	maps.DeleteFunc(r.by, func(_ string, is refused) bool { return now.Sub(is.at) > r.keep })
	if len(r.by) == 0 {
		return nil
	}
	first := r.by[slices.Min(slices.Collect(maps.Keys(r.by)))].err
	if more := len(r.by) - 1; more > 0 {
		return fmt.Errorf("%w (and %d more)", first, more)
	}
	return first
}
