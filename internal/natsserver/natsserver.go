// Package natsserver runs real nats-servers for tests: each a process of its own,
// with JetStream on file storage, that can be killed and started again on the same
// port and the same store. The server is built from the module's own requirement.
package natsserver

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
)

const module = "github.com/nats-io/nats-server/v2"

// Store stands for the folder of a server's store in its configuration.
const Store = "STORE"

// readyTimeout is generous: tests share their machine.
const readyTimeout = 30 * time.Second

// Server is one nats-server. Its methods are for the test's goroutine.
type Server struct {
	t      testing.TB
	binary string
	dir    string
	port   int
	config string
	proc   *child.Process
	log    output
}

// New starts a server, which ends with the test. The config has further lines of a
// nats-server's configuration file, such as an authorization block. One that has settings
// of its own for JetStream names the folder of its store as Store has it.
func New(t testing.TB, config string) *Server {
	t.Helper()
	s := Reserve(t, config)
	s.Start()
	return s
}

// Reserve prepares a server and its port, without starting it.
func Reserve(t testing.TB, config string) *Server {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("build nats-server: %v", err)
	}
	s := &Server{t: t, binary: binary, dir: t.TempDir(), port: FreePort(t), config: config}
	t.Cleanup(s.Kill)
	return s
}

// FreePort returns a port on which nobody listens.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Address is the server's host and port, the same over restarts.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is where clients connect to.
func (s *Server) URL() string { return "nats://" + s.Address() }

// Log returns what the server has written to its log since it was made.
func (s *Server) Log() string { return s.log.String() }

// Start starts the server and waits until it takes connections and has recovered
// its streams.
func (s *Server) Start() {
	s.t.Helper()
	path := filepath.Join(s.dir, "server.conf")
	s.writeConfig(path)
	cmd := exec.Command(s.binary, "-c", path)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	before := s.log.Len()
	proc, err := child.Start(cmd)
	if err != nil {
		s.t.Fatalf("start nats-server: %v", err)
	}
	s.proc = proc
	deadline := time.Now().Add(readyTimeout)
	for !strings.Contains(s.log.String()[before:], "Server is ready") || !greets(s.Address()) {
		select {
		case <-proc.Done():
			s.t.Fatalf("nats-server ended: %v\n%s", proc.Wait(), s.Log())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("nats-server is not ready:\n%s", s.Log())
		}
	}
}

// Configure replaces the further lines of the configuration. A running server
// reads them at once.
func (s *Server) Configure(config string) {
	s.t.Helper()
	s.config = config
	s.writeConfig(filepath.Join(s.dir, "server.conf"))
	if s.proc == nil {
		return
	}
	before := strings.Count(s.Log(), "Reloaded server configuration")
	s.proc.Signal(syscall.SIGHUP)
	deadline := time.Now().Add(readyTimeout)
	for strings.Count(s.Log(), "Reloaded server configuration") == before {
		if time.Now().After(deadline) {
			s.t.Fatalf("nats-server does not reload:\n%s", s.Log())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends the server in order, if it runs.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Kill ends the server as kill -9 does, if it runs.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Pause stops the process without ending it: connections stay and say nothing.
func (s *Server) Pause() {
	s.t.Helper()
	s.proc.Signal(syscall.SIGSTOP)
	// The signal has been sent when Signal returns, and has arrived a little later.
	for deadline := time.Now().Add(readyTimeout); !stopped(s.proc.PID()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatal("nats-server does not stand still")
		}
	}
}

// stopped says that all threads of the process stand still. Where there is no /proc it
// has to be believed.
func stopped(pid int) bool {
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
func (s *Server) Resume() { s.proc.Signal(syscall.SIGCONT) }

func (s *Server) end(sig syscall.Signal) {
	s.t.Helper()
	if s.proc == nil {
		return
	}
	s.proc.Signal(sig)
	select {
	case <-s.proc.Done():
	case <-time.After(readyTimeout):
		s.t.Errorf("nats-server does not end:\n%s", s.Log())
		s.proc.Kill()
	}
	s.proc = nil
}

func (s *Server) writeConfig(path string) {
	s.t.Helper()
	store, config := strconv.Quote(filepath.Join(s.dir, "store")), s.config
	if strings.Contains(config, Store) {
		config = strings.ReplaceAll(config, Store, store)
	} else {
		config = fmt.Sprintf("jetstream {store_dir: %s}\n%s", store, config)
	}
	text := fmt.Sprintf("host: 127.0.0.1\nport: %d\n%s\n", s.port, config)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatalf("write the configuration of nats-server: %v", err)
	}
}

// greets reports whether a server says who it is on the address.
func greets(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "INFO ")
}

// build returns the path of the server's binary. It is kept in the user's cache by
// its version, so that only the first test ever has to link it.
var build = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	version, err := goTool(ctx, "list", "-m", "-f", "{{.Version}}", module)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "kbridge-test")
	binary := filepath.Join(dir, fmt.Sprintf("nats-server-%s-%s", version, runtime.Version()))
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// Tests of several packages may do this at once: each builds its own, and the
	// last one's stays.
	own := fmt.Sprintf("%s.%d", binary, os.Getpid())
	if _, err := goTool(ctx, "build", "-o", own, module); err != nil {
		return "", err
	}
	return binary, os.Rename(own, binary)
})

func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, problems.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Len()
}
