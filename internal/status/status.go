// Package status owns the document that says how a kbridge is: /statusz and the page at
// / show it. Its parts are filled by those that they are about. It also owns what takes
// time to know, which is rates and since when something is wrong, and the last events.
// docs/STATUS.md describes each field.
package status

import "time"

// Status is the whole document. Times are UTC; what is not known is left out.
type Status struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Cluster is its name, or its identity, as events have it.
	Cluster string `json:"cluster,omitempty"`
	// Server is the API server's address.
	Server string `json:"server"`
	// Ready is what /readyz answers.
	Ready     bool       `json:"ready"`
	Problems  []Problem  `json:"problems"`
	Resources []Resource `json:"resources"`
	Sinks     []Sink     `json:"sinks"`
	State     *State     `json:"state,omitempty"`
	// Debug is where Go's profiles are served.
	Debug string `json:"debug,omitempty"`
}

// Problem is something that is wrong now. About and Reason together tell it from others,
// and do not change while it lasts.
type Problem struct {
	// About is what it concerns, such as "sink audit".
	About string `json:"about"`
	// Reason is a word for programs.
	Reason string `json:"reason"`
	Text   string `json:"text"`
	// Advice is what to do.
	Advice string    `json:"advice"`
	Since  time.Time `json:"since"`
	// Unready says that it is why /readyz says no.
	Unready bool `json:"unready"`
}

// String is the problem's line in the answer of /readyz.
func (p Problem) String() string {
	if p.About == "" {
		return p.Text
	}
	return p.About + ": " + p.Text
}

// Phase is what the watches of a resource do.
type Phase string

// The phases.
const (
	// Starting is the time until the server has been asked what the resource is.
	Starting Phase = "starting"
	// Listing is the time until what was there at the start has been handed over.
	Listing Phase = "listing"
	// Watching says that all watches are up.
	Watching Phase = "watching"
	// Waiting says that a watch has ended and does not go on yet.
	Waiting Phase = "waiting"
)

// Resource is one entry of `resources`.
type Resource struct {
	// Entry is its name, and Resource what it selects, as kubectl writes it.
	Entry      string   `json:"entry"`
	Resource   string   `json:"resource"`
	Namespaces []string `json:"namespaces,omitempty"`
	Phase      Phase    `json:"phase"`
	// Since is when a watch ended that does not go on yet.
	Since time.Time `json:"since,omitzero"`
	// Objects is how many are known.
	Objects int64 `json:"objects"`
	// Changes counts what was handed to the sinks since the start, lists included.
	Changes          uint64    `json:"changes"`
	ChangesPerSecond float64   `json:"changesPerSecond"`
	LastChange       time.Time `json:"lastChange,omitzero"`
	// LagSeconds is for how long the sink that is furthest back has not had everything.
	LagSeconds float64 `json:"lagSeconds"`
	// Lists counts the lists that were begun, by reason.
	Lists     map[string]uint64 `json:"lists"`
	Errors    uint64            `json:"errors"`
	LastError *Error            `json:"lastError,omitempty"`
}

// Error is one that happened.
type Error struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Sink is one entry of `sinks`.
type Sink struct {
	Name string `json:"name"`
	// Kind is nats, kafka or stdout, and Target where events go there.
	Kind   string `json:"kind"`
	Target string `json:"target,omitempty"`
	// Events counts those that were acknowledged since the start.
	Events          uint64  `json:"events"`
	EventsPerSecond float64 `json:"eventsPerSecond"`
	Window          Window  `json:"window"`
	// OldestSeconds is the age of the oldest event that is not dealt with.
	OldestSeconds float64 `json:"oldestSeconds"`
	// BehindObjects is how many objects the sink is behind on, and FoldedObjects how many
	// of them are not owed to a first snapshot: of these it gets the last state alone.
	BehindObjects int         `json:"behindObjects"`
	FoldedObjects int         `json:"foldedObjects"`
	DeadLetters   DeadLetters `json:"deadLetters"`
	// Failures counts what failed and is tried again: attempts to publish, and what the
	// sink's client does beside that.
	Failures uint64 `json:"failures"`
	// Error is what keeps events from being delivered now.
	Error     string `json:"error,omitempty"`
	LastError *Error `json:"lastError,omitempty"`
}

// Window is what a lane holds, and may hold, for its sink.
type Window struct {
	Events    int   `json:"events"`
	MaxEvents int   `json:"maxEvents"`
	Bytes     int64 `json:"bytes"`
	MaxBytes  int64 `json:"maxBytes"`
	// Waiting is how many watches wait for room in it.
	Waiting int `json:"waiting"`
}

// DeadLetters are the events that were refused for good, or given up.
type DeadLetters struct {
	Events uint64    `json:"events"`
	Last   time.Time `json:"last,omitzero"`
	// Target is the file or the subject that has them.
	Target string `json:"target"`
}

// State is what survives a restart.
type State struct {
	Dir string `json:"dir"`
	// Commits counts the batches that were stored, and Errors those that could not be.
	Commits    uint64    `json:"commits"`
	LastCommit time.Time `json:"lastCommit,omitzero"`
	Errors     uint64    `json:"errors"`
	// PendingChanges are held until all sinks have settled them.
	PendingChanges int    `json:"pendingChanges"`
	Error          string `json:"error,omitempty"`
	LastError      *Error `json:"lastError,omitempty"`
}
