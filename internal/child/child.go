//go:build unix

// Package child starts processes that do not outlive the one that started them:
// servers in tests, and those of the demo.
package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Process is a child in a process group of its own. On Linux it is killed when the
// process that started it ends, however that ends.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
	err  error         // what Wait returned; set before done is closed
}

// Start starts cmd, whose SysProcAttr it sets.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = attributes()
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	// Linux sends the signal when the thread that started the child ends, so the
	// thread has to stay for as long as the child. It is never unlocked: it ends with
	// the goroutine.
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running reports whether the child has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the child's end and returns what exec.Cmd.Wait does.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal reaches the child and what the child started. A child that has ended is
// left alone.
func (p *Process) Signal(s syscall.Signal) {
	if p.Running() {
		_ = syscall.Kill(-p.PID(), s) // fails only where it has just ended
	}
}

// Kill ends the child at once and waits for its end.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}
