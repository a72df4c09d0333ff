// Package mirror keeps a copy of a cluster's objects, made of kbridge's events by the rules of
// docs/CONSUMERS.md. It is an example: read it, and write your own.
package mirror

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Event is what the rules need of an event in structured format.
type Event struct {
	ID, Type                                     string
	Cluster, Group, Resource                     string
	Namespace, Name, UID, ResourceVersion, Entry string
	Epoch                                        uint32
	Snapshot                                     string
	Inferred, Truncated                          bool
	Data                                         json.RawMessage
}

// Object is what the mirror knows of one uid. One that is gone stays, as a tombstone, because what
// is older than its end can come again.
type Object struct {
	UID, Version string
	Epoch        uint32
	Gone         bool
	Body         json.RawMessage // the metadata alone where Truncated says so
	Truncated    bool

	event Event // that told of it last, without its data
	place int64 // of the last event of it, whether that was applied or not
	final bool  // its version does not come back
}

// Mirror is a copy of what one ordered log tells: a stream, or a partition of a topic.
type Mirror struct {
	mu      sync.Mutex
	objects map[string]*Object // that are there, by key
	known   map[string]*Object // these and those that are gone, by key and uid
	began   map[string]int64   // the place of each snapshot's first marker
	place   int64              // of the last event
}

// New returns a mirror of nothing, for a log whose first place is not below zero.
func New() *Mirror {
	return &Mirror{objects: map[string]*Object{}, known: map[string]*Object{}, began: map[string]int64{}, place: -1}
}

// Key names an object as the keys of Kafka's records do. It has no API version and no entry: the
// same object can be told in another version, and by another entry, after a change of the configuration.
func (e *Event) Key() string {
	part := func(s, empty string) string {
		if s == "" {
			return empty
		}
		return s
	}
	return strings.Join([]string{e.Cluster, part(e.Group, "core"), e.Resource, part(e.Namespace, "_"), e.Name}, "/")
}

// Apply takes the event at a place of the log.
func (m *Mirror) Apply(place int64, e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if place <= m.place {
		return // rule 1: the broker delivers it again
	}
	m.place = place
	switch e.Type {
	case "dev.kbridge.snapshot.started":
		if _, known := m.began[e.Snapshot]; !known { // it comes again where a restart goes on with it
			m.began[e.Snapshot] = place
		}
	case "dev.kbridge.snapshot.completed":
		m.sweep(e)
	case "dev.kbridge.object.added", "dev.kbridge.object.updated", "dev.kbridge.object.synced", "dev.kbridge.object.deleted":
		m.change(place, e)
	}
}

// change applies an event of an object.
func (m *Mirror) change(place int64, e Event) {
	key, deleted := e.Key(), e.Type == "dev.kbridge.object.deleted"
	there, known := m.objects[key], m.known[key+" "+e.UID]
	if known != nil {
		known.place = place // a sweep needs it also where the event is passed over
	}
	another := there != nil && there.UID != e.UID
	if known != nil && known.isNewerThan(&e, deleted) || another && !deleted && there.isNewerThan(&e, deleted) {
		return // rule 2
	}
	o := &Object{UID: e.UID, Version: e.ResourceVersion, Epoch: e.Epoch, Gone: deleted, event: e, place: place}
	o.event.Data = nil
	m.known[key+" "+e.UID] = o
	switch {
	case !deleted: // rule 3
		if another {
			there.Gone, there.Body = true, nil
		}
		o.Body, o.Truncated = e.Data, e.Truncated
		m.objects[key] = o
	default: // rule 4
		if known != nil && known.Epoch == e.Epoch && before(e.ResourceVersion, known.Version) {
			o.Version = known.Version
		}
		// An id with a version is of an object that may only have left a selection.
		o.final = !strings.HasSuffix(e.ID, "."+e.ResourceVersion+".deleted")
		if !another {
			delete(m.objects, key)
		}
	}
}

// isNewerThan says that the event tells of a state before the one that is known.
func (o *Object) isNewerThan(e *Event, deleted bool) bool {
	switch {
	case e.Epoch != o.Epoch:
		return e.Epoch < o.Epoch
	case deleted && e.Inferred:
		return false // it has the version that kbridge knew, and is true now
	case e.ResourceVersion == o.Version:
		return o.final
	}
	return before(e.ResourceVersion, o.Version)
}

// before compares two versions of one resource, as numbers. Where they are none, which some aggregated
// API servers have, nothing is known to be before anything.
func before(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// sweep is rule 5: what is in the scope of a snapshot and had no event since it began is not there.
func (m *Mirror) sweep(e Event) {
	var marker struct {
		Scope struct{ Namespaces, ExcludeNamespaces []string }
	}
	began, seen := m.began[e.Snapshot]
	if err := json.Unmarshal(e.Data, &marker); err != nil || !seen {
		return // it came too late for the beginning
	}
	for key, o := range m.known {
		was := &o.event
		if o.place < began && was.Cluster == e.Cluster && was.Group == e.Group && was.Resource == e.Resource && was.Entry == e.Entry &&
			(e.Namespace == "" || e.Namespace == was.Namespace) && isIn(was.Namespace, marker.Scope.Namespaces, marker.Scope.ExcludeNamespaces) {
			delete(m.known, key)
			if m.objects[was.Key()] == o {
				delete(m.objects, was.Key())
			}
		}
	}
}

// isIn says that a scope with these lists has the namespace.
func isIn(namespace string, only, except []string) bool {
	return (len(only) == 0 || slices.Contains(only, namespace)) && !slices.Contains(except, namespace)
}

// Remove is for a record of Kafka without a value: compaction may have taken the `deleted` event before it.
func (m *Mirror) Remove(place int64, key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[key]; place > m.place && o != nil {
		o.Gone, o.Body, o.place = true, nil, place
		delete(m.objects, key)
	}
	m.place = max(m.place, place)
}

// Each calls f for each object that is there, while nothing changes.
func (m *Mirror) Each(f func(key string, o *Object)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, o := range m.objects {
		f(key, o)
	}
}

// Handler serves what mirrors have, as JSON: uid and version by key. It is the place for what a consumer does with its objects.
func Handler(mirrors ...*Mirror) http.HandlerFunc {
	type state struct {
		UID     string `json:"uid"`
		Version string `json:"version"`
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		all := map[string]state{}
		for _, m := range mirrors {
			m.Each(func(key string, o *Object) { all[key] = state{o.UID, o.Version} })
		}
		_ = json.NewEncoder(w).Encode(all) // an error: the reader is gone
	}
}
