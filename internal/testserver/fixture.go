// Package testserver is what the real servers of tests have in common: a process that can be killed, paused and
// restarted, a port that stays its own meanwhile, a lock among the test processes that fetch or build it, and its life
// in one test or in all tests of a package. What the servers are is left to the packages that start them.
//
// It needs a Unix system. On Linux the servers die with the process that started them, however that ends.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Server is one or more processes that tests use together.
type Server interface {
	// StartAll starts what is down and returns when all serve.
	StartAll(context.Context) error
	Stop() error
	// LogTail is what a failed test shows.
	LogTail() string
}

// Fixture gives tests their servers. Its methods may be called from any goroutine.
type Fixture[S Server] struct {
	// Name is what messages call the server, Package where Main and Shared are.
	Name, Package string
	// TooLate is what else to say where the tests' time limit comes before the server serves.
	TooLate string

	mu     sync.Mutex
	start  func(context.Context) (S, error) // guarded by mu; nil while Main's tests do not run
	server S                                // guarded by mu, as the next two
	there  bool
	err    error // why it could not start: the tests after the first fail at once
}

// New starts a server for one test, and stops it when the test has ended. A test that failed shows the end of its logs.
func (f *Fixture[S]) New(t testing.TB, start func(context.Context) (S, error)) S {
	t.Helper()
	ctx, cancel := f.withDeadlineOf(t)
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		t.Fatalf("start %s: %v", f.Name, err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop %s: %v", f.Name, err)
		}
	})
	showLogsOfFailure(t, s)
	return s
}

// TestingM is a *testing.M, or something that runs it.
type TestingM interface{ Run() int }

// Main lets the tests of a package share one server, which starts with the first call of Shared, and stops after the
// last test.
func (f *Fixture[S]) Main(m TestingM, start func(context.Context) (S, error)) TestingM {
	return &run[S]{f, m, start}
}

type run[S Server] struct {
	fixture *Fixture[S]
	m       TestingM
	start   func(context.Context) (S, error)
}

// Run runs the tests and stops the server, if there is one.
func (r *run[S]) Run() int {
	f := r.fixture
	f.mu.Lock()
	f.start = r.start
	f.mu.Unlock()
	code := r.m.Run()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start = nil
	if f.there {
		f.there = false
		if err := f.server.Stop(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the shared %s: %v\n", f.Name, err)
			return max(code, 1)
		}
	}
	return code
}

// Shared returns the server that the package's tests share; all of it runs.
func (f *Fixture[S]) Shared(t testing.TB) S {
	t.Helper()
	s, err := f.shared(t)
	if err != nil {
		t.Fatalf("start the shared %s: %v", f.Name, err)
	}
	showLogsOfFailure(t, s)
	return s
}

func (f *Fixture[S]) shared(t testing.TB) (s S, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.start == nil {
		return s, fmt.Errorf("%[1]s.Shared needs this in the package: func TestMain(m *testing.M) { os.Exit(%[1]s.Main(m).Run()) }", f.Package)
	}
	if f.err != nil {
		return s, f.err
	}
	ctx, cancel := f.withDeadlineOf(t)
	defer cancel()
	if !f.there {
		f.server, f.err = f.start(ctx)
		f.there = f.err == nil
		return f.server, f.err
	}
	// A test that broke the rules, or a process that crashed, must not take the tests after it down.
	return f.server, f.server.StartAll(ctx)
}

// withDeadlineOf ends a little before the go command would end the test binary, so that the test can say what it
// waited for.
func (f *Fixture[S]) withDeadlineOf(t testing.TB) (context.Context, context.CancelFunc) {
	if td, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := td.Deadline(); ok {
			return context.WithDeadlineCause(t.Context(), at.Add(-5*time.Second),
				errors.New("the tests' time limit (go test -timeout) came first"+f.TooLate))
		}
	}
	return context.WithCancel(t.Context())
}

func showLogsOfFailure(t testing.TB, s Server) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.LogTail())
		}
	})
}
