package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/tracing"
	"github.com/kbridge-io/kbridge/state"
)

// Port is where one watch's deltas enter a lane. It keeps the watch's order of
// arrival, and with it the position: a resourceVersion up to which everything has
// been dealt with. One goroutine calls delta and mark.
type Port struct {
	lane      *Lane
	types     [event.Types]bool
	metrics   portMetrics
	resource  *event.Resource
	namespace string // the one that the watch is of, or empty

	// Guarded by the lane's mutex.
	head, tail *entry // entries in order of arrival, linked by after
	// How many entries have been entered, and how many of them the position has passed.
	entered, advanced uint64
	taken             uint64 // the number of the last delta that was filtered, folded or put into the window
	position          string
	newest            string // the last mark, which position follows
	torn              bool   // a delta was not taken: nothing moves past it
	// Deltas up to this version are known to the sink, save those of doubtful objects;
	// empty after the first newer one.
	resumed  string
	doubtful map[event.Key]struct{}
	// What the sink is behind on may be up to this version, which the watch has not
	// reached again: it waits for what comes before. Empty: it has. With untilListed it
	// waits for the end of a list.
	held string
	// What comes may have come to the sink from an earlier run, whose last batch did not
	// know: up to the version horizon; where that is empty, to the end of the list or the
	// first step of the watch.
	doubt   bool
	horizon string
	// Objects of which a record says that they are gone, while the index, which may be older,
	// has this state of them. The watch tells the end again; where a list comes instead, and
	// finds this very state, a restored backup has brought it back: see isBack.
	ended map[event.Key]*event.Object

	behind                  map[event.Key]*behind
	foldedCount             int       // the port's part of the lane's
	mostBehind              int       // since the map was made
	behindSince             time.Time // when the sink fell behind; of no meaning while it is not
	firstBehind, lastBehind *behind   // in order of arrival
	snapshot                *snapshot
	again                   *state.Snapshot // one that an earlier run did not complete, until one begins
	verified                *verification   // the outcome of a comparison that waits to be told

	// What the state has: deltas up to gathered are in the batch, those up to committed
	// are stored, with what the sink is behind on.
	gathered, committed uint64

	// records are the objects of which the state's record is to be written anew. Nil:
	// there is no state.
	records map[event.Key]struct{}
}

// NewPort opens a port for the events of the given types. entry is what metrics call the
// configuration's entry, namespace the one that the watch is of, empty for all.
func (l *Lane) NewPort(entry string, r *event.Resource, namespace string, types []event.Type) *Port {
	p := &Port{
		lane: l, resource: r, namespace: namespace,
		metrics: l.opts.Metrics.port(l.Name(), entry, r.Name()),
		behind:  map[event.Key]*behind{},
	}
	for _, t := range types {
		p.types[t] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports = append(l.ports, p)
	return p
}

// message is an encoded event with its buffer.
type message struct {
	event event.Event
	buf   *[]byte // nil for a marker
	size  int64   // its share of the window
	span  *tracing.Span
}

func (p *Port) encode(d *event.Delta) message {
	var m message
	format := p.lane.opts.Format
	m.span = p.lane.opts.Tracer.Begin(d.Time)
	m.event.TraceParent = m.span.TraceParent()
	m.buf = getBuffer(d.EncodedSize(format) + m.span.Size())
	if err := d.Encode(&m.event, format, *m.buf); err != nil {
		p.metrics.truncated.Inc()
		if p.lane.unreadable.CompareAndSwap(false, true) {
			p.lane.log.Error("bodies of the index can not be read: their events go out without them", "id", m.event.ID, "err", err)
		}
	}
	*m.buf = m.event.Value[:0] // the encoder may have grown it
	m.size = int64(cap(m.event.Value)) + entryOverhead
	m.span.About(p.lane.Name(), &m.event)
	return m
}

// delta brings the delta of that number on its way: into the window, or into what
// the sink is behind on. It blocks while the window is full, and returns an error
// only when ctx has ended and the delta has not been taken.
func (p *Port) delta(ctx context.Context, d *event.Delta, number uint64) error {
	l := p.lane
	l.mu.Lock()
	if len(p.ended) > 0 {
		delete(p.ended, d.Key())
	}
	if d.Snapshot != "" {
		p.awaitOwed(ctx)
	}
	if p.settled(d, number) {
		p.took(number)
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()

	m := p.encode(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.reserve(ctx, m.size)
	switch {
	case errors.Is(err, errFold):
		putBuffer(m.buf)
		p.fold(d, number)
	case err != nil:
		p.torn = true
		return err
	default:
		was := base{}
		if p.records != nil {
			was.uid, was.version = p.received(m.event.Key, d)
			if was.uid == d.Object.UID && wentBack(d.Object.ResourceVersion, was.version) {
				was.version = ""
			}
			if d.Type == event.Deleted {
				was.gone = d.Object
			}
		}
		p.enter(m, was).number = number
	}
	p.took(number)
	return nil
}

// took notes that the delta of that number is filtered, folded or in the window. What
// comes after one that was lost does not count.
func (p *Port) took(number uint64) {
	if !p.torn {
		p.taken = number
	}
}

// settled says that a delta needs no place in the window: it was filtered, folded, or
// is known. The lane's lock is held.
func (p *Port) settled(d *event.Delta, number uint64) bool {
	switch {
	case p.isBehind(d):
		p.fold(d, number)
	case !p.types[d.Type]:
		p.metrics.filteredType.Inc()
	case p.known(d):
		p.metrics.filteredKnown.Inc()
	case p.lane.folding || p.snapshot != nil && p.snapshot.first && (d.Snapshot != "" || !p.snapshot.began):
		// What comes before the sink has the marker would be missing from the snapshot.
		p.fold(d, number)
	default:
		return false
	}
	return true
}

func (p *Port) isBehind(d *event.Delta) bool {
	if len(p.behind) == 0 {
		return false // most of the time
	}
	_, is := p.behind[d.Key()]
	return is
}

// enter makes an entry of a message for which there is room. The lane's lock is held.
func (p *Port) enter(m message, was base) *entry {
	l := p.lane
	e := l.newEntry()
	e.event, e.buf, e.span, e.size, e.port, e.accepted, e.was = m.event, m.buf, m.span, m.size, p, time.Now(), was
	if p.tail == nil {
		p.head = e
	} else {
		p.tail.after = e
	}
	p.tail = e
	p.entered++
	q, busy := l.keys[e.event.Key]
	if busy {
		q.newest.next = e
	} else {
		q.oldest = e
		l.push(e)
	}
	q.newest = e
	l.keys[e.event.Key] = q
	return e
}

// mark says that the position moves to resourceVersion when everything before has
// been dealt with. A delta that made no entry thereby moves it like one that did.
func (p *Port) mark(resourceVersion string) {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	switch {
	case p.torn:
		return
	case p.tail == nil:
		p.position = resourceVersion
	default:
		p.tail.moves, p.tail.label = true, resourceVersion
	}
	p.newest = resourceVersion
	if p.held != "" && p.held != untilListed && resourceVersion != "" && reached(p.held, resourceVersion) {
		p.held = ""
		p.lane.nudge()
	}
	if p.doubt && resourceVersion != "" && (p.horizon == "" || reached(p.horizon, resourceVersion)) {
		p.doubt, p.horizon = false, ""
		p.lane.room.Broadcast() // a snapshot may wait for this
	}
}

// tear notes that a delta has been lost to the port: what comes after it, and a
// watch goes on for a while after its handler's context has ended, must not move the
// position past it.
func (p *Port) tear() {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	p.torn = true
}

// advance moves the position over what has been dealt with without a gap. The
// lane's lock is held.
func (p *Port) advance() {
	for e := p.head; e != nil && e.dealt; e = p.head {
		if e.moves {
			p.position = e.label
		}
		if p.head = e.after; p.head == nil {
			p.tail = nil
		}
		p.lane.events--
		p.advanced++
		e.event = event.Event{}
		e.after, p.lane.free = p.lane.free, e
	}
	p.tellVerified()
}

// Position is the resourceVersion up to which everything has been dealt with, or
// empty: nothing has been yet, or a list is on its way.
func (p *Port) Position() string {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return p.position
}
