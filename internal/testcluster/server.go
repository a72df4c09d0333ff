package testcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
)

// startLimit is how long a server may take to get ready; a start takes a second or two on an idle machine.
const startLimit = 2 * time.Minute

// Server is one of the cluster's two processes. One call at a time starts or ends it: the others wait.
type Server struct {
	name  string
	path  string
	args  []string
	log   string
	ready func(context.Context) error

	mu   sync.Mutex
	proc *child.Process // guarded by mu; nil when nobody has started it, or somebody has ended it
}

// Start starts the server with the data it had before, and returns when it is ready. It does nothing when the server runs.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && s.proc.Running() {
		return nil
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(s.path, s.args...)
	cmd.Dir = filepath.Dir(s.log)
	cmd.Stdout, cmd.Stderr = log, log
	if s.proc, err = child.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	if err := s.awaitReady(ctx); err != nil {
		s.proc.Kill()
		s.proc = nil
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	return nil
}

// Restart stops the server in an orderly way and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Stop asks the server to end and waits until it has. When ctx ends before, the server is killed and the error says
// so. It does nothing when the server is down.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	defer func() { s.proc = nil }()
	s.proc.Signal(syscall.SIGTERM)
	select {
	case <-s.proc.Done():
		return nil
	case <-ctx.Done():
		s.proc.Kill()
		return fmt.Errorf("stop %s: killed it, as it did not end: %w", s.name, context.Cause(ctx))
	}
}

// Kill ends the server at once, with SIGKILL, and returns when it has ended. It does nothing when the server is down.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.Kill()
		s.proc = nil
	}
}

// Running tells whether the process is there.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && s.proc.Running()
}

// waitReady waits until a running server is ready again, after something it depends on came back.
func (s *Server) waitReady(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return fmt.Errorf("wait for %s: it is down", s.name)
	}
	if err := s.awaitReady(ctx); err != nil {
		return fmt.Errorf("wait for %s: %w", s.name, err)
	}
	return nil
}

// awaitReady is called with mu held and a process.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s", startLimit))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-s.proc.Done():
			return fmt.Errorf("it ended by itself (%s)\n%s", ending(s.proc.Wait()), s.logTail(failedServerLog))
		case <-ctx.Done():
			return fmt.Errorf("%w; its last answer: %w\n%s", context.Cause(ctx), last, s.logTail(failedServerLog))
		case <-tick.C:
			err := s.ready(ctx)
			if err == nil {
				return nil
			}
			if ctx.Err() == nil { // else the question was cut short, and the answer before says more
				last = err
			}
		}
	}
}

// How much of a log is shown, in bytes: of a server that did not start, and of one in whose test something failed.
const (
	failedServerLog = 8 << 10
	failedTestLog   = 2 << 10
)

// logTail returns the last lines of the log under a heading that names the file.
func (s *Server) logTail(size int64) string {
	heading := fmt.Sprintf("the end of %s's log, %s:", s.name, s.log)
	f, err := os.Open(s.log)
	if err != nil {
		return heading + " " + err.Error()
	}
	defer f.Close()
	var tail []byte
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		from := max(0, end-size)
		tail = make([]byte, end-from)
		n, _ := f.ReadAt(tail, from)
		tail = tail[:n]
		if _, rest, ok := bytes.Cut(tail, []byte("\n")); ok && from > 0 {
			tail = rest // the first line is a part of one
		}
	}
	return heading + "\n" + string(bytes.TrimSpace(tail))
}

// ending says how a process ended.
func ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
