package bridge

import (
	"fmt"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/sinks"
)

// tally counts what a lane did, for its Status: the metrics are of a sink and a resource.
// The lane's mutex guards it.
type tally struct {
	deadLetters uint64
	lastDead    time.Time
	failures    uint64
	last        *status.Error
}

func (t *tally) failed(now time.Time, err error) {
	t.last = &status.Error{Time: now.UTC(), Text: err.Error()}
}

// Status is how the lane and its sink are. What kind of sink it is the lane does not know.
func (l *Lane) Status(now time.Time) status.Sink {
	s := status.Sink{Name: l.Name(), OldestSeconds: l.Oldest(now).Seconds()}
	if f, ok := l.opts.Sink.(sinks.Failing); ok {
		failures := f.Failures()
		s.Failures = failures.Connect + failures.Lookup + failures.Resend
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Events = l.acknowledged
	s.Window = status.Window{Events: l.events, MaxEvents: l.opts.MaxEvents, Bytes: l.bytes, MaxBytes: l.opts.MaxBytes, Waiting: len(l.waiting)}
	s.BehindObjects, s.FoldedObjects = l.behindCount, l.foldedCount
	s.DeadLetters = status.DeadLetters{Events: l.tally.deadLetters, Last: l.tally.lastDead}
	s.Failures += l.tally.failures
	s.LastError = l.tally.last
	return s
}

// Oldest is the age of the oldest event that is not dealt with, or zero.
func (l *Lane) Oldest(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest time.Duration
	for _, p := range l.ports {
		if p.head != nil {
			oldest = max(oldest, now.Sub(p.head.accepted))
		}
	}
	return oldest
}

// Usage returns how much of the window is in use, and how many callers wait for room.
func (l *Lane) Usage() (bytes int64, events, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes, l.events, len(l.waiting)
}

// Err says which first snapshots have not begun: until then what changes is folded into
// them. It returns nil when all have.
func (l *Lane) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiting []string
	for _, p := range l.ports {
		if p.snapshot != nil && p.snapshot.first && !p.snapshot.began {
			waiting = append(waiting, p.resource.Name())
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return fmt.Errorf("the first snapshot has not begun of %s", strings.Join(waiting, ", "))
}

// Behind is the number of objects that the sink is behind on.
func (l *Lane) Behind() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.behindCount
}

// Lag is for how long the sink that is furthest back has not had all that the watch has
// seen: the age of the oldest change whose event is not dealt with, or the time for which
// it has been behind.
func (f *Feed) Lag(now time.Time) time.Duration {
	var lag time.Duration
	for _, p := range f.ports {
		lag = max(lag, p.lag(now))
	}
	return lag
}

func (p *Port) lag(now time.Time) time.Duration {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	var lag time.Duration
	if p.head != nil {
		lag = now.Sub(p.head.event.Time) // it may have been behind before it was accepted
	}
	if len(p.behind) > 0 {
		lag = max(lag, now.Sub(p.behindSince))
	}
	return max(lag, 0)
}

// Status is how the state is. Where it is the keeper does not know.
func (k *Keeper) Status() *status.State {
	s := &status.State{Commits: k.commits.Load(), Errors: k.failed.Load(), PendingChanges: k.Pending()}
	if at := k.committed.Load(); at != nil {
		s.LastCommit = *at
	}
	if err := k.err.Load(); err != nil {
		s.Error = (*err).Error()
	}
	return s
}

// tell shows who follows the last events how one has ended. The event is not settled yet.
func (l *Lane) tell(e *entry, now time.Time, outcome status.Outcome, reason string) {
	if !l.opts.Tail.Followed() {
		return // most of the time
	}
	ev := &e.event
	l.opts.Tail.Add(status.Event{
		Time: now.UTC(), Seconds: max(0, now.Sub(ev.Time).Seconds()),
		Sink: l.Name(), Outcome: outcome, Reason: reason,
		Type: ev.Type.String(), Resource: ev.Resource.Name(),
		// Copies: they may be parts of something larger.
		Namespace: strings.Clone(ev.Key.Namespace), Name: strings.Clone(ev.Key.Name), ResourceVersion: strings.Clone(ev.ResourceVersion),
		Snapshot: ev.Snapshot != "", Inferred: ev.Inferred,
	})
}
