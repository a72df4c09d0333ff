package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// A disk does not forget by itself: what is replaced there, or was being written when a
// process was killed, is left until it is scrubbed.

// traces are what a body, or the samples that it is packed with, have of what may have to go.
type traces struct{ secret, noise bool }

func tracesIn(text string) traces {
	return traces{strings.Contains(text, secretText) || strings.Contains(text, secretB64), strings.Contains(text, noiseText)}
}

// leftovers are traces of what was a watch's.
type leftovers struct {
	view state.ViewID
	traces
}

// tracesOf are those of a stored object. The world's mutex is held.
func (d *disk) tracesOf(o *event.Object) traces {
	body, err := o.JSON()
	if err != nil {
		panic(err)
	}
	t := tracesIn(string(body))
	if o.Dictionary != nil {
		of, known := d.packed[o.Dictionary.ID()]
		if !known {
			of = tracesIn(string(o.Dictionary.Bytes()))
			d.packed[o.Dictionary.ID()] = of
		}
		t.secret, t.noise = t.secret || of.secret, t.noise || of.noise
	}
	return t
}

// leave notes that nothing refers to the object any more.
func (d *disk) leave(id state.ViewID, o *event.Object) {
	if o != nil {
		d.leftovers[leftovers{id, d.tracesOf(o)}] = true
	}
}

// leaveBatch notes that a batch was being written.
func (d *disk) leaveBatch(b *state.Batch) {
	for id, c := range b.Views {
		for _, o := range c.Objects {
			d.leave(id, o)
		}
	}
	for id, c := range b.Lanes {
		for _, r := range c.Behind {
			if r != nil {
				d.leave(id.View, r.Gone)
			}
		}
	}
}

func (s *scriptedStore) Retain(views map[state.ViewID]string, lanes []state.LaneID) error {
	d := s.d
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	s.rules = views
	for id, l := range d.lanes {
		if slices.Contains(lanes, id) {
			continue
		}
		for _, r := range l.behind {
			d.leave(id.View, r.Gone)
		}
		delete(d.lanes, id)
	}
	gone := 0
	for id, v := range d.views {
		if _, stays := views[id]; stays {
			continue
		}
		for _, o := range v.objects {
			d.leave(id, o)
		}
		delete(d.views, id)
		gone++
	}
	for id, rules := range views {
		if d.views[id] == nil {
			d.views[id] = &keptView{info: state.ViewInfo{Rules: rules}}
		}
	}
	if others := s.underOthers(); (gone > 0 || len(others) > 0) && d.residue.IsZero() {
		d.residue = time.Now()
		d.w.tracef("disk: there is residue: %d watches are gone, other rules hold for %q", gone, others)
	}
	return nil
}

func (s *scriptedStore) underOthers() (views []state.ViewID) {
	for id, v := range s.d.views {
		if v.info.Rules != s.rules[id] {
			views = append(views, id)
		}
	}
	return views
}

func (s *scriptedStore) Residue() (state.Residue, error) {
	s.d.w.mu.Lock()
	defer s.d.w.mu.Unlock()
	if s.d.residue.IsZero() {
		return state.Residue{}, nil
	}
	return state.Residue{Since: s.d.residue, Views: s.underOthers()}, nil
}

// Scrub takes some steps, and fails as a commit does.
func (s *scriptedStore) Scrub() (bool, error) {
	d, w := s.d, s.d.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch others := s.underOthers(); {
	case s.p.cut:
		return false, errors.New("killed")
	case len(others) > 0:
		w.failf("process %d scrubs while bodies of %q are under other rules", s.p.number, others)
	case w.rng2.Float64() < d.failing:
		return false, fmt.Errorf("%w: the disk is full", errScripted)
	case w.rng2.IntN(3) > 0:
		return false, nil
	}
	clear(d.leftovers)
	d.residue = time.Time{}
	w.tracef("disk: it is scrubbed")
	return true, nil
}

// unscrubbed says what the disk has that no rules of the configuration allow, where
// kbridge says that there is none.
func (w *world) unscrubbed() (text string) {
	if w.disk == nil || w.p == nil || len(w.p.d.problems()) > 0 {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.disk.residue.IsZero() {
		text += "\nthe disk has residue, and kbridge is ready"
	}
	allowed := map[state.ViewID]*config.Resource{}
	for id := range w.disk.lanes {
		allowed[id.View] = w.entryOf(id)
	}
	check := func(what string, id state.ViewID, t traces) {
		r := allowed[id]
		if r == nil && (t.secret || t.noise) {
			text += fmt.Sprintf("\n%s of %s, which is gone, has a secret: %t, what was dropped: %t", what, id, t.secret, t.noise)
		} else if r != nil && (t.secret && !r.IncludesSecrets() || t.noise && len(r.Drop) > 0) {
			text += fmt.Sprintf("\n%s of %s (secrets: %s, drop: %q) has a secret: %t, what is dropped: %t", what, id, r.Secrets, r.Drop, t.secret, t.noise)
		}
	}
	for l := range w.disk.leftovers {
		check("what is left", l.view, l.traces)
	}
	for id, v := range w.disk.views {
		for key, o := range v.objects {
			check(key, id, w.disk.tracesOf(o))
		}
	}
	for id, l := range w.disk.lanes {
		for key, r := range l.behind {
			if r.Gone != nil {
				check(key+", which "+id.Sink+" is behind on,", id.View, w.disk.tracesOf(r.Gone))
			}
		}
	}
	return text
}
