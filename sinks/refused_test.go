package sinks_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/sinks"
)

func TestWhatIsRefusedIsNamedUntilItIsStoredItself(t *testing.T) {
	r := sinks.NewRefused(time.Second)
	now := time.Now()
	a, b := errors.New("a is refused"), errors.New("b is refused")
	r.Note("b", b, now)
	r.Note("a", a, now)
	if err := r.Err(now); !errors.Is(err, a) || err.Error() != "a is refused (and 1 more)" {
		t.Errorf("of two there is %v", err)
	}
	r.Ended("a")
	r.Ended("c")
	if err := r.Err(now); !errors.Is(err, b) || r.None() {
		t.Errorf("after a was stored there is %v", err)
	}
	r.Ended("b")
	if err := r.Err(now); err != nil || !r.None() {
		t.Errorf("after both were stored there is %v", err)
	}
}

func TestWhatIsNotTriedAgainIsForgotten(t *testing.T) {
	r := sinks.NewRefused(time.Hour)
	now := time.Now()
	failure := errors.New("refused")
	r.Note("a", failure, now)
	if err := r.Err(now.Add(time.Hour)); !errors.Is(err, failure) {
		t.Errorf("while an attempt may still be under way there is %v", err)
	}
	r.Note("a", failure, now.Add(time.Hour))
	if err := r.Err(now.Add(2 * time.Hour)); !errors.Is(err, failure) {
		t.Errorf("after another attempt there is %v", err)
	}
	if err := r.Err(now.Add(3 * time.Hour)); err != nil {
		t.Errorf("after it was given up there is %v", err)
	}
}

func TestFewStandForAllThatIsRefused(t *testing.T) {
	r := sinks.NewRefused(time.Second)
	now := time.Now()
	for i := range 100_000 {
		r.Note(strconv.Itoa(i), errors.New("refused"), now)
	}
	if err := r.Err(now); err == nil || err.Error() != "refused (and 1023 more)" {
		t.Errorf("of very many there is %v", err)
	}
}
