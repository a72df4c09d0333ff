package sinks

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sinkOf holds at most two events.
type sinkOf struct {
	mu   sync.Mutex
	held Held
}

func newSink() *sinkOf {
	s := &sinkOf{}
	s.held = NewHeld(&s.mu)
	return s
}

func (s *sinkOf) enter(ctx context.Context) error {
	return s.held.Enter(ctx, func() <-chan struct{} {
		if !s.held.Fits(10, 2, 100) {
			return s.held.Room()
		}
		s.held.Add(10)
		return nil
	})
}

func (s *sinkOf) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.Leave(10)
}

func (s *sinkOf) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held.Shut()
}

func TestWhatDoesNotFitWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		for range 2 {
			if err := s.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var third atomic.Bool
		go func() {
			if err := s.enter(t.Context()); err != nil {
				t.Error(err)
			}
			third.Store(true)
		}()
		synctest.Wait()
		if third.Load() {
			t.Error("a third event was taken")
		}
		s.leave()
		synctest.Wait()
		if !third.Load() || s.held.Events != 2 || s.held.Bytes != 20 {
			t.Errorf("of three events one has ended, and %d with %d bytes are held", s.held.Events, s.held.Bytes)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting ended with %v", err)
		}
	})
}

func TestTheLargestEventFitsAlone(t *testing.T) {
	s := newSink()
	if !s.held.Fits(1000, 2, 100) {
		t.Error("it does not fit an empty sink")
	}
	s.held.Add(1)
	if s.held.Fits(1000, 2, 100) {
		t.Error("it fits beside another")
	}
}

func TestASinkEndsWhenWhatItHoldsHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		for range 2 {
			if err := s.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		waited := make(chan error, 1)
		go func() { waited <- s.enter(t.Context()) }()
		synctest.Wait()
		drained := make(chan error, 1)
		s.shut()
		s.shut()
		go func() { drained <- s.held.Drain(t.Context(), s.held.End) }()
		if err := <-waited; !errors.Is(err, ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
		s.leave()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Errorf("it ended with %v while an event was held", err)
		default:
		}
		s.leave()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		if err := s.enter(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after its end it says %v", err)
		}
	})
}

func TestASinkThatDoesNotEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		if err := s.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.shut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stopped := false
		err := s.held.Drain(ctx, func() { stopped = true })
		if !errors.Is(err, context.DeadlineExceeded) || !stopped {
			t.Errorf("it ended with %v, stopped: %t", err, stopped)
		}
	})
}
