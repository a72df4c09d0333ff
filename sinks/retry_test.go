package sinks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	var b Backoff
	for _, most := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		most *= time.Millisecond
		if got := b.Pause(); got < most/2 || got > most {
			t.Errorf("a pause is %v, want %v to %v", got, most/2, most)
		}
	}
	b.Reset()
	if got := b.Pause(); got > 100*time.Millisecond {
		t.Errorf("after a success the pause is %v", got)
	}
}

func TestAPauseEndsWithItsTimeItsContextOrItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff
		if !b.Wait(t.Context(), nil) {
			t.Error("it was cut short")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		end := make(chan struct{})
		close(end)
		began := time.Now()
		if b.Wait(ctx, nil) || b.Wait(t.Context(), end) || time.Since(began) > 0 {
			t.Errorf("it was not cut short, and took %v", time.Since(began))
		}
	})
}

func TestTheCauseOfWaitingIsTold(t *testing.T) {
	down := errors.New("the broker is down")
	if err := GivenUp(context.Canceled, down); !errors.Is(err, context.Canceled) || !errors.Is(err, down) {
		t.Errorf("the error is %v", err)
	}
	if err := GivenUp(context.Canceled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if err := GivenUp(ErrClosed, down); !errors.Is(err, ErrClosed) || errors.Is(err, down) {
		t.Errorf("the error is %v", err)
	}
}
