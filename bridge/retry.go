package bridge

import (
	"container/heap"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/kbridge-io/kbridge/internal/plural"
)

// Pauses between the attempts for one event: they double from the first to the
// longest. An event waits by itself: what one subject or partition refuses does not
// hold up another.
const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 5 * time.Second
)

// backoff is the pause before the next attempt after so many failed ones, between
// half of it and all of it at random.
func backoff(attempts int) time.Duration {
	d := longestBackoff
	if shift := attempts - 1; shift < 6 {
		d = min(d, firstBackoff<<shift)
	}
	return d/2 + rand.N(d/2)
}

// Poison says when an event that fails again and again is given up: when it has failed
// so often, and for so long, while others of the sink were acknowledged. Without attempts
// none is. An outage of the whole sink is no reason to give anything up.
type Poison struct {
	Attempts int
	After    time.Duration
}

// suspicion is that an event, and not its sink, is why it fails.
type suspicion struct {
	failed       bool
	acknowledged uint64 // events of the lane when it failed last
	count        int    // of its failures since which others were acknowledged
	since        time.Time
}

// fail notes a failure, and says whether others were acknowledged since the one before.
func (s *suspicion) fail(acknowledged uint64, now time.Time) bool {
	counts := s.failed && acknowledged > s.acknowledged
	s.failed, s.acknowledged = true, acknowledged
	if counts {
		if s.count++; s.count == 1 {
			s.since = now
		}
	}
	return counts
}

// poisoned notes that an entry has failed, and returns why it is to be given up, or nil.
// The lane's lock is held.
func (l *Lane) poisoned(e *entry, now time.Time, err error) error {
	s, p := &e.suspect, l.opts.Poison
	counts := s.fail(l.acknowledged, now)
	if !counts || p.Attempts == 0 || s.count < p.Attempts || now.Sub(s.since) < p.After {
		return nil
	}
	return &poisonError{s.count, now.Sub(s.since), err}
}

// poisonError is why an event was given up.
type poisonError struct {
	attempts int
	after    time.Duration
	last     error
}

func (e *poisonError) Error() string {
	return fmt.Sprintf("failed %s in %s while other events were acknowledged: %v", plural.Of(e.attempts, "time"), e.after.Round(time.Second), e.last)
}

func (e *poisonError) Unwrap() error { return e.last }

// retryQueue holds the entries that wait for their next attempt, soonest first.
// The lane's mutex guards it.
type retryQueue struct{ entries byDue }

func (q *retryQueue) add(e *entry) { heap.Push(&q.entries, e) }

func (q *retryQueue) first() *entry {
	if len(q.entries) == 0 {
		return nil
	}
	return q.entries[0]
}

// due takes out the next entry whose time has come, or returns nil.
func (q *retryQueue) due(now time.Time) *entry {
	if e := q.first(); e == nil || e.due.After(now) {
		return nil
	}
	return heap.Pop(&q.entries).(*entry)
}

// pause is how long nothing is due.
func (q *retryQueue) pause(now time.Time) time.Duration {
	if e := q.first(); e != nil {
		return e.due.Sub(now)
	}
	return time.Hour
}

// byDue implements heap.Interface.
type byDue []*entry

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }
func (b byDue) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }
func (b *byDue) Push(x any)        { *b = append(*b, x.(*entry)) }
func (b *byDue) Pop() any {
	last := len(*b) - 1
	e := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return e
}

// outage logs a sink's failures: the first of a row and every logEvery another one,
// and the end of a row that was logged. A row lasts until all that failed in it was
// acknowledged or given up. Rows that follow each other sooner are told once in
// logEvery. The lane's mutex guards it.
type outage struct {
	began   time.Time
	logged  time.Time
	count   int
	failing int  // events that have failed and are not dealt with
	told    bool // a failure of this row was logged
}

const logEvery = 30 * time.Second

func (o *outage) failed(log *slog.Logger, now time.Time, err error, e *entry) {
	if o.count == 0 {
		o.began = now
	}
	o.count++
	if e.attempts == 0 {
		o.failing++
	}
	if now.Sub(o.logged) >= logEvery {
		o.logged, o.told = now, true
		log.Warn("publish failed, trying again", "id", e.event.ID, "attempt", e.attempts+1, "failures", o.count, "err", err)
	}
}

// dealt notes that an event is acknowledged or given up.
func (o *outage) dealt(e *entry) {
	if e.attempts > 0 {
		o.failing--
	}
}

// acknowledged ends the row if nothing of it is left: that some other event passes does
// not mean that those do which failed.
func (o *outage) acknowledged(log *slog.Logger) {
	if o.count == 0 || o.failing > 0 {
		return
	}
	if o.told {
		log.Info("published again after failures", "failures", o.count, "after", time.Since(o.began).Round(time.Millisecond))
	}
	o.count, o.told = 0, false
}
