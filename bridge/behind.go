package bridge

import (
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// behind is one object that the sink is behind on: what the sink last received of
// it, and what is true now. Whatever happens in between is folded into it, so there
// are no more of them than objects. The lane's mutex guards it.
type behind struct {
	key  event.Key
	port *Port
	// The state that the sink last received; empty if it received none.
	uid, version string
	gone         *event.Object // that object's last state, if it has been deleted since
	goneAt       time.Time
	before       []*event.Object // others of that name that went before it, which the sink may have received
	now          *event.Object   // what is there, or nil
	nowAt        time.Time
	deltas       int     // folded into this
	inferred     bool    // found by comparison, not seen
	first        bool    // owed to the sink's first snapshot
	unsure       bool    // the sink may have received more from an earlier run than was stored
	guessed      bool    // that it received uid is an instance of this
	maybe        string  // the uid that it may have received beyond what was stored
	number       uint64  // of the first delta that was folded into this
	prev, next   *behind // the port's others, in order of arrival
}

// fold adds a delta to what the port's sink is behind on. The lane's lock is held.
func (p *Port) fold(d *event.Delta, number uint64) {
	key := d.Key()
	b := p.behind[key]
	if b == nil {
		b = &behind{key: key, port: p, unsure: p.doubt, number: number}
		b.uid, b.version = p.received(key, d)
		if b.first = d.Type == event.Added && d.Snapshot != "" && p.snapshot != nil; b.first {
			p.snapshot.open++
		}
		p.behind[key] = b
		p.enqueue(b)
	}
	b.deltas++
	b.inferred = b.inferred || d.Inferred
	switch {
	case d.Type != event.Deleted:
		b.now, b.nowAt = d.Object, d.Time
		if p.doubt {
			b.maybe = d.Object.UID
		}
		if b.uid == d.Object.UID && isOfAnotherHistory(d, b.version) {
			b.version = "" // what the sink has is of a time that the server forgot
		}
		if b.unsure && b.gone != nil && b.gone.UID == d.Object.UID {
			// The watch tells the object's end again, or it is back; and whether the sink has
			// been told of the end that was recorded is not known.
			b.gone, b.version = nil, ""
			if b.guessed {
				b.uid, b.guessed = "", false
			}
		}
	case b.uid == d.Object.UID && b.gone == nil:
		b.gone, b.goneAt, b.now = d.Object, d.Time, nil
	case b.unsure && (b.uid == "" || b.gone != nil) && (p.doubt || b.maybe == d.Object.UID):
		// An acknowledgement that came after the last batch was lost with the process,
		// so the sink may know this object too. One deletion too many does no harm.
		if b.gone != nil && b.gone.UID != d.Object.UID {
			b.before = append(b.before, b.gone)
		}
		b.uid, b.version, b.guessed = d.Object.UID, d.Object.ResourceVersion, true
		b.gone, b.goneAt, b.now = d.Object, d.Time, nil
	default:
		b.now = nil // it came and went while the sink was behind
		p.metrics.unseen.Inc()
	}
	// While the watch tells again what the sink has had, that is not to be told as news.
	if b.now == nil && b.gone == nil && len(b.before) == 0 && p.held == "" {
		p.metrics.folded.Add(float64(b.deltas))
		p.drop(b)
		p.tellVerified()
	}
	p.touch(key)
}

// received is the state that the sink has of an object, once all that is under way
// has arrived, when the delta d comes next.
func (p *Port) received(key event.Key, d *event.Delta) (uid, version string) {
	if q, busy := p.lane.keys[key]; busy {
		if e := &q.newest.event; e.Type != event.Deleted {
			return e.UID, e.ResourceVersion
		}
		return "", ""
	}
	switch {
	case d.Old != nil:
		return d.Old.UID, d.Old.ResourceVersion
	case d.Type == event.Deleted:
		return d.Object.UID, d.Object.ResourceVersion
	default:
		return "", ""
	}
}

// wentBack says that version is older than one that was seen before: the server was
// restored from a backup.
func wentBack(version, before string) bool {
	c, ok := event.CompareVersions(version, before)
	return ok && c < 0
}

// isOfAnotherHistory says that the delta is of a later history of the server than what the
// sink has of its object: it goes back, or tells again the state that the index has.
func isOfAnotherHistory(d *event.Delta, before string) bool {
	return wentBack(d.Object.ResourceVersion, before) || d.Type == event.Updated && d.Old != nil && d.Old.Same(d.Object)
}

// enqueue puts b behind the port's others.
func (p *Port) enqueue(b *behind) {
	if p.lane.owed(b, 1); p.firstBehind == nil {
		p.behindSince = time.Now()
	}
	p.mostBehind = max(p.mostBehind, len(p.behind))
	if b.prev = p.lastBehind; b.prev == nil {
		p.firstBehind = b
	} else {
		b.prev.next = b
	}
	p.lastBehind = b
	p.lane.nudge()
}

// unlink takes b out of what the port is behind on.
func (p *Port) unlink(b *behind) {
	delete(p.behind, b.key)
	p.lane.owed(b, -1)
	if b.prev == nil {
		p.firstBehind = b.next
	} else {
		b.prev.next = b.next
	}
	if b.next == nil {
		p.lastBehind = b.prev
	} else {
		b.next.prev = b.prev
	}
	b.prev, b.next = nil, nil
}

// drop forgets b: the sink never heard of the object, and need not.
func (p *Port) drop(b *behind) {
	p.unlink(b)
	if b.first {
		p.snapshotLess()
	}
	p.lane.nudge()
}

// pump moves what the ports are behind on into the window, as far as half of it: the
// other half is for what happens now. It returns when there is no more room or
// nothing left. The lane's lock is held.
func (l *Lane) pump() {
	left := pumpAtOnce
	for idle := 0; l.behindCount > 0 && idle < len(l.ports) && l.hasShare(); {
		if left == 0 {
			l.nudge()
			return
		}
		p := l.ports[l.turn%len(l.ports)]
		l.turn++
		if p.emit() {
			idle = 0
			left--
		} else {
			idle++
		}
	}
	if l.behindCount == 0 {
		for _, p := range l.ports {
			p.forgetBehind()
		}
	}
	if l.behindCount == 0 && l.events == 0 {
		l.room.Broadcast() // no answer will wake who waits for this
	}
	// Who waits for room is to hear first that it will not come.
	if l.folding && l.foldedCount == l.heldCount() && len(l.waiting) == 0 && l.hasShare() {
		l.endFolding()
	}
}

// forgetBehind gives back the room of a long list of what the sink was behind on.
func (p *Port) forgetBehind() {
	if p.mostBehind > maxShared {
		p.behind, p.mostBehind = map[event.Key]*behind{}, 0
	}
}

// pumpAtOnce bounds how many objects are encoded while the lane is locked.
const pumpAtOnce = 256

// owed counts what the lane is behind on. What is owed to a first snapshot is no
// reason to fold other changes.
func (l *Lane) owed(b *behind, n int) {
	l.behindCount += n
	if !b.first {
		l.foldedCount += n
		b.port.foldedCount += n
	}
}

// heldCount is how much of foldedCount waits for a watch that may be refused for long: that
// is no reason either.
func (l *Lane) heldCount() (n int) {
	for _, p := range l.ports {
		if p.held != "" {
			n += p.foldedCount
		}
	}
	return n
}

// emit puts the next object that the port is behind on into the window: as its deletion,
// or as what is there now; where it was made anew as the one, and then as the other. It
// returns false when there is none, or none may go yet.
func (p *Port) emit() bool {
	b := p.firstBehind
	if b == nil || !p.mayGo() || !b.isStored() {
		return false
	}
	if o := b.comesFirst(); o != nil && !p.lane.fits(p.share(o)) {
		return false
	}
	if len(b.before) > 0 {
		o := b.before[0]
		b.before = b.before[1:]
		b.deltas--
		p.putGone(o, b.goneAt, true, base{o.UID, o.ResourceVersion, o, true})
		p.touch(b.key)
		return true
	}
	b.inferred = b.inferred || b.deltas != 1
	if b.gone != nil {
		p.putGone(b.gone, b.goneAt, b.inferred, base{b.uid, b.version, b.gone, b.guessed})
		b.uid, b.version, b.gone, b.guessed = "", "", nil, false
		b.deltas--
		if b.now != nil {
			p.touch(b.key)
			return true
		}
	}
	p.unlink(b)
	events := 0
	if b.now != nil && (b.now.UID != b.uid || b.now.ResourceVersion != b.version) {
		d := event.Delta{Type: event.Updated, Resource: p.resource, Object: b.now, Inferred: b.inferred, Time: b.nowAt}
		if b.uid != b.now.UID {
			d.Type = event.Added
		}
		if b.first {
			d.Inferred = false
			d.Snapshot = p.snapshot.id
		}
		p.put(&d, base{uid: b.uid, version: b.version})
		events++
	} else if b.first {
		p.snapshotLess()
	}
	if b.deltas > events {
		p.metrics.folded.Add(float64(b.deltas - events))
	}
	p.touch(b.key)
	p.tellVerified()
	return true
}

// isStored says that the state has a record of what the sink is behind on. Without
// one, a kill right after this is sent would have the watch tell again, one by one and
// in places after it, the changes that were folded into it.
func (b *behind) isStored() bool {
	return b.port.records == nil || b.first || b.number <= b.port.committed
}

// putGone puts the deletion of what the sink had into the window.
func (p *Port) putGone(o *event.Object, at time.Time, inferred bool, was base) {
	p.put(&event.Delta{Type: event.Deleted, Resource: p.resource, Object: o, Inferred: inferred, Time: at}, was)
}

// put encodes a delta that was folded or is part of a snapshot, and puts it into the
// window without waiting. The lane's lock is held.
func (p *Port) put(d *event.Delta, was base) {
	if !p.types[d.Type] {
		p.metrics.filteredType.Inc()
		if d.Snapshot != "" {
			p.snapshotLess()
		}
		return
	}
	m := p.encode(d)
	p.lane.bytes += m.size
	p.lane.events++
	e := p.enter(m, was)
	// What it stands for is recorded as behind until it is acknowledged: it holds up
	// no position.
	e.recorded = p.records != nil
	e.shared = true
	p.lane.shared++
	if d.Snapshot != "" {
		e.snapshot = p.snapshot
	}
}

// beginFolding lets the ports fall behind, each delta into what is behind already.
func (l *Lane) beginFolding() {
	if l.folding {
		return
	}
	l.folding = true
	l.log.Warn("the sink's window has been full for too long: from here on changes are folded", "after", l.opts.FoldAfter,
		"events", l.events, "bytes", l.bytes)
	l.room.Broadcast()
}

func (l *Lane) endFolding() {
	if !l.folding {
		return
	}
	l.folding = false
	l.fullSince = time.Time{}
	l.log.Info("the sink has caught up")
	l.room.Broadcast()
}

// base is what the sink has of an object before an event of it arrives.
type base struct {
	uid, version string
	gone         *event.Object // the object's last state where the event says that it is gone
	guessed      bool          // the sink may not have it
}

// record is what the state keeps of an object that the sink is not done with: what
// the sink has of it for sure. It returns nil where there is nothing to keep. The
// lane's lock is held.
func (p *Port) record(key event.Key) *state.Behind {
	b := p.behind[key]
	oldest := p.lane.keys[key].oldest
	for oldest != nil && oldest.event.Type >= event.Synced {
		oldest = oldest.next // what is only said again leaves no record: see settle
	}
	if oldest != nil && oldest.recorded {
		r := &state.Behind{UID: oldest.was.uid, ResourceVersion: oldest.was.version, First: oldest.snapshot != nil && oldest.snapshot.first, Guessed: oldest.was.guessed}
		// What is under way may arrive: its deletion is not to be lost either.
		gone := func(o *event.Object) {
			if o != nil && r.Gone == nil && (r.UID == "" || r.UID == o.UID) {
				r.Guessed = r.Guessed || r.UID == ""
				r.UID, r.Gone = o.UID, o
				if r.ResourceVersion == "" {
					r.ResourceVersion = o.ResourceVersion
				}
			}
		}
		for e := oldest; e != nil; e = e.next {
			if e.event.Type == event.Deleted {
				gone(e.was.gone)
			}
		}
		if b != nil {
			gone(b.firstGone())
		}
		if uid, version := p.comes(key); r.Gone != nil {
			r.NowUID, r.NowResourceVersion = uid, version
		} else if version == r.ResourceVersion || wentBack(version, r.ResourceVersion) {
			r.ResourceVersion = "" // what the sink has is of a time that the server forgot
		}
		return r
	}
	if b != nil {
		r := &state.Behind{UID: b.uid, ResourceVersion: b.version, Gone: b.gone, First: b.first, Guessed: b.guessed}
		if len(b.before) > 0 {
			o := b.before[0]
			r.UID, r.ResourceVersion, r.Gone, r.Guessed = o.UID, o.ResourceVersion, o, true
		}
		if r.Gone != nil && b.now != nil {
			r.NowUID, r.NowResourceVersion = b.now.UID, b.now.ResourceVersion
		}
		return r
	}
	return nil
}

// firstGone is the deletion that comes first, or nil.
func (b *behind) firstGone() *event.Object {
	if len(b.before) > 0 {
		return b.before[0]
	}
	return b.gone
}

// comesFirst is the object of which the next event is, or nil.
func (b *behind) comesFirst() *event.Object {
	if o := b.firstGone(); o != nil {
		return o
	}
	return b.now
}

// comes is what the sink has of an object when all that is under way or owed has
// arrived; empty: nothing.
func (p *Port) comes(key event.Key) (uid, version string) {
	if b := p.behind[key]; b != nil {
		if b.now != nil {
			return b.now.UID, b.now.ResourceVersion
		}
		return "", ""
	}
	if e := &p.lane.keys[key].newest.event; e.Type != event.Deleted {
		return e.UID, e.ResourceVersion
	}
	return "", ""
}

// touch notes that what the state keeps of an object has changed.
func (p *Port) touch(key event.Key) {
	if p.records != nil {
		p.records[key] = struct{}{}
	}
}

// restore makes the port behind on what the state says, given what the index of the
// same state has. The index may be older than what the sink has: it waits for the
// slowest sink, and what is between the two comes again through the watch. unsure says
// that the sink may have received more than that.
func (p *Port) restore(key event.Key, r state.Behind, indexed *event.Object, unsure bool) {
	b := &behind{key: key, port: p, uid: r.UID, version: r.ResourceVersion, gone: r.Gone, first: r.First, guessed: r.Guessed, deltas: 1, inferred: true, unsure: unsure}
	b.goneAt = time.Now()
	if indexed != nil && isThere(indexed, &r, p.resource.Selected) {
		b.now, b.nowAt = indexed, b.goneAt
	}
	if b.now != nil && b.gone == nil && b.uid != "" && b.uid != b.now.UID {
		b.gone = p.resource.Remains(b.now.Namespace, b.now.Name, b.uid, b.version)
	}
	if b.now != nil && unsure {
		b.maybe = b.now.UID
	}
	if b.gone != nil && b.now == nil && indexed != nil && indexed.UID == b.gone.UID {
		if p.ended == nil {
			p.ended = map[event.Key]*event.Object{}
		}
		p.ended[key] = indexed
	}
	p.touch(key)
	p.doubtful[key] = struct{}{}
	// Where nothing is owed it waits all the same for what the watch tells again.
	if b.first = b.first && p.snapshot != nil; b.first {
		p.snapshot.open++
	}
	p.behind[key] = b
	p.enqueue(b)
}

// isBack tells of the objects that a record says are gone and that a list has found as the
// index has them, so that no delta came of them. The lane's lock is held.
func (p *Port) isBack(number uint64) {
	for _, o := range p.ended {
		p.fold(&event.Delta{Type: event.Updated, Resource: p.resource, Object: o, Inferred: true, Time: time.Now()}, number)
	}
	p.ended = nil
}

// isThere says that what the index has of an object is there after what the sink received,
// and after the end that is recorded: it was made anew, is back in the selection, or was
// brought back with a backup.
func isThere(o *event.Object, r *state.Behind, selected bool) bool {
	switch gone := r.Gone; {
	case gone == nil:
		return r.UID == "" || newer(o.ResourceVersion, r.ResourceVersion)
	case o.UID == r.NowUID && o.ResourceVersion == r.NowResourceVersion:
		return true
	case o.Epoch != gone.Epoch:
		return o.Epoch > gone.Epoch
	default:
		c, ok := event.CompareVersions(o.ResourceVersion, gone.ResourceVersion)
		// Where versions do not compare, a state too many does no harm: its end comes again.
		return c > 0 || !ok && (o.UID != gone.UID || selected && o.ResourceVersion != gone.ResourceVersion && o.ResourceVersion != r.ResourceVersion)
	}
}

// newer says that version a is after b, and where the two do not compare that they differ.
func newer(a, b string) bool {
	c, ok := event.CompareVersions(a, b)
	return c > 0 || !ok && a != b
}

// reached says that the watch has come to that version, or can not tell.
func reached(version, now string) bool {
	c, ok := event.CompareVersions(version, now)
	return c <= 0 || !ok
}

// known says that the sink has received this delta before the restart: the watch was
// resumed for the sake of another sink that is further back.
func (p *Port) known(d *event.Delta) bool {
	if p.resumed == "" {
		return false
	}
	if _, doubtful := p.doubtful[d.Key()]; doubtful {
		return false // the sink had everything but this
	}
	if c, ok := event.CompareVersions(d.Object.ResourceVersion, p.resumed); !ok || c > 0 {
		p.resumed, p.doubtful = "", nil // from here on all is new
		return false
	}
	return true
}
