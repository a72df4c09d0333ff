//go:build install && linux

package install

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

const (
	stageVariable  = "KBRIDGE_INSTALL_STAGE"
	groupsVariable = "KBRIDGE_INSTALL_GROUPS"
	dirVariable    = "KBRIDGE_INSTALL_DIR"
)

func TestMain(m *testing.M) {
	var code int
	var err error
	switch stage := os.Getenv(stageVariable); stage {
	case "":
		code, err = outside()
	case "grouped":
		code, err = grouped()
	case "first":
		code, err = first()
	case "tests":
		code, err = tests(m)
	default:
		err = fmt.Errorf("no stage %q", stage)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// outside makes what the node is made of, and then the node.
func outside() (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("a node needs root")
	}
	dir, err := os.MkdirTemp("", "kbridge-install-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	made, err := prepare(dir)
	if err != nil {
		return 1, err
	}
	groups, err := makeGroups()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, groups.remove()) }()
	return next("grouped", 0, append(made.environment(), groupsVariable+"="+strings.Join(groups, ":"), dirVariable+"="+dir)...)
}

// grouped moves into the groups, so that the namespace of groups has them as its root.
func grouped() (int, error) {
	if err := groups(strings.Split(os.Getenv(groupsVariable), ":")).enter(); err != nil {
		return 1, err
	}
	return next("first", syscall.CLONE_NEWNS|syscall.CLONE_NEWNET|syscall.CLONE_NEWPID|syscall.CLONE_NEWIPC|syscall.CLONE_NEWUTS|syscall.CLONE_NEWCGROUP)
}

// next runs this program in its next stage, in new namespaces, and returns its exit code. The stage dies with this process.
func next(stage string, namespaces uintptr, environment ...string) (int, error) {
	runtime.LockOSThread() // the kernel watches the thread
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(append(os.Environ(), environment...), stageVariable+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("start stage %s: %w", stage, err)
	}
	// The stages end from the inside out: the first one, which removes the groups, must not go before.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range interrupts {
			_ = cmd.Process.Kill() // it may have ended by itself
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}
