package status

import (
	"sync/atomic"
	"time"
)

// Outcome is how an event ended.
type Outcome string

// The outcomes.
const (
	Acknowledged Outcome = "acknowledged"
	DeadLetter   Outcome = "deadLetter"
)

// Event is what is told of an event: never its body.
type Event struct {
	// Time is when it was dealt with, and Seconds for how long that took from when kbridge
	// learnt of the change.
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds"`
	Sink    string    `json:"sink"`
	Outcome Outcome   `json:"outcome"`
	// Reason is why it is a dead letter.
	Reason          string `json:"reason,omitempty"`
	Type            string `json:"type"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Snapshot        bool   `json:"snapshot,omitempty"`
	Inferred        bool   `json:"inferred,omitempty"`
}

// tailEvents is how many events are kept for those who follow.
const tailEvents = 128

// Tail has the last events for as long as somebody follows them. Nobody waits for anybody:
// a lane that adds an event takes the place of the oldest one, whether that was read or
// not. A nil Tail has none.
type Tail struct {
	followers atomic.Int32
	next      atomic.Uint64 // the number of the next event
	ring      [tailEvents]atomic.Pointer[numbered]
}

type numbered struct {
	number uint64
	Event
}

// Followed says that it is worth calling Add. It costs nothing worth measuring.
func (t *Tail) Followed() bool { return t != nil && t.followers.Load() > 0 }

// Add keeps an event.
func (t *Tail) Add(e Event) {
	n := t.next.Add(1) - 1
	t.ring[n%tailEvents].Store(&numbered{n, e})
}

// Follow begins to follow the events that come from now on, until Close.
func (t *Tail) Follow() *Follower {
	t.followers.Add(1)
	return &Follower{tail: t, next: t.next.Load()}
}

// Follower reads a Tail. One goroutine uses it.
type Follower struct {
	tail *Tail
	next uint64
}

// Events are those since the last call, oldest first, and the number of those that were
// lost because more came than are kept.
func (f *Follower) Events() (events []Event, lost uint64) {
	for end := f.tail.next.Load(); f.next < end; f.next++ {
		e := f.tail.ring[f.next%tailEvents].Load()
		if e == nil || e.number < f.next {
			break // it is being added: the next call has it
		}
		if e.number > f.next {
			lost++
			continue
		}
		events = append(events, e.Event)
	}
	return events, lost
}

// Close ends the following.
func (f *Follower) Close() { f.tail.followers.Add(-1) }
