package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// New starts a cluster for one test, and stops it when the test has ended. A test that failed shows the end of the
// nodes' logs. Where Available says that there can be no broker, the test is skipped; with CI=true it fails.
func New(t testing.TB, opts ...func(*Options)) *Cluster {
	t.Helper()
	require(t)
	ctx, cancel := withDeadlineOf(t)
	defer cancel()
	c, err := Start(ctx, collect(opts))
	if err != nil {
		t.Fatalf("start Kafka: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop Kafka: %v", err)
		}
	})
	showLogsOfFailure(t, c)
	return c
}

func require(t testing.TB) {
	t.Helper()
	switch err := Available(); {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("no Kafka broker for this test: %v", err)
	default:
		t.Skipf("no Kafka broker for this test: %v", err)
	}
}

// TestingM is a *testing.M, or something that runs it.
type TestingM interface{ Run() int }

// Main lets the tests of a package share one cluster, which starts with the first call of Shared, and stops after the
// last test. It goes into TestMain, with or without goleak:
//
//	func TestMain(m *testing.M) { os.Exit(kafkabroker.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkabroker.Main(m)) }
func Main(m TestingM, opts ...func(*Options)) TestingM { return &sharedRun{m: m, opts: opts} }

type sharedRun struct {
	m    TestingM
	opts []func(*Options)

	mu      sync.Mutex
	cluster *Cluster // guarded by mu; nil until a test asks for it
	err     error    // guarded by mu; why it could not start: the tests after the first fail at once
}

// shared is the run that Main made, while it runs.
var shared struct {
	sync.Mutex
	run *sharedRun
}

// Run runs the tests and stops the cluster, if there is one.
func (r *sharedRun) Run() int {
	shared.Lock()
	shared.run = r
	shared.Unlock()
	code := r.m.Run()
	shared.Lock()
	shared.run = nil
	shared.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cluster != nil {
		if err := r.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the shared Kafka:", err)
			return max(code, 1)
		}
	}
	return code
}

// Shared returns the cluster that the package's tests share; all its nodes run. Main must be in TestMain. A test keeps
// to topics of its own, and one that ends or pauses a node uses New. It skips and fails as New does.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	require(t)
	shared.Lock()
	r := shared.run
	shared.Unlock()
	if r == nil {
		t.Fatal("kafkabroker.Shared needs this in the package: func TestMain(m *testing.M) { os.Exit(kafkabroker.Main(m).Run()) }")
	}
	c, err := r.get(t)
	if err != nil {
		t.Fatalf("start the shared Kafka: %v", err)
	}
	showLogsOfFailure(t, c)
	return c
}

func (r *sharedRun) get(t testing.TB) (*Cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	ctx, cancel := withDeadlineOf(t)
	defer cancel()
	if r.cluster == nil {
		r.cluster, r.err = Start(ctx, collect(r.opts))
		return r.cluster, r.err
	}
	// A test that broke the rule, or a node that crashed, must not take the tests after it down.
	return r.cluster, r.cluster.StartAll(ctx)
}

func collect(opts []func(*Options)) Options {
	var o Options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// withDeadlineOf ends a little before the go command would end the test binary, so that the test can say what it
// waited for.
func withDeadlineOf(t testing.TB) (context.Context, context.CancelFunc) {
	if td, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := td.Deadline(); ok {
			return context.WithDeadlineCause(t.Context(), at.Add(-5*time.Second), errors.New("the tests' time limit (go test -timeout) came first"))
		}
	}
	return context.WithCancel(t.Context())
}

func showLogsOfFailure(t testing.TB, c *Cluster) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.LogTail())
		}
	})
}
