package sinks

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Held is what a sink holds, from Publish until done is called, and the end of the sink:
// it is closed to new events, what it holds ends, and then whatever of it runs. The
// sink's own mutex guards it.
type Held struct {
	Events, Bytes int

	mu      *sync.Mutex
	closed  bool
	closing chan struct{} // closed by Shut
	idle    chan struct{} // closed when nothing is held any more; nil before Shut
	room    chan struct{} // has a token when there may be room
	ended   chan struct{} // closed by End
}

// NewHeld returns one that holds nothing. The mutex is the sink's.
func NewHeld(mu *sync.Mutex) Held {
	return Held{mu: mu, closing: make(chan struct{}), room: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Enter lets an event in. It calls try, with the mutex held, until that returns nil for
// an event that was taken; else what try returns tells when to try again. The error is
// why the event was not taken: the sink is closed, or ctx has ended.
func (h *Held) Enter(ctx context.Context, try func() (again <-chan struct{})) error {
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return ErrClosed
		}
		again := try()
		h.mu.Unlock()
		if again == nil {
			return nil
		}
		select {
		case <-again:
		case <-h.closing:
		case <-h.ended:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Fits says that there is room for an event of this size. The largest one fits when it
// is alone. The mutex is held.
func (h *Held) Fits(size, maxEvents, maxBytes int) bool {
	return h.Events == 0 || h.Events < maxEvents && h.Bytes+size <= maxBytes
}

// Room has a token when it is worth asking Fits again.
func (h *Held) Room() <-chan struct{} { return h.room }

// Retry makes who waits for room try again. The mutex is held.
func (h *Held) Retry() {
	select {
	case h.room <- struct{}{}:
	default:
	}
}

// Add notes that an event is held. The mutex is held.
func (h *Held) Add(size int) {
	h.Events++
	h.Bytes += size
}

// Leave notes that an event is held no more. The mutex is held.
func (h *Held) Leave(size int) {
	h.Events--
	h.Bytes -= size
	h.Retry()
	h.noteIdle()
}

func (h *Held) noteIdle() {
	if h.idle == nil || h.Events > 0 {
		return
	}
	select {
	case <-h.idle:
	default:
		close(h.idle)
	}
}

// Closed says that no event is taken any more. The mutex is held.
func (h *Held) Closed() bool { return h.closed }

// Shut lets no event in any more. A second call does nothing. The mutex is held.
func (h *Held) Shut() {
	if h.closed {
		return
	}
	h.closed = true
	h.idle = make(chan struct{})
	h.noteIdle()
	close(h.closing)
}

// End says that nothing of the sink runs any more.
func (h *Held) End() { close(h.ended) }

// Drain waits, after Shut, until nothing is held any more or ctx has ended, calls stop,
// and waits until all has ended that stop ends.
func (h *Held) Drain(ctx context.Context, stop func()) error {
	select {
	case <-h.idle:
	case <-h.ended:
	case <-ctx.Done():
	}
	stop()
	select {
	case <-h.ended:
		return nil
	case <-ctx.Done():
	}
	// Every wait ends with stop; this is for what has to be put away.
	select {
	case <-h.ended:
		return nil
	case <-time.After(time.Second):
		return fmt.Errorf("it has not ended: %w", ctx.Err())
	}
}
