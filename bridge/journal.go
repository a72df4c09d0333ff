package bridge

import (
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// journal is what has happened to a watch's index and is not stored. The feed writes
// it, the keeper collects it: what all sinks are done with goes to the store, with
// the position at which that is true.
type journal struct {
	mu      sync.Mutex
	pending []journalStep            // in order
	packed  int                      // steps that were left when they were compacted last
	newest  map[string]*event.Object // what compact works with; empty in between
	info    state.ViewInfo
	dirty   bool // the info has changed since the last collection
	ended   bool // the first list has ended, from number on
	from    uint64
}

// journalStep is a change of the index, of the position's label, or of what the info says
// of all of the index, by number.
type journalStep struct {
	number uint64
	label  bool
	info   *string       // the info's rules or version; nil: neither
	text   string        // the label, what the info is to say, or the object's key
	object *event.Object // nil: it is gone
}

func (j *journal) note(number uint64, d *event.Delta) {
	s := journalStep{number: number, text: d.Object.Key(), object: d.Object}
	if d.Type == event.Deleted {
		s.object = nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, s)
}

func (j *journal) restate(number uint64, o *event.Object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, journalStep{number: number, text: o.Key(), object: o})
}

// forget notes that the state is not to have an object any more, of which nobody is told.
func (j *journal) forget(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, journalStep{text: key})
}

// under notes that what was restated before, up to the delta of that number, is all that
// had been through other rules. Restated bodies are stored in several batches where they
// are many: until the last of them is, the state must not say that these rules hold, or
// after a kill the next start would use the others as they are.
func (j *journal) under(number uint64, rules string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, journalStep{number: number, info: &j.info.Rules, text: rules})
}

// becomes notes that from the delta of that number on the objects are of another version
// of their resource. No position holds, until a list has found or restated each of them.
func (j *journal) becomes(number uint64, version string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, journalStep{number: number, info: &j.info.Version, text: version})
}

// label puts a label on the position after the delta of that number. A label that
// follows another without a delta in between replaces it.
func (j *journal) label(number uint64, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if last := len(j.pending) - 1; last >= 0 && j.pending[last].label && j.pending[last].number == number {
		j.pending[last].text = text
		return
	}
	j.pending = append(j.pending, journalStep{number: number, label: true, text: text})
	j.compact()
}

// listed notes that the first list has ended with the delta of that number.
func (j *journal) listed(number uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.info.Listed && !j.ended {
		j.ended, j.from = true, number
	}
}

// listing says that a list is being handed over, as far as was collected.
func (j *journal) listing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.info.Position == ""
}

func (j *journal) length() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.pending)
}

// collect takes out what is settled up to that number, and adds it to the change, up to
// limit objects. It returns whether anything has changed, and whether more is settled.
func (j *journal) collect(settled uint64, change *state.ViewChange, limit int) (changed, more bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for n < len(j.pending) && j.pending[n].number <= settled {
		s := j.pending[n]
		if !s.label && s.info == nil && len(change.Objects) >= limit {
			more = true // a label belongs to the objects before it
			break
		}
		n++
		switch {
		case s.info != nil:
			*s.info, j.dirty = s.text, true
		case s.label:
			if j.info.Position != s.text {
				j.info.Position, j.dirty = s.text, true
			}
		default:
			change.Objects[s.text] = s.object
			j.dirty = true
		}
	}
	rest := copy(j.pending, j.pending[n:])
	clear(j.pending[rest:])
	if j.pending = j.pending[:rest]; rest == 0 {
		j.packed = 0
		if cap(j.pending) > storeObjects {
			j.pending = nil // a list was in it
		}
	}
	if j.ended && settled >= j.from && !more {
		j.ended, j.info.Listed, j.dirty = false, true, true
	}
	changed = j.dirty
	j.dirty = false
	change.Info = j.info
	return changed, more
}

// compact folds what no sink has settled into the last state of each object, so that the
// journal has no more steps than there are objects, whatever the sinks take: deltas that
// a sink filters take no place in its window, a sink that blocks settles nothing, and a disk
// that hangs takes nothing. What was folded is settled whole or not at all, with the label
// that is the last step; so that is done only where the journal has grown to twice its size.
// What came before the first delta waits for no sink, and is folded by itself: what is
// stored under other rules is not to wait for one either. The lock is held.
func (j *journal) compact() {
	if len(j.pending) < max(minCompaction, 2*j.packed) {
		return
	}
	first := 0
	for first < len(j.pending) && j.pending[first].number == 0 {
		first++
	}
	last := j.pending[len(j.pending)-1].number
	// A list that ended within is settled with the rest.
	if j.ended && j.from > 0 && j.from < last {
		j.from = last
	}
	if j.newest == nil {
		j.newest = make(map[string]*event.Object, j.packed)
	}
	all := j.pending
	j.pending = j.fold(j.fold(all[:0], all[:first]), all[first:])
	j.packed = len(j.pending)
	clear(all[j.packed:])
	if j.packed > storeObjects {
		j.newest = nil // a map that was large stays so
	}
}

// fold adds the steps as one: the last state of each object, then what the info is to say,
// then the last label. It may write where it has read.
func (j *journal) fold(into, steps []journalStep) []journalStep {
	if len(steps) == 0 {
		return into
	}
	number := steps[len(steps)-1].number
	var rules, version, label *journalStep
	for i, s := range steps {
		switch {
		case s.info == &j.info.Rules:
			rules = &steps[i]
		case s.info == &j.info.Version:
			version = &steps[i]
		case s.label:
			label = &steps[i]
		default:
			j.newest[s.text] = s.object
		}
	}
	var last []journalStep
	for _, s := range []*journalStep{rules, version, label} {
		if s != nil {
			last = append(last, *s) // what follows may write there
		}
	}
	for key, o := range j.newest {
		into = append(into, journalStep{number: number, text: key, object: o})
	}
	clear(j.newest)
	for _, s := range last {
		s.number = number
		into = append(into, s)
	}
	return into
}

// minCompaction is how many steps a journal may have in any case.
const minCompaction = 1000

// progress is how far the port is: all deltas up to the number are dealt with, or
// recorded as what its sink is behind on, and position is the label there. What is
// under way is recorded when the sink falls behind, or when an event takes longer than
// settleAfter: so neither a slow sink nor an event that is tried again holds up what is
// stored of the watch, and of what another sink has been told meanwhile. With whenFull:
// block nothing is folded, after a restart neither, and it waits. The lane's lock is held.
func (p *Port) progress(now time.Time) (number uint64, position string) {
	position = p.position
	for e := p.head; e != nil; e = e.after {
		if !e.dealt && !e.recorded {
			if !p.lane.folding && !(p.lane.opts.Fold && now.Sub(e.accepted) > settleAfter) {
				return min(e.number-1, p.taken), position
			}
			e.recorded = true
			p.touch(e.event.Key)
		}
		if e.moves {
			position = e.label
		}
	}
	return p.taken, position
}

// settleAfter is how long an event may be under way before the state says so of it.
const settleAfter = time.Second

// collect adds what has changed of the port to the change, and returns the number up
// to which its deltas are settled, and whether anything has changed.
func (p *Port) collect(change *state.LaneChange, stored *state.LaneInfo) (settled uint64, changed bool) {
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	settled, change.Info.Position = p.progress(time.Now())
	p.gathered = p.taken
	for key := range p.records {
		change.Behind[state.Key(key.Namespace, key.Name)] = p.record(key)
		changed = true
	}
	if len(p.records) > maxShared {
		p.records = map[event.Key]struct{}{} // a map that was large stays so
	} else {
		clear(p.records)
	}
	change.Info.Snapshot = p.snapshot.stored()
	if p.snapshot == nil {
		change.Info.Snapshot = p.again
	} else {
		p.snapshot.gathered = true
	}
	if change.Info.Position != stored.Position || !sameSnapshot(change.Info.Snapshot, stored.Snapshot) {
		*stored = change.Info
		changed = true
	}
	return settled, changed
}

func sameSnapshot(a, b *state.Snapshot) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
