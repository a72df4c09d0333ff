// Package bridge owns the way from deltas to acknowledgements. Each sink has a
// lane: a window bounded in bytes, one message under way per object, all retries,
// the dead letters, and the positions up to which each watch has been dealt with.
// It knows neither the API server nor any broker.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/internal/tracing"
	"github.com/kbridge-io/kbridge/sinks"
)

// Options say what a lane serves and how much it may hold.
type Options struct {
	Sink   sinks.Sink
	Format event.Format
	// MaxBytes bounds what the lane holds, its own bookkeeping included. One event
	// that is larger by itself passes alone.
	MaxBytes int64
	// MaxEvents bounds the number of events that are not dealt with, and of those
	// behind them that are.
	MaxEvents int
	// Fold lets the sink fall behind by itself when its window has been full for
	// FoldAfter: changes are then folded into what it is behind on. Without it the
	// callers wait.
	Fold      bool
	FoldAfter time.Duration
	// Truncate sends events that are larger than the broker takes without their body.
	Truncate    bool
	Poison      Poison
	DeadLetters sinks.DeadLetters
	Tracer      *tracing.Tracer // nil: no event is traced
	Metrics     *Metrics
	// Tail gets the metadata of what was dealt with while somebody follows it; nil: it does
	// not.
	Tail *status.Tail
	Log  *slog.Logger
}

// Lane brings events to one sink. Informers hand deltas to its ports; Run publishes.
type Lane struct {
	opts    Options
	metrics laneMetrics
	log     *slog.Logger
	trail   *trail
	wake    chan struct{} // something is ready; holds one token
	refused chan struct{} // something is in dead; holds one token
	// unreadable says that a body could not be read, and that it was logged.
	unreadable atomic.Bool

	mu      sync.Mutex
	room    sync.Cond // the window has shrunk, or a waiter's context has ended
	ports   []*Port
	keys    map[event.Key]chain
	ready   []*entry // may be published now
	spare   []*entry // ready's other half: Run works on one, ports fill the other
	dead    []*entry // refused for good or given up, and not in the dead letters yet
	retries retryQueue
	free    *entry // entries to use again, linked by after
	bytes   int64
	events  int      // in the ports' queues
	ticket  uint64   // the last one that was drawn
	waiting []uint64 // the tickets of those that wait for room, in order
	walkers int      // snapshots that wait for a share of the window
	shared  int      // events in the window that a snapshot or a pump put there
	outage  outage
	// acknowledged is how many events were.
	acknowledged uint64
	tally        tally
	// unannounced are the snapshots whose first marker is a dead letter, with why.
	unannounced map[*snapshot]error

	closing     bool // what the sink is behind on is left for the next start
	folding     bool
	fullSince   time.Time // when the window was full first and has not been half empty since
	behindCount int       // objects that the ports are behind on
	foldedCount int       // of these, those that are not owed to a first snapshot
	turn        int       // the port whose turn it is
}

// chain is the open entries of one object, linked by next.
type chain struct{ oldest, newest *entry }

// entry is one event on its way. The lane's mutex guards it, but for event, which
// is the sink's to read from Publish to done.
type entry struct {
	event    event.Event
	buf      *[]byte // the encoded body's buffer, nil for a marker
	span     *tracing.Span
	size     int64 // its share of the window in bytes
	port     *Port
	next     *entry // the same object's next event, which waits for this one
	after    *entry // the port's next entry, in order of arrival
	attempts int
	suspect  suspicion
	due      time.Time // of the next attempt
	accepted time.Time
	number   uint64 // of the delta; zero where it stands for none or several
	was      base   // what the sink has of the object before
	recorded bool   // the state knows that the sink is behind on the object
	snapshot *snapshot
	shared   bool   // it is of a snapshot, or of what the sink was behind on
	dealt    bool   // acknowledged or dead-lettered
	moves    bool   // the position moves to label when all up to here is dealt with
	label    string // a resourceVersion, or empty for a void position
	reason   error  // why it was refused for good or given up
	done     func(error)
}

// entryOverhead is what an entry takes beside its body, in bytes.
const entryOverhead = 512

// NewLane makes a lane. It does nothing before Run.
func NewLane(o Options) *Lane {
	l := &Lane{
		opts:    o,
		log:     o.Log.With("sink", o.Sink.Name()),
		wake:    make(chan struct{}, 1),
		refused: make(chan struct{}, 1),
		keys:    map[event.Key]chain{},

		unannounced: map[*snapshot]error{},
	}
	l.trail = newTrail(l.log)
	l.room.L = &l.mu
	l.metrics = o.Metrics.lane(l)
	return l
}

// Name is the sink's name.
func (l *Lane) Name() string { return l.opts.Sink.Name() }

// Run publishes until ctx ends and returns when nothing of it runs any more. What
// is not acknowledged then stays in the window: see Drain.
func (l *Lane) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { l.bury(ctx) })
	if l.trail != nil {
		running.Go(func() { l.trail.run(ctx) })
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		for _, e := range l.take(ctx, timer) {
			if ctx.Err() != nil {
				break // what is left of the batch stays in the window
			}
			if !l.withhold(e) {
				e.span.Attempt()
				l.opts.Sink.Publish(ctx, &e.event, e.done)
			}
		}
	}
	return nil
}

// take waits for entries that may be published, and returns nil when ctx ends.
func (l *Lane) take(ctx context.Context, timer *time.Timer) []*entry {
	for ctx.Err() == nil {
		l.mu.Lock()
		l.pump()
		now := time.Now()
		for e := l.retries.due(now); e != nil; e = l.retries.due(now) {
			l.ready = append(l.ready, e)
		}
		if len(l.ready) > 0 {
			batch := l.ready
			l.ready, l.spare = l.spare[:0], batch
			l.mu.Unlock()
			return batch
		}
		pause := l.retries.pause(now)
		l.mu.Unlock()
		timer.Reset(pause)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// push makes e ready. The lock is held.
func (l *Lane) push(e *entry) {
	l.ready = append(l.ready, e)
	l.nudge()
}

// nudge wakes Run, which may be waiting for something to do.
func (l *Lane) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // it has not taken the last one yet
	}
}

// errFold says that the sink falls behind: the delta is to be folded.
var errFold = errors.New("the sink falls behind")

// full says that the window has no room for size bytes more.
func (l *Lane) full(size int64) bool {
	return l.events >= l.opts.MaxEvents || l.bytes+size > l.opts.MaxBytes && l.bytes > 0
}

// reserve waits until the window has room for size bytes and counts them in. Who
// comes first gets room first, or small events would keep a large one out for ever.
// It returns errFold when the sink is to fall behind instead. The lock is held before
// and after, but not in between.
func (l *Lane) reserve(ctx context.Context, size int64) error {
	if len(l.waiting) > 0 || l.full(size) {
		if err := l.await(ctx, size); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("hand an event to sink %s: %w", l.Name(), context.Cause(ctx))
	}
	l.bytes += size
	l.events++
	return nil
}

// await waits for room, for the end of ctx, or until the sink falls behind.
func (l *Lane) await(ctx context.Context, size int64) error {
	wake := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	}
	defer context.AfterFunc(ctx, wake)()
	if l.fullSince.IsZero() {
		l.fullSince = time.Now()
	}
	if l.opts.Fold {
		timer := time.AfterFunc(time.Until(l.fullSince.Add(l.opts.FoldAfter)), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if since := l.fullSince; !since.IsZero() && time.Since(since) >= l.opts.FoldAfter && len(l.waiting) > 0 {
				l.beginFolding()
			}
		})
		defer timer.Stop()
	}
	l.ticket++
	ticket := l.ticket
	l.waiting = append(l.waiting, ticket)
	for (l.waiting[0] != ticket || l.full(size)) && !l.folding && ctx.Err() == nil {
		l.room.Wait()
	}
	i := slices.Index(l.waiting, ticket)
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.room.Broadcast() // the next one may have room too
	if l.folding && ctx.Err() == nil {
		return errFold
	}
	return nil
}

// newEntry returns an empty entry. The lock is held.
func (l *Lane) newEntry() *entry {
	e := l.free
	if e == nil {
		e = &entry{}
		e.done = func(err error) { l.answered(e, err) }
		return e
	}
	l.free = e.after
	*e = entry{done: e.done}
	return e
}

// answered is the sink's answer for one entry. It may come from any goroutine and
// from within Publish.
func (l *Lane) answered(e *entry, err error) {
	now := time.Now()
	if err == nil {
		// Counted before the lock: from here on the event is the broker's.
		e.port.metrics.published[e.event.Type].Inc()
		l.metrics.latency.Observe(now.Sub(e.event.Time).Seconds())
		l.trail.published(&e.event, e.attempts, now)
		l.tell(e, now, status.Acknowledged, "")
		e.span.Acknowledged()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.acknowledged++
		l.settle(e, true)
		l.outage.acknowledged(l.log)
	case errors.Is(err, sinks.ErrPermanent):
		if l.opts.Truncate && errors.Is(err, sinks.ErrTooLarge) && !e.event.Truncated && l.truncate(e) {
			return
		}
		l.tally.failed(now, err)
		l.giveUp(e, err)
	default:
		l.metrics.failures.Inc()
		l.tally.failures++
		l.tally.failed(now, err)
		e.span.Failed(err)
		l.outage.failed(l.log, now, err, e)
		e.attempts++
		if poison := l.poisoned(e, now, err); poison != nil {
			l.giveUp(e, poison)
			return
		}
		e.due = now.Add(backoff(e.attempts))
		l.retries.add(e)
		if l.retries.first() == e {
			l.nudge()
		}
	}
}

// truncate sends an entry again without its object's body, and returns false if it
// can not. The lock is held.
func (l *Lane) truncate(e *entry) bool {
	if err := e.event.Truncate(); err != nil {
		l.log.Error("an event can not be truncated", "id", e.event.ID, "err", err)
		return false
	}
	e.port.metrics.truncated.Inc()
	l.push(e)
	return true
}

// settle takes an entry that has been dealt with out of the window, lets the next
// event of its object go, and moves the port's position. The lock is held.
func (l *Lane) settle(e *entry, acknowledged bool) {
	p, key := e.port, e.event.Key
	e.dealt = true
	l.outage.dealt(e)
	if e.next == nil {
		delete(l.keys, key)
	} else {
		l.keys[key] = chain{e.next, l.keys[key].newest}
		l.push(e.next)
	}
	// Of what is only said again the state has no record.
	if e.recorded && e.event.Type < event.Synced || e.next != nil && e.next.recorded {
		p.touch(key)
	}
	e.next = nil
	l.bytes -= e.size
	if e.shared {
		l.shared--
	}
	if e.buf != nil {
		putBuffer(e.buf)
		e.buf = nil
	}
	e.event.Value, e.span = nil, nil
	if e.snapshot != nil {
		p.snapshotEvent(e, acknowledged)
		e.snapshot = nil
	}
	p.advance()
	if !l.fullSince.IsZero() && !l.folding && l.hasShare() {
		l.fullSince = time.Time{}
	}
	if (l.behindCount > 0 || l.folding) && l.hasShare() {
		l.nudge()
	}
	if len(l.waiting) > 0 || l.walkers > 0 || l.events == 0 {
		l.room.Broadcast()
	}
}
