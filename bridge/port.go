package bridge

import (
	"context"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// Port is where one watch's deltas enter a lane. It keeps the watch's order of
// arrival, and with it the position: a resourceVersion up to which everything has
// been dealt with. One goroutine calls Delta and Position.
type Port struct {
	lane     *Lane
	types    [event.Synced + 1]bool
	metrics  portMetrics
	resource *event.Resource

	// Guarded by the lane's mutex.
	head, tail *entry // entries in order of arrival, linked by after
	position   string
	torn       bool // a delta was not taken: the position stays before it
}

// NewPort opens a port for the events of the given types.
func (l *Lane) NewPort(r *event.Resource, types []event.Type) *Port {
	p := &Port{lane: l, resource: r, metrics: l.opts.Metrics.port(l.Name(), r.Name())}
	for _, t := range types {
		p.types[t] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports = append(l.ports, p)
	return p
}

// delta filters and encodes a delta and puts it into the lane's window. It blocks
// while the window is full, and returns an error only when ctx has ended and the
// delta has not been taken.
func (p *Port) delta(ctx context.Context, d *event.Delta) error {
	if !p.types[d.Type] {
		p.metrics.filteredType.Inc()
		return nil
	}
	l := p.lane
	var ev event.Event
	need := d.EncodedSize(l.opts.Format)
	var buf *[]byte
	if l.opts.Format == event.Structured || d.Resource.Change {
		buf = getBuffer(need)
		d.Encode(&ev, l.opts.Format, *buf)
		*buf = ev.Value[:0] // the encoder may have grown it
	} else {
		d.Encode(&ev, l.opts.Format, nil)
	}
	size := int64(cap(ev.Value)) + entryOverhead
	now := time.Now()

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.reserve(ctx, size); err != nil {
		return err
	}
	e := l.newEntry()
	e.event, e.buf, e.size, e.port, e.accepted = ev, buf, size, p, now
	if p.tail == nil {
		p.head = e
	} else {
		p.tail.after = e
	}
	p.tail = e
	if before, busy := l.keys[ev.Key]; busy {
		before.next = e
	} else {
		l.push(e)
	}
	l.keys[ev.Key] = e
	return nil
}

// mark says that the position moves to resourceVersion when everything before has
// been dealt with. A delta that made no entry thereby moves it like one that did.
func (p *Port) mark(resourceVersion string) {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	switch {
	case p.torn:
	case p.tail == nil:
		p.position = resourceVersion
	default:
		p.tail.moves, p.tail.label = true, resourceVersion
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
		e.event = event.Event{}
		e.after, p.lane.free = p.lane.free, e
	}
}

// Position is the resourceVersion up to which everything has been dealt with, or
// empty: nothing has been yet, or a list is on its way.
func (p *Port) Position() string {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return p.position
}

// Feed hands the deltas of one watch to the lanes of all its sinks, one after the
// other: a lane without room makes them all wait.
type Feed []*Port

// Delta implements informer.Handler.
func (f Feed) Delta(ctx context.Context, d *event.Delta) error {
	for i, p := range f {
		if err := p.delta(ctx, d); err != nil {
			for _, missed := range f[i:] {
				missed.tear()
			}
			return err
		}
	}
	return nil
}

// Position implements informer.Handler.
func (f Feed) Position(resourceVersion string) {
	for _, p := range f {
		p.mark(resourceVersion)
	}
}
