package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// Feed hands the deltas of one watch to the lanes of all its sinks, one after the
// other, and knows from their answers what of the watch can be stored. One goroutine
// calls Delta, Position and the List methods.
type Feed struct {
	id      state.ViewID
	ports   []*Port
	journal *journal // nil: there is no state
	number  uint64   // of the last delta
	settled uint64   // of the last one that all ports were done with when they were asked; the keeper's
	index   Index
}

// NewFeed makes the feed of a watch that nothing is remembered of.
func NewFeed(index Index, ports ...*Port) *Feed { return &Feed{index: index, ports: ports} }

// Delta implements informer.Handler.
func (f *Feed) Delta(ctx context.Context, d *event.Delta) error {
	f.number++
	if f.journal != nil {
		f.journal.note(f.number, d)
	}
	for i, p := range f.ports {
		if err := p.delta(ctx, d, f.number); err != nil {
			for _, later := range f.ports[i:] {
				later.tear()
			}
			return err
		}
	}
	return nil
}

// Position implements informer.Handler.
func (f *Feed) Position(resourceVersion string) {
	if f.journal != nil {
		f.journal.label(f.number, resourceVersion)
	}
	for _, p := range f.ports {
		p.mark(resourceVersion)
	}
}

// Resumes implements informer.Handler: what comes up to resourceVersion may have come
// before.
func (f *Feed) Resumes(resourceVersion string) {
	for _, p := range f.ports {
		p.lane.mu.Lock()
		if p.doubt && said(p.newest, resourceVersion) {
			p.doubt, p.held = false, "" // the watch has nothing to tell again
			p.lane.nudge()
			p.lane.room.Broadcast()
		} else if p.doubt { // not so a sink that is new
			p.horizon = resourceVersion
			if len(p.behind) > 0 {
				p.held = resourceVersion
			}
			time.AfterFunc(doubtLimit, p.trust)
		}
		p.lane.mu.Unlock()
	}
}

// untilListed holds what a sink is behind on until a list has been compared with the index,
// which is older than the records: what is there of an object, and is not what the sink is
// known to have had, may be what came before that.
const untilListed = "listed"

// said says that a watch from that position begins behind what the server has now.
func said(position, now string) bool {
	c, ok := event.CompareVersions(position, now)
	return position != "" && (ok && c >= 0 || position == now)
}

// doubtLimit is for how long a quiet watch may take to say that it has reached what
// the server had at the start. An API server sends a bookmark a minute.
const doubtLimit = 2 * time.Minute

// trust ends the doubt, and lets go what waits for it.
func (p *Port) trust() {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	p.doubt, p.horizon, p.held = false, "", ""
	p.lane.nudge()
	p.lane.room.Broadcast()
}

// ListBegins implements informer.Handler: the items of a list come in any order, so
// until its end the position is void. snapshot is the id of the first snapshot where
// this is the watch's first list, else empty.
func (f *Feed) ListBegins(snapshot string) {
	f.Position("")
	for _, p := range f.ports {
		p.lane.mu.Lock()
		p.resumed = "" // what a list finds is compared with the index alone
		if p.held != "" {
			p.held = untilListed
		}
		if snapshot != "" && p.snapshot == nil {
			p.beginSnapshot(snapshot, true, 0)
		}
		p.lane.mu.Unlock()
	}
}

// ListEnds implements informer.Handler.
func (f *Feed) ListEnds(resourceVersion string) {
	if f.journal != nil {
		f.journal.listed(f.number)
	}
	f.Position(resourceVersion)
	for _, p := range f.ports {
		p.endList(resourceVersion, f.number)
	}
}

// Moves implements informer.Handler.
func (f *Feed) Moves(r *event.Resource) {
	f.Position("")
	if f.journal != nil {
		f.journal.becomes(f.number, r.Version)
	}
	for _, p := range f.ports {
		p.lane.mu.Lock()
		p.resource = r
		p.lane.mu.Unlock()
	}
}

// Restated implements informer.Handler: the index has another body for the same state
// of an object, because other paths are dropped now.
func (f *Feed) Restated(o *event.Object) {
	if f.journal != nil {
		f.journal.restate(f.number, o)
	}
}

// Sinks implements informer.Handler.
func (f *Feed) Sinks() []string {
	var sinks []string
	for _, p := range f.ports {
		if p.types[event.Synced] {
			sinks = append(sinks, p.lane.Name())
		}
	}
	return sinks
}

// Snapshot implements informer.Handler.
func (f *Feed) Snapshot(ctx context.Context, sink, id string) error {
	for _, p := range f.ports {
		if p.lane.Name() == sink {
			return p.walk(ctx, id, f.index)
		}
	}
	return fmt.Errorf("BUG: a snapshot for sink %s, which does not take %s", sink, f.id)
}
