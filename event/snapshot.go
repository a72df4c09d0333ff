package event

import (
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"
)

// lastSnapshot is the number of the newest snapshot of this process.
var lastSnapshot atomic.Int64

// NewSnapshotID returns an id for a snapshot that begins now: later ones sort behind
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

// Marker stands at the begin or the end of a snapshot.
type Marker struct {
	Type     Type // SnapshotStarted or SnapshotCompleted
	Resource *Resource
	// Namespace is the one that the snapshot is of, where the selection names
	// namespaces: each has snapshots of its own.
	Namespace string
	Snapshot  string
	// Count and ResourceVersion are told at the end: the number of events that were
	// sent, and the version of the list that they are from.
	Count           int
	ResourceVersion string
	Time            time.Time
}

// markerName stands in the place of an object's name where a subject or a key needs one.
const markerName = "_snapshot"

func (e *Event) isMarker() bool { return e.Type > Synced }

// Encode makes the marker's event in the given format.
func (m *Marker) Encode(e *Event, format Format) {
	*e = Event{
		Type: m.Type, Resource: m.Resource, Snapshot: m.Snapshot, Time: m.Time, Format: format,
		Key: Key{m.Resource.Group, m.Resource.Resource, m.Namespace, markerName},
		ID:  m.Snapshot + "." + m.Type.String(),
	}
	data := struct {
		Snapshot        string `json:"snapshot"`
		Count           *int   `json:"count,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	}{Snapshot: m.Snapshot}
	if m.Type == SnapshotCompleted {
		data.Count, data.ResourceVersion = &m.Count, m.ResourceVersion
	}
	body, err := json.Marshal(data)
	if err != nil {
		panic("BUG: encode a snapshot marker: " + err.Error())
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
