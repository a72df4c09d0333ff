// Package state defines what survives a restart: of each watch the index and the
// position at which it is true, and of each sink what it has not received yet. It
// says nothing of how that is kept: state/file keeps it on a disk.
package state

import (
	"errors"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// Store keeps the state of one kbridge. All that belongs together is written
// together: after a crash a store holds the batches that were committed, each whole,
// and none of a batch that was not.
//
// The calls come from one goroutine. They block for as long as the medium takes.
type Store interface {
	// Contents lists what is stored.
	Contents() (Contents, error)
	// Info returns what is stored of a watch beside its index; the zero ViewInfo where
	// nothing is.
	Info(id ViewID) (ViewInfo, error)
	// LoadView returns what is stored of a watch, and calls each with every object of
	// its index, in no particular order. A watch that is not stored has the zero
	// ViewInfo and no objects. With an error, what each was given is not the index: that
	// some are missing is known at the end only. each does not call the Store.
	LoadView(id ViewID, each func(*event.Object) error) (ViewInfo, error)
	// LoadLane returns what is stored of a sink's part in a watch. known is false where
	// nothing is: the sink is new, or the watch is.
	LoadLane(id LaneID) (info LaneInfo, behind map[string]Behind, known bool, err error)
	// Commit writes a batch and returns when it would survive a crash. With an error it
	// may be committed again, or a larger one in its place: a full disk is an error that
	// passes. ErrFenced is one that does not. Until then nothing of it is stored; or all
	// of it, where the medium failed when it was to confirm.
	Commit(b *Batch) error
	// Retain forgets the watches, and the sinks' parts in them, that are not named, and
	// knows those that are: batches are of no others from then on. With each it is told the
	// rules that its bodies are to be under. What is to go thereby is residue, in the same
	// transaction.
	Retain(views map[ViewID]string, lanes []LaneID) error
	// Residue says what the medium still has of what is to go; see Residue.
	Residue() (Residue, error)
	// Scrub removes a part of the residue, so that batches can be written in between, and
	// returns whether none is left. Retain was called before, and there are no Views in
	// the residue. After an error or a crash it may be called again.
	Scrub() (done bool, err error)
	Close() error
}

// Residue is what the medium has of watches that were forgotten, and of bodies that were
// under other rules than they are to be: in what is stored, in what that is packed with,
// and where nothing refers to it any more. What an object was before it changed, or was
// deleted, under the rules that hold is none: the next batches write over it.
type Residue struct {
	// Since is when the first of it came to be; zero: there is none.
	Since time.Time
	// Views are the watches that are stored under other rules than they are to be: their
	// bodies have to be stored anew before the residue can go.
	Views []ViewID
}

// Contents are what a store has, by name, in no particular order.
type Contents struct {
	Views []ViewID
	Lanes []LaneID
	// Epoch is that of the last batch that had one.
	Epoch uint32
}

// ErrFenced says that another process has taken the state over since it was opened.
var ErrFenced = errors.New("the state belongs to another process now")

// ViewID names a watch: a selection and, where the selection names namespaces, one
// of them. Another selection is another watch.
type ViewID string

// LaneID names a sink's part in a watch.
type LaneID struct {
	Sink string
	View ViewID
}

// ViewInfo is what is known of a watch beside its index.
type ViewInfo struct {
	// Position is the resourceVersion at which the index is true. Empty: it is true at
	// none, because a list was being handed over.
	Position string `json:"position,omitempty"`
	// Listed says that a first list has been handed over whole. Until then the index
	// does not hold all that was there.
	Listed bool `json:"listed,omitempty"`
	// Cluster is the identity of the cluster that the objects are of.
	Cluster string `json:"cluster"`
	// Version is the API version that the bodies have.
	Version string `json:"version"`
	// Rules are the drops and the redaction that all of the bodies have been through. Empty:
	// they have not been through the same ones.
	Rules string `json:"rules"`
	// Only names the namespaces to which a watch of all of them was narrowed: equal names
	// are of equal ones. Empty: to none.
	Only string `json:"only,omitempty"`
}

// LaneInfo is what is known of a sink's part in a watch beside what it is behind on.
type LaneInfo struct {
	// Position is the resourceVersion up to which this sink has received everything,
	// save what it is behind on. It can be ahead of the watch's, which waits for the
	// slowest sink.
	Position string `json:"position,omitempty"`
	// Snapshot is the one that is under way, or nil.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// Snapshot is one that has begun and is not completed.
type Snapshot struct {
	ID string `json:"id"`
	// First is a snapshot that announces to the sink what it has never received; else
	// it says again what it has.
	First bool `json:"first,omitempty"`
	// Sent is the number of its events that have been acknowledged.
	Sent int `json:"sent"`
}

// Behind is what a sink last received of an object that has changed since.
type Behind struct {
	// UID and ResourceVersion are of the state it received; empty if it received none.
	UID             string
	ResourceVersion string
	// Gone is the last state of that object where it has been deleted since.
	Gone *event.Object
	// NowUID and NowResourceVersion are of what is there in its place; empty if nothing
	// is. Versions do not tell: the object may be back in the selection, or on a server
	// that was restored from a backup.
	NowUID             string
	NowResourceVersion string
	// Guessed says that the sink may not have received UID at all.
	Guessed bool
	// First says that the object is still owed to the first snapshot.
	First bool
}

// Batch is what is written together. It is not changed while Commit has it. Keys and
// the names of watches are not empty.
type Batch struct {
	// Epoch is the number of histories of the cluster that have ended; see event.Epoch. Zero:
	// as it was.
	Epoch uint32
	Views map[ViewID]*ViewChange
	Lanes map[LaneID]*LaneChange
}

// ViewChange is what has changed of a watch.
type ViewChange struct {
	Info ViewInfo
	// Objects are the states that changed, by key; nil where the object is gone.
	Objects map[string]*event.Object
}

// LaneChange is what has changed of a sink's part in a watch.
type LaneChange struct {
	Info LaneInfo
	// Behind are the entries that changed, by key; nil where the sink has caught up.
	Behind map[string]*Behind
}

// Key is the key of an object within its watch.
func Key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// SplitKey is Key's inverse.
func SplitKey(key string) (namespace, name string) {
	if namespace, name, found := strings.Cut(key, "/"); found {
		return namespace, name
	}
	return "", key
}
