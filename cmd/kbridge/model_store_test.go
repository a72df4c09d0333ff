package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// disk is what a state.Store writes to, and outlives the processes. The world's mutex
// guards it. What it holds is never changed but replaced.
type disk struct {
	w       *world
	views   map[state.ViewID]*keptView
	lanes   map[state.LaneID]*keptLane
	epoch   uint32
	failing float64       // the part of the commits that fails
	slow    time.Duration // what a commit takes at most
	failed  bool          // the last commit has: events go on without one
	// failedAt is when a commit failed last.
	failedAt time.Time
	// committed is when the batch of the last successful commit was handed over.
	committed time.Time
	residue   time.Time          // since when there is some; zero: there is none
	leftovers map[leftovers]bool // where nothing refers to it any more
	packed    map[event.DictionaryID]traces
}

type keptView struct {
	info    state.ViewInfo
	objects map[string]*event.Object
}

type keptLane struct {
	info   state.LaneInfo
	behind map[string]state.Behind
}

func newDisk(w *world) *disk {
	return &disk{w: w, views: map[state.ViewID]*keptView{}, lanes: map[state.LaneID]*keptLane{}, leftovers: map[leftovers]bool{}, packed: map[event.DictionaryID]traces{}}
}

// loaded is what a process began with of a sink's part in a watch.
type loaded struct {
	process int
	at      time.Time
	keptLane
}

// scriptedStore is a process's hold on the disk.
type scriptedStore struct {
	d     *disk
	p     *process
	loads int // watches that were loaded
	rules map[state.ViewID]string
}

var _ state.Store = (*scriptedStore)(nil)

func (s *scriptedStore) Close() error { return nil }

func (s *scriptedStore) Contents() (state.Contents, error) {
	s.d.w.mu.Lock()
	defer s.d.w.mu.Unlock()
	return state.Contents{
		Views: slices.Collect(maps.Keys(s.d.views)), Lanes: slices.Collect(maps.Keys(s.d.lanes)), Epoch: s.d.epoch,
	}, nil
}

func (s *scriptedStore) Info(id state.ViewID) (state.ViewInfo, error) {
	s.d.w.mu.Lock()
	defer s.d.w.mu.Unlock()
	if v := s.d.views[id]; v != nil {
		return v.info, nil
	}
	return state.ViewInfo{}, nil
}

func (s *scriptedStore) LoadView(id state.ViewID, each func(*event.Object) error) (state.ViewInfo, error) {
	s.d.w.mu.Lock()
	s.loads++
	v := s.d.views[id]
	s.d.w.mu.Unlock()
	if v == nil {
		return state.ViewInfo{}, nil
	}
	for _, o := range v.objects {
		if err := each(copyOf(o)); err != nil {
			return state.ViewInfo{}, err
		}
	}
	return v.info, nil
}

func (s *scriptedStore) LoadLane(id state.LaneID) (state.LaneInfo, map[string]state.Behind, bool, error) {
	s.d.w.mu.Lock()
	defer s.d.w.mu.Unlock()
	l := s.d.lanes[id]
	if l == nil {
		return state.LaneInfo{}, nil, false, nil
	}
	s.d.w.loaded[id] = loaded{s.p.number, time.Now(), *l}
	info := l.info
	if info.Snapshot != nil {
		snapshot := *info.Snapshot
		info.Snapshot = &snapshot
	}
	return info, maps.Clone(l.behind), true, nil
}

func copyOf(o *event.Object) *event.Object {
	if o == nil {
		return nil
	}
	c := *o
	c.Body = slices.Clone(o.Body)
	return &c
}

// Commit takes its time, and a process that is killed meanwhile leaves all or nothing.
func (s *scriptedStore) Commit(b *state.Batch) error {
	d, w := s.d, s.d.w
	began := time.Now()
	w.mu.Lock()
	slow, fails := d.slow, w.rng2.Float64() < d.failing
	loaded := s.loads == s.p.views
	confirms := fails && w.rng2.IntN(3) == 0 // it is written, and the answer is an error
	if !s.p.cut {
		s.p.commit = func() { d.apply(b, s.p.number, began) }
	}
	w.mu.Unlock()
	// Load waits for Commit with a mutex, and virtual time does not pass meanwhile: a
	// commit is slow only when all is loaded.
	if slow > 0 && loaded {
		time.Sleep(slow)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.p.commit = nil
	if s.p.cut || fails {
		d.leaveBatch(b)
	}
	d.failed = d.failed && s.p.cut || fails
	if fails {
		d.failedAt = time.Now()
	}
	switch {
	case s.p.cut:
		return errors.New("killed")
	case fails && !confirms:
		return fmt.Errorf("%w: the disk is full", errScripted)
	}
	d.apply(b, s.p.number, began)
	if fails {
		return fmt.Errorf("%w: the disk does not say whether it has it", errScripted)
	}
	return nil
}

func (d *disk) apply(b *state.Batch, process int, began time.Time) {
	if b.Epoch != 0 {
		d.epoch = b.Epoch
	}
	for id, c := range b.Views {
		v := &keptView{info: c.Info, objects: map[string]*event.Object{}}
		if old := d.views[id]; old != nil {
			maps.Copy(v.objects, old.objects)
		}
		for key, o := range c.Objects {
			d.leave(id, v.objects[key])
			if o == nil {
				delete(v.objects, key)
			} else {
				v.objects[key] = copyOf(o)
			}
		}
		d.views[id] = v
		d.w.tracef("disk: %s at %q listed=%t objects=%s", id, v.info.Position, v.info.Listed, namesOf(c.Objects))
	}
	for id, c := range b.Lanes {
		l := &keptLane{info: c.Info, behind: map[string]state.Behind{}}
		if c.Info.Snapshot != nil {
			snapshot := *c.Info.Snapshot
			l.info.Snapshot = &snapshot
		}
		if old := d.lanes[id]; old != nil {
			maps.Copy(l.behind, old.behind)
		}
		for key, r := range c.Behind {
			d.leave(id.View, l.behind[key].Gone)
			if r == nil {
				delete(l.behind, key)
				continue
			}
			kept := *r
			kept.Gone = copyOf(r.Gone)
			l.behind[key] = kept
		}
		d.lanes[id] = l
		d.w.tracef("disk: %s of %s at %q snapshot=%+v behind=%s", id.Sink, id.View, c.Info.Position, l.info.Snapshot, recordsOf(c.Behind))
	}
	d.committed, d.w.told[process] = began, began.Add(-d.w.settling())
}

func namesOf(objects map[string]*event.Object) string {
	text := "["
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		text += " " + key
		if o := objects[key]; o != nil {
			text += "@" + o.ResourceVersion
		} else {
			text += " gone"
		}
	}
	return text + " ]"
}

func recordsOf(records map[string]*state.Behind) string {
	text := "["
	for _, key := range slices.Sorted(maps.Keys(records)) {
		text += " " + key
		if r := records[key]; r == nil {
			text += " none"
		} else {
			text += fmt.Sprintf(" has %s.%s", short(r.UID), r.ResourceVersion)
			if r.Gone != nil {
				text += " gone"
			}
			if r.First {
				text += " first"
			}
		}
	}
	return text + " ]"
}

// short is the part of a uid in which they differ.
func short(uid string) string { return uid[max(0, len(uid)-4):] }
