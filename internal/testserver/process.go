package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
)

const (
	// startLimit is how long a server may take to serve; a start takes a few seconds on an idle machine.
	startLimit = 2 * time.Minute
	// stopLimit is how long an orderly end may take.
	stopLimit = 30 * time.Second
)

// How much of a log is shown, in bytes: of a server that did not start, and of one in whose test something failed.
const (
	failedServerLog = 8 << 10
	failedTestLog   = 2 << 10
)

// Process is a server that can be started, ended in several ways, and started again. One call at a time starts or ends
// it: the others wait.
type Process struct {
	// Name is what messages call it.
	Name string
	// Command makes the command of a start.
	Command func() *exec.Cmd
	// Log is the path of what the server writes, which goes on over restarts.
	Log string
	// Ready asks the server once whether it serves.
	Ready func(context.Context) error

	mu     sync.Mutex
	proc   *child.Process // guarded by mu; nil when nobody has started it, or somebody has ended it
	paused bool           // guarded by mu
}

// Start starts the server with the data it had before, and returns when it is ready. It does nothing when the server runs.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc != nil && p.proc.Running() {
		return nil
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close() // the child has its own copy
	cmd := p.Command()
	cmd.Stdout, cmd.Stderr = log, log
	if p.proc, err = child.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.paused = false
	if err := p.await(ctx, p.proc, p.Ready); err != nil {
		p.proc.Kill()
		p.proc = nil
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

// Stop asks the server to end and waits until it has. One that does not end within half a minute, or before ctx does,
// is killed, and the error says so. It does nothing when the server is down.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return nil
	}
	defer func() { p.proc = nil }()
	ctx, cancel := context.WithTimeoutCause(ctx, stopLimit, fmt.Errorf("still running after %s", stopLimit))
	defer cancel()
	p.proc.Signal(syscall.SIGTERM)
	p.proc.Signal(syscall.SIGCONT) // a paused process would not see the other
	select {
	case <-p.proc.Done():
		return nil
	case <-ctx.Done():
		p.proc.Kill()
		return fmt.Errorf("stop %s: killed it, as it did not end: %w\n%s", p.Name, context.Cause(ctx), p.logTail(failedServerLog))
	}
}

// Restart stops the server in an orderly way and starts it again.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	return p.Start(ctx)
}

// Kill ends the server at once, with SIGKILL, and returns when it has ended. It does nothing when the server is down.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc != nil {
		p.proc.Kill()
		p.proc = nil
	}
}

// Pause stops the process without ending it: connections stay and say nothing. It returns when the process stands still.
func (p *Process) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return
	}
	p.paused = true
	p.proc.Signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(stopLimit); p.proc.Running() && !standsStill(p.proc.PID()) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// standsStill says that all threads of the process do. Where there is no /proc it has to be believed.
func standsStill(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is well-formed
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// "pid (name) state …", and the name may hold anything.
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return true
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc != nil {
		p.paused = false
		p.proc.Signal(syscall.SIGCONT)
	}
}

// Running tells whether the process is there and not paused.
func (p *Process) Running() bool { return p.running() != nil }

// PID is the process id, or 0 where there is no process.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil {
		return 0
	}
	return p.proc.PID()
}

// running returns nil for a process that is down or paused.
func (p *Process) running() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proc == nil || !p.proc.Running() || p.paused {
		return nil
	}
	return p.proc
}

// Await asks a running server until there is no error, and fails when the server ends meanwhile.
func (p *Process) Await(ctx context.Context, ask func(context.Context) error) error {
	proc := p.running()
	if proc == nil {
		return fmt.Errorf("wait for %s: it is down", p.Name)
	}
	if err := p.await(ctx, proc, ask); err != nil {
		return fmt.Errorf("wait for %s: %w", p.Name, err)
	}
	return nil
}

func (p *Process) await(ctx context.Context, proc *child.Process, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s", startLimit))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-proc.Done():
			return fmt.Errorf("it ended by itself (%s)\n%s", ending(proc.Wait()), p.logTail(failedServerLog))
		case <-ctx.Done():
			return fmt.Errorf("%w; its last answer: %w\n%s", context.Cause(ctx), last, p.logTail(failedServerLog))
		case <-tick.C:
			err := ask(ctx)
			if err == nil {
				return nil
			}
			if ctx.Err() == nil { // else the question was cut short, and the answer before says more
				last = err
			}
		}
	}
}

// ending says how a process ended.
func ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// LogTail returns as much of the log's end as a failed test shows.
func (p *Process) LogTail() string { return p.logTail(failedTestLog) }

// logTail returns the last lines of the log under a heading that names the file.
func (p *Process) logTail(size int64) string {
	heading := fmt.Sprintf("the end of the log of %s, %s:", p.Name, p.Log)
	f, err := os.Open(p.Log)
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
