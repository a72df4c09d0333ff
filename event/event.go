// Package event owns what kbridge says: deltas as the informer makes them, events
// as a sink sends them, their identity, their order key and their CloudEvents form.
// It knows neither Kubernetes clients nor brokers.
package event

import "time"

// Type is the kind of an event.
type Type uint8

// The types of events. Deltas have the first four.
const (
	// Added is an object that was not there before.
	Added Type = iota + 1
	// Updated is an object with another resourceVersion than before.
	Updated
	// Deleted is an object that is gone, or that left the selection: on a watch
	// the two look the same.
	Deleted
	// Synced is an object as it stands, said again by a snapshot.
	Synced
	// SnapshotStarted and SnapshotCompleted stand around the events of a snapshot.
	SnapshotStarted
	SnapshotCompleted
	// Verified says that the objects which a sink has been told of were compared with
	// those that the server has.
	Verified

	typeEnd // one more than the last
)

// Types is the number of types plus one, for tables indexed by Type.
const Types = int(typeEnd)

var typeNames = [...]string{
	Added: "added", Updated: "updated", Deleted: "deleted", Synced: "synced",
	SnapshotStarted: "started", SnapshotCompleted: "completed", Verified: "verified",
}

// String returns the short name, as the configuration's `types` has it.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return "unknown"
}

// ParseType returns the delta's type of that short name, and false where there is none.
func ParseType(s string) (Type, bool) {
	for t := Added; t <= Synced; t++ {
		if typeNames[t] == s {
			return t, true
		}
	}
	return 0, false
}

// The CloudEvents attribute `type` is one of these and the short name.
const (
	objectPrefix   = "dev.kbridge.object."
	snapshotPrefix = "dev.kbridge.snapshot."
	otherPrefix    = "dev.kbridge."
)

// IsMarker says that events of the type are about a watch as a whole, and not about an
// object.
func (t Type) IsMarker() bool { return t > Synced }

// cloudEventsType is the attribute `type`.
func (t Type) cloudEventsType() string {
	switch {
	case t <= Synced:
		return objectPrefix + t.String()
	case t == Verified:
		return otherPrefix + t.String()
	default:
		return snapshotPrefix + t.String()
	}
}

// Delta is one step from one state of an object to the next, as the informer saw
// or inferred it.
type Delta struct {
	Type     Type
	Resource *Resource
	// Object is the new state; for Deleted the last known one, with the deletion's
	// resourceVersion where the deletion was seen and its own where it was inferred.
	Object *Object
	// Plain is the object's JSON where it is at hand, as long as the delta is being
	// handed over; nil: it has to be unpacked.
	Plain []byte
	// Old is the state before: set for Updated, and for Deleted where the index had
	// one. Nil where it is not known.
	Old *Object
	// Snapshot is the id of the snapshot that this delta is part of, or empty.
	Snapshot string
	// Inferred says that the state was found by comparison (a relist, a restart)
	// and not seen as a change of its own: changes in between are not known.
	Inferred bool
	// Time is when kbridge learnt of it.
	Time time.Time
}

// Key names the object whose events must stay in order. Two objects of one name,
// one after the other, share it.
type Key struct {
	Group, Resource, Namespace, Name string
}

// Key returns the key of the delta's object.
func (d *Delta) Key() Key {
	return Key{d.Resource.Group, d.Resource.Resource, d.Object.Namespace, d.Object.Name}
}

// Event is one message for a sink. The lane that made it owns it; a sink may read
// it until it has called done, and changes nothing in it.
type Event struct {
	Type     Type
	Resource *Resource
	Key      Key
	// ID is unique within the resource's source and the same whenever the same
	// change is told again.
	ID              string
	UID             string
	ResourceVersion string
	// Epoch is that of the cluster's history in which the version was given.
	Epoch    uint32
	Snapshot string
	Inferred bool
	// Truncated says that the object was larger than the broker takes, and that the
	// data has its metadata alone.
	Truncated bool
	Time      time.Time
	// TraceParent is the context of the event's span, as W3C's header traceparent has it; empty
	// where the event is not traced. Who encodes the event sets it before.
	TraceParent string
	Format      Format
	// Value is the message's body: the CloudEvents document in structured format,
	// the data alone in binary format.
	Value []byte
}

// DedupID identifies the event among those of all sources: `<source>/<id>`, and for
// what a first snapshot announces `<source>/<id>/<snapshot>`. What announced the object
// before, under the same id, must not keep a broker from storing it as a part of this
// snapshot, at whose end consumers drop what they have not seen in it. A NATS message
// carries it as Nats-Msg-Id.
func (e *Event) DedupID() string {
	if e.Snapshot != "" && e.Type < Synced {
		return e.Resource.source + "/" + e.ID + "/" + e.Snapshot
	}
	return e.Resource.source + "/" + e.ID
}
