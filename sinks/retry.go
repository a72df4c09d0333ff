package sinks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Backoff is the pause between attempts to reach a broker: 100 ms, doubling up to 5 s.
// Each is shortened at random by up to a half, so that many clients do not come back at
// once. The zero value begins with the shortest. One goroutine uses it.
type Backoff struct{ next time.Duration }

const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// Reset begins anew: an attempt succeeded.
func (b *Backoff) Reset() { b.next = 0 }

// Pause is how long to wait before the next attempt.
func (b *Backoff) Pause() time.Duration {
	b.next = min(max(2*b.next, firstPause), longPause)
	return b.next/2 + rand.N(b.next/2+1)
}

// Wait waits for the next pause. It returns false when ctx or end, which may be nil,
// came first.
func (b *Backoff) Wait(ctx context.Context, end <-chan struct{}) bool {
	t := time.NewTimer(b.Pause())
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-end:
		return false
	case <-ctx.Done():
		return false
	}
}

// GivenUp is the error of an event that was not taken because of err, with the cause of
// the waiting, if there is one.
func GivenUp(err, cause error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case cause == nil:
		return fmt.Errorf("publish: %w", err)
	}
	return fmt.Errorf("publish: %w: %w", err, cause)
}
