package bridge

import (
	"context"
	"fmt"

	"github.com/kbridge-io/kbridge/internal/plural"
)

// Drain waits until all that the ports have taken is dealt with. Where the state
// keeps what the sink is behind on, that is left for the next start. If ctx ends first
// Drain returns a LeftError. Run must be running.
func (l *Lane) Drain(ctx context.Context, kept bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = kept
	behind := func() int {
		if kept {
			return 0
		}
		return l.behindCount
	}
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	})
	defer stop()
	for l.events+behind() > 0 && ctx.Err() == nil {
		l.room.Wait()
	}
	if l.events+behind() == 0 {
		return nil
	}
	left := 0
	for _, p := range l.ports {
		for e := p.head; e != nil; e = e.after {
			if !e.dealt {
				left++
			}
		}
	}
	return &LeftError{Sink: l.Name(), Events: left, Behind: l.behindCount, Cause: context.Cause(ctx)}
}

// LeftError says what a lane had not delivered when it was stopped.
type LeftError struct {
	Sink   string
	Events int // not acknowledged
	Behind int // objects that the sink is behind on
	Cause  error
}

func (e *LeftError) Error() string {
	if e.Behind > 0 {
		return fmt.Sprintf("drain sink %s: not acknowledged: %s; behind on: %s: %v", e.Sink, plural.Of(e.Events, "event"), plural.Of(e.Behind, "object"), e.Cause)
	}
	return fmt.Sprintf("drain sink %s: not acknowledged: %s: %v", e.Sink, plural.Of(e.Events, "event"), e.Cause)
}

func (e *LeftError) Unwrap() error { return e.Cause }
