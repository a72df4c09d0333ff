package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// snapshot is one that is under way for a port: a first one, which announces what the
// sink has never received, or one that says again what is there. The lane's mutex
// guards it.
type snapshot struct {
	id    string
	first bool
	// The marker waits for the state to have the snapshot: see beginSnapshot.
	gathered, announced bool
	began               bool   // the sink has the marker
	open                int    // events that are owed or under way
	sent                int    // events that are acknowledged
	listed              bool   // nothing more will be owed
	version             string // of the list that it is from
	done                chan struct{}
	patience            time.Duration // for which its list may still wait
	waits               bool          // its list waits
}

// Index is what a handler can ask of the watch it takes deltas from.
type Index interface {
	// Keys are the keys of all objects that are there.
	Keys() []string
	// With calls do with the object of that key, or nil, while no delta is made.
	With(key string, do func(*event.Object))
	// Keep returns an object that the state has as the index will keep it: its body may
	// be put aside.
	Keep(o *event.Object) *event.Object
	// Stored says that the state has these objects, by key, nil where one is gone. The
	// map is the index's from here on. It does not block.
	Stored(objects map[string]*event.Object)
}

// beginSnapshot begins a snapshot. The marker of a first one goes out when the state has
// it: a kill would make it begin anew under another id, with events whose ids a broker
// knows and drops, and a consumer that sweeps at its end would drop what is there. The
// lane's lock is held.
func (p *Port) beginSnapshot(id string, first bool, sent int) *snapshot {
	p.snapshot = &snapshot{id: id, first: first, sent: sent, done: make(chan struct{}), patience: listPatience}
	p.again = nil
	if !first || p.records == nil {
		p.announce()
	}
	return p.snapshot
}

// awaits says that the port's snapshot waits for the state.
func (p *Port) awaits() bool {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	return p.snapshot != nil && !p.snapshot.announced
}

// announce sends the marker that the port's snapshot begins, once.
func (p *Port) announce() {
	p.snapshot.announced = true
	p.marker(event.SnapshotStarted)
}

// marker puts a marker into the window, beyond its bounds if need be: there are two
// of them a snapshot.
func (p *Port) marker(t event.Type) {
	s := p.snapshot
	m := event.Marker{Type: t, Resource: p.resource, Namespace: p.namespace, Snapshot: s.id, Count: s.sent, ResourceVersion: s.version, Time: time.Now()}
	var msg message
	m.Encode(&msg.event, p.lane.opts.Format)
	p.putMarker(msg).snapshot = s
}

// putMarker puts an encoded marker into the window, beyond its bounds if need be.
func (p *Port) putMarker(m message) *entry {
	m.size = int64(cap(m.event.Value)) + entryOverhead
	p.lane.bytes += m.size
	p.lane.events++
	e := p.enter(m, base{})
	e.recorded = true // the state has what it is of, or can do without
	return e
}

// mayGo says that what the port is behind on may be sent: the marker of a first
// snapshot has to arrive before its events, and what the watch says again before what
// is newer.
func (p *Port) mayGo() bool {
	return p.held == "" && (p.snapshot == nil || !p.snapshot.first || p.snapshot.began)
}

// snapshotLess notes that an event which was owed to the snapshot will not come: the
// object has gone, or its type is not sent.
func (p *Port) snapshotLess() {
	if p.snapshot != nil {
		p.snapshot.open--
		p.completeSnapshot()
	}
}

// snapshotEvent notes that an event of a snapshot, or one of its markers, is dealt
// with. The lane's lock is held.
func (p *Port) snapshotEvent(e *entry, acknowledged bool) {
	s := e.snapshot
	switch e.event.Type {
	case event.SnapshotStarted:
		s.began = true
		p.lane.nudge()
	case event.SnapshotCompleted:
		if p.snapshot == s {
			p.snapshot = nil
		}
		close(s.done)
		return
	default:
		s.open--
		if acknowledged {
			s.sent++
		}
	}
	p.completeSnapshot()
}

// A list waits while so many of its objects are owed, each of which takes ten times as
// much memory as in the index: for listStall while the sink takes none of them, and for
// listPatience in all, since other sinks wait with it. Then all the rest is owed.
const (
	maxOwed      = 4_000
	listStall    = 5 * time.Second
	listPatience = 30 * time.Second
)

// awaitOwed waits until less is owed to the first snapshot, if the sink is quick enough.
// The lane's lock is held, but not while it waits.
func (p *Port) awaitOwed(ctx context.Context) {
	l, s := p.lane, p.snapshot
	if s == nil || !s.first || s.open < maxOwed || s.patience <= 0 || l.folding {
		return
	}
	wake := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	}
	defer context.AfterFunc(ctx, wake)()
	began, limit := time.Now(), min(listStall, s.patience)
	defer time.AfterFunc(limit, wake).Stop()
	s.waits = true
	for s.open > maxOwed/2 && p.snapshot == s && !l.folding && ctx.Err() == nil && time.Since(began) < limit {
		l.room.Wait()
	}
	s.waits = false
	if s.patience -= time.Since(began); s.open > maxOwed/2 {
		s.patience = 0
	}
}

// completeSnapshot sends the closing marker when everything before it has arrived.
func (p *Port) completeSnapshot() {
	if s := p.snapshot; s != nil && s.waits && s.open <= maxOwed/2 {
		p.lane.room.Broadcast()
	}
	if s := p.snapshot; s != nil && s.began && s.listed && s.open == 0 {
		s.open = -1 // once
		p.marker(event.SnapshotCompleted)
	}
}

// endList says that the list which a first snapshot is of has been handed over.
func (p *Port) endList(resourceVersion string, number uint64) {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	p.doubt, p.horizon, p.held = false, "", ""
	p.isBack(number)
	p.lane.nudge()
	p.lane.room.Broadcast() // a snapshot may wait for this
	if s := p.snapshot; s != nil && s.first && !s.listed {
		s.listed, s.version = true, resourceVersion
		p.completeSnapshot()
	}
}

// ErrSnapshotUnderWay says that a sink has a snapshot under way, a first one perhaps,
// and gets no other one beside it.
var ErrSnapshotUnderWay = errors.New("a snapshot is under way")

// walk says again what is there: an event for each object, with its state at its
// turn, at the pace that half of the window allows. It returns when the closing
// marker is acknowledged, or ctx has ended, or at once with ErrSnapshotUnderWay.
func (p *Port) walk(ctx context.Context, id string, index Index) error {
	l := p.lane
	l.mu.Lock()
	err := p.awaitCertainty(ctx)
	if err == nil && p.snapshot != nil {
		err = ErrSnapshotUnderWay
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	s := p.beginSnapshot(id, false, 0)
	s.version = p.position
	l.mu.Unlock()
	// What changes before the sink has the marker is not to be missing from the snapshot.
	if err := l.awaitShare(ctx, s, 0); err != nil {
		return err
	}
	var pace pace
	for _, key := range index.Keys() {
		if err := pace.keep(ctx); err != nil {
			return err
		}
		var share int64 // of the object's event, in bytes
		for sent := false; !sent; {
			if err := l.awaitShare(ctx, s, share); err != nil {
				return err
			}
			pace.begin()
			index.With(key, func(o *event.Object) {
				if sent = o == nil; !sent {
					sent, share = p.say(o, s)
				}
			})
			pace.end()
		}
	}
	l.mu.Lock()
	s.listed = true
	p.completeSnapshot()
	l.mu.Unlock()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pace leaves most of a processor to live changes while a snapshot is walked.
type pace struct {
	began time.Time
	spent time.Duration // since the last pause
}

const (
	paceAfter = time.Millisecond // of work
	paceRest  = 2                // times that is the pause
)

func (p *pace) begin() { p.began = time.Now() }
func (p *pace) end()   { p.spent += time.Since(p.began) }

// keep pauses where enough has been done, and returns an error when ctx has ended.
func (p *pace) keep(ctx context.Context) error {
	if p.spent < paceAfter {
		return nil
	}
	rest := time.NewTimer(min(paceRest*p.spent, time.Second))
	defer rest.Stop()
	p.spent = 0
	select {
	case <-rest.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitCertainty waits, after a start, until the watch has told again what the sink
// may have had already: a walk of an index that is older than the sink would bring
// back what it knows to be gone. The lane's lock is held, but not while it waits.
func (p *Port) awaitCertainty(ctx context.Context) error {
	l := p.lane
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	})
	defer stop()
	for (p.doubt || p.held != "") && ctx.Err() == nil {
		l.room.Wait()
	}
	return ctx.Err()
}

// say puts an object's state into the window as part of a snapshot, and returns whether
// there was room, and what it takes.
func (p *Port) say(o *event.Object, s *snapshot) (said bool, share int64) {
	l := p.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	share = p.share(o)
	if !l.fits(share) || l.behindCount > 0 {
		return false, share
	}
	s.open++
	p.put(&event.Delta{Type: event.Synced, Resource: p.resource, Object: o, Snapshot: s.id, Time: time.Now()},
		base{uid: o.UID, version: o.ResourceVersion})
	return true, share
}

// stored is the snapshot as the state keeps it, or nil. The lane's lock is held.
func (s *snapshot) stored() *state.Snapshot {
	if s == nil {
		return nil
	}
	return &state.Snapshot{ID: s.id, First: s.first, Sent: s.sent}
}
