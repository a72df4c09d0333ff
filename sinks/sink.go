// Package sinks defines what a sink is: the one contract between the lanes of
// package bridge and the brokers. Each broker's client has a package of its own.
package sinks

import (
	"context"
	"errors"

	"github.com/kbridge-io/kbridge/event"
)

// Sink sends events to one broker.
//
// Order: a lane never has two events of one Key under way, so a sink need not
// order what is in flight; it must not resend an event on its own once done has
// been called.
//
// Retries are the lane's. A sink makes one attempt, says how it ended, and keeps
// its connection alive by itself.
//
// Ownership: the event belongs to the lane. A sink reads it until it calls done
// and not after.
type Sink interface {
	// Name is the sink's name in the configuration.
	Name() string
	// Publish hands over one event. It may block while the client's own buffers are
	// full, and returns early when ctx ends. done is called exactly once, from any
	// goroutine, possibly before Publish returns, when the broker has answered, or
	// when it is clear that no answer will come. A nil error means stored: the broker
	// has acknowledged. done does not block.
	Publish(ctx context.Context, e *event.Event, done func(error))
	// Close ends what is under way and closes the connection, within ctx. Events whose
	// done has not been called get an error. No Publish may be running or follow.
	Close(ctx context.Context) error
}

// ErrPermanent is wrapped by an error that no retry of the same event can mend:
// larger than the broker's limit, or rejected by the broker for what it is. All
// other errors are worth a retry, an authorization that was refused included:
// permissions change.
var ErrPermanent = errors.New("permanent")

// ErrTooLarge is wrapped, beside ErrPermanent, by the error of an event that is
// larger than the broker takes: without its body it may pass.
var ErrTooLarge = errors.New("too large")

// ErrClosed is the end of an event that a closed sink got, or had under way.
var ErrClosed = errors.New("sink is closed")

// Permanent marks err as one that no retry can mend.
func Permanent(err error) error { return &permanentError{err: err} }

// TooLarge marks err as one that no retry of an event of this size can mend.
func TooLarge(err error) error { return &permanentError{err: err, large: true} }

type permanentError struct {
	err   error
	large bool
}

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
func (e *permanentError) Is(target error) bool {
	return target == ErrPermanent || e.large && target == ErrTooLarge
}
