//go:build unix

// Package process runs the programs that the bench measures, and looks at them from
// outside: what the kernel says of their CPU and memory, and what they say at /metrics.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
)

const (
	// startLimit is how long a program may take to say where it serves its metrics.
	startLimit = 30 * time.Second
	// stopLimit is how long it may take to end.
	stopLimit = 30 * time.Second
)

// Process is a program that runs. One goroutine uses it.
type Process struct {
	// Started is when it was started.
	Started time.Time

	child   *child.Process
	log     *log
	address string // of its HTTP server
}

// Start starts a program that says on standard error, with address=HOST:PORT, where it
// serves its metrics.
func Start(ctx context.Context, cmd *exec.Cmd) (*Process, error) {
	p := &Process{log: &log{}, Started: time.Now()}
	cmd.Stderr = p.log
	var err error
	if p.child, err = child.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	for deadline := time.Now().Add(startLimit); ; {
		if p.address = p.log.address(); p.address != "" {
			return p, nil
		}
		select {
		case <-p.child.Done():
			return nil, fmt.Errorf("%s ended: %w\n%s", cmd.Path, p.child.Wait(), p.Log())
		case <-ctx.Done():
			p.child.Kill()
			return nil, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.child.Kill()
			return nil, fmt.Errorf("%s does not serve metrics:\n%s", cmd.Path, p.Log())
		}
	}
}

// PID is the process's id.
func (p *Process) PID() int { return p.child.PID() }

// Ended is an error when the process runs no more.
func (p *Process) Ended() error {
	if p.child.Running() {
		return nil
	}
	return fmt.Errorf("the program ended: %w\n%s", p.child.Wait(), p.Log())
}

// Log is the end of what the program wrote to standard error.
func (p *Process) Log() string {
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// Stop asks the program to end, and kills it if it does not.
func (p *Process) Stop() error {
	p.child.Signal(syscall.SIGTERM)
	select {
	case <-p.child.Done():
		if err := p.child.Wait(); err != nil {
			return fmt.Errorf("stop the program: %w\n%s", err, p.Log())
		}
		return nil
	case <-time.After(stopLimit):
		p.child.Kill()
		return fmt.Errorf("the program did not end within %s, and was killed:\n%s", stopLimit, p.Log())
	}
}

// Signal reaches the program.
func (p *Process) Signal(s syscall.Signal) { p.child.Signal(s) }

// Kill ends the program at once.
func (p *Process) Kill() { p.child.Kill() }

// CPU is what the program has used since it started, in user and system mode.
func (p *Process) CPU() (time.Duration, error) { return CPU(p.child.PID()) }

// Memory is the program's RssAnon in bytes: what it has of the machine's memory without
// the pages of files, which the kernel can take back.
func (p *Process) Memory() (int64, error) { return rssAnon(p.child.PID()) }

// Quiet waits until the program uses less than a twentieth of a core.
func (p *Process) Quiet(ctx context.Context, limit time.Duration) error {
	const window = 250 * time.Millisecond
	deadline := time.Now().Add(limit)
	for {
		before, err := p.CPU()
		if err != nil {
			return errors.Join(err, p.Ended())
		}
		if err := sleep(ctx, window); err != nil {
			return err
		}
		after, err := p.CPU()
		if err != nil {
			return errors.Join(err, p.Ended())
		}
		if after-before < window/20 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the program is still at work after %s", limit)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// log keeps what a program writes. It is used from several goroutines.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// address finds where the program serves its metrics.
func (l *log) address() string {
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, "serving metrics") || !strings.HasSuffix(line, "\n") {
			continue
		}
		if _, address, found := strings.Cut(strings.TrimSpace(line), "address="); found {
			return address
		}
	}
	return ""
}
