package scriptedapi

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// event is one change of one object. old is nil for a creation, new for a deletion.
type event struct {
	version  int64
	old, new *object
}

// SetHistory limits the events that each resource keeps. A watch, a page or an exact list from before them is
// answered with 410.
func (s *Server) SetHistory(events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = events
	for _, r := range s.resources {
		r.trim(events)
	}
}

// Compact forgets the history of the resources named, or of all: every version but the current one is too old from
// now on, also for a resource that did not change. Watches that are open go on.
func (s *Server) Compact(gvrs ...schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact(gvrs...)
}

// compact is Compact. The caller holds mu.
func (s *Server) compact(gvrs ...schema.GroupVersionResource) {
	for _, r := range s.chosen(gvrs) {
		r.events = nil
		r.compacted = s.version
	}
}

// commit adds an event to the history and hands it to the watches. The caller holds mu.
func (s *Server) commit(r *resource, e event) {
	r.events = append(r.events, e)
	r.trim(s.history)
	s.deliver(r, e)
}

func (r *resource) trim(limit int) {
	if drop := len(r.events) - limit; drop > 0 {
		r.compacted = r.events[drop-1].version
		r.events = append([]event(nil), r.events[drop:]...)
	}
}

// stateAt returns the objects as they were at a version that is not compacted, by undoing what came after.
func (r *resource) stateAt(version int64) map[key]*object {
	objects := maps.Clone(r.objects)
	for i := len(r.events) - 1; i >= 0 && r.events[i].version > version; i-- {
		e := r.events[i]
		if e.old != nil {
			objects[e.old.key] = e.old
		} else {
			delete(objects, e.new.key)
		}
	}
	return objects
}
