package event

import (
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"
)

// lastSnapshot is the number of the newest snapshot of this process.
var lastSnapshot atomic.Int64

// NewSnapshotID returns an id for a snapshot, or a comparison, that begins now: later ones sort behind
// earlier ones, and no two of a process are equal. The namespaces of a resource, whose
// first lists begin together, share the source in which an event's id must be unique.
func NewSnapshotID(now time.Time) string {
	for n := now.UnixNano(); ; {
		last := lastSnapshot.Load()
		if n = max(n, last+1); lastSnapshot.CompareAndSwap(last, n) {
			return strconv.FormatInt(n, 36)
		}
	}
}

// Marker is an event about a watch as a whole: the begin or the end of a snapshot, or
// the outcome of a comparison with the server.
type Marker struct {
	Type     Type
	Resource *Resource
	// Namespace is the one that the watch is of, where the selection names namespaces:
	// each has snapshots of its own.
	Namespace string
	// Snapshot is the snapshot's id; Verification that of a comparison.
	Snapshot, Verification string
	// Count is how many events a snapshot had, told at its end.
	Count int
	// Compared is how many objects the server had, and Differed how many were not there or
	// were not as they had been told.
	Compared, Differed int
	// ResourceVersion is that of the list which the snapshot or the comparison is of.
	ResourceVersion string
	Time            time.Time
}

// Names that stand in the place of an object's where a subject or a key needs one.
const (
	snapshotName = "_snapshot"
	verifiedName = "_verified"
)

// Encode makes the marker's event in the given format.
func (m *Marker) Encode(e *Event, format Format) {
	*e = Event{
		Type: m.Type, Resource: m.Resource, Snapshot: m.Snapshot, Epoch: m.Resource.History.Epoch(), Time: m.Time, Format: format,
		Key: Key{m.Resource.Group, m.Resource.Resource, m.Namespace, snapshotName},
		ID:  m.Snapshot + "." + m.Type.String(),
	}
	data := struct {
		Snapshot        string `json:"snapshot,omitempty"`
		Count           *int   `json:"count,omitempty"`
		Compared        *int   `json:"compared,omitempty"`
		Differed        *int   `json:"differed,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
		Scope           Scope  `json:"scope"`
	}{Snapshot: m.Snapshot, Scope: m.Resource.Scope}
	switch m.Type {
	case SnapshotCompleted:
		data.Count, data.ResourceVersion = &m.Count, m.ResourceVersion
	case Verified:
		data.Compared, data.Differed, data.ResourceVersion = &m.Compared, &m.Differed, m.ResourceVersion
		e.Key.Name, e.ID = verifiedName, m.Verification+"."+m.Type.String()
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic("BUG: encode a marker: " + err.Error())
	}
	e.setData(body)
}

// setData makes Value of data in the event's format.
func (e *Event) setData(data []byte) {
	if e.Format == Binary {
		e.Value = data
		return
	}
	e.Value = append(append(append(e.appendHead(nil), `,"data":`...), data...), '}')
}
