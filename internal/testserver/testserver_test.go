package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a server that runs a shell script in a folder of its own.
func script(t *testing.T, text string, ready func(context.Context) error) *Process {
	dir := t.TempDir()
	p := &Process{
		Name: "script", Log: filepath.Join(dir, "script.log"), Ready: ready,
		Command: func() *exec.Cmd {
			cmd := exec.Command("/bin/sh", "-c", text)
			cmd.Dir = dir
			return cmd
		},
	}
	t.Cleanup(p.Kill)
	return p
}

func (p *Process) says(text string) error {
	if log, err := os.ReadFile(p.Log); err != nil || !strings.HasSuffix(string(log), text) {
		return fmt.Errorf("the log is %q: %w", log, err)
	}
	return nil
}

func TestAProcessIsStartedEndedAndStartedAgain(t *testing.T) {
	p := script(t, "echo starts; trap 'echo ends; exit' TERM; while :; do sleep 0.01; done", nil)
	p.Ready = func(context.Context) error { return p.says("starts\n") }
	for range 2 {
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	pid := p.PID()
	if !p.Running() || pid == 0 {
		t.Error("it does not run")
	}
	p.Pause()
	if p.Running() || !standsStill(pid) {
		t.Error("it runs though it was paused")
	}
	p.Resume()
	if err := p.Restart(t.Context()); err != nil || p.PID() == pid {
		t.Fatalf("it was restarted with %v, and is process %d after %d", err, p.PID(), pid)
	}
	p.Pause() // one that is paused ends too
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log, err := os.ReadFile(p.Log); err != nil || strings.Count(string(log), "starts\n") != 2 || strings.Count(string(log), "ends\n") != 2 {
		t.Errorf("it was ended twice, and the log is %q, %v", log, err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if err := p.says("starts\n"); err != nil || p.Running() || p.PID() != 0 {
		t.Errorf("it was killed: %v", err)
	}
	if err := p.Await(t.Context(), p.Ready); err == nil || !strings.Contains(err.Error(), "script: it is down") {
		t.Errorf("waiting for it ended with %v", err)
	}
}

func TestAStartThatFailsOrTakesTooLongIsReportedWithTheLastAnswerAndTheLog(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for text, want := range map[string][]string{
		"echo I will not be ready; exec sleep 600": {"start script", "deadline exceeded", "too sleepy", "I will not be ready"},
		"echo oh no; exit 3":                       {"start script", "it ended by itself (exit status 3)", "oh no"},
	} {
		p := script(t, text, func(context.Context) error { return errors.New("too sleepy") })
		ctx := late
		if strings.Contains(text, "exit") {
			ctx = t.Context()
		}
		err := p.Start(ctx)
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		if p.Running() {
			t.Error("the process was left behind")
		}
	}
}

func TestOneThatDoesNotEndIsKilled(t *testing.T) {
	p := script(t, "trap '' TERM; echo stays; while :; do sleep 0.01; done", nil)
	p.Ready = func(context.Context) error { return p.says("stays\n") }
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); err == nil || !strings.Contains(err.Error(), "killed it, as it did not end") || p.PID() != 0 {
		t.Errorf("stopping it ended with %v", err)
	}
}

func TestTheEndOfALogBeginsWithAWholeLine(t *testing.T) {
	p := script(t, "", nil)
	if got := p.LogTail(); !strings.Contains(got, "no such file") {
		t.Errorf("without a log: %q", got)
	}
	if err := os.WriteFile(p.Log, []byte(strings.Repeat("a line of some length\n", 1000)+"the last\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(p.LogTail(), "\n")
	if len(lines) < 3 || lines[1] != "a line of some length" || lines[len(lines)-1] != "the last" || !strings.Contains(lines[0], p.Log) {
		t.Errorf("the tail is %q", lines)
	}
}

func TestALockIsHeldByOneAndSaysWhoWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if TryLock(path) != nil {
		t.Error("there is no file to lock")
	}
	first, err := LockFile(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if TryLock(path) != nil {
		t.Error("two have the lock")
	}
	if _, err := first.File.WriteString("busy"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var message []byte
	_, err = LockFile(ctx, path, func(f *os.File) {
		message = make([]byte, 4)
		if _, err := f.ReadAt(message, 0); err != nil {
			t.Error(err)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) || string(message) != "busy" {
		t.Errorf("it read %q and ended with %v", message, err)
	}
	first.Release()
	second := TryLock(path)
	if second == nil {
		t.Fatal("nobody has the lock, and it cannot be had")
	}
	second.Release()
}

func TestAReservedPortIsNobodysAndItsServers(t *testing.T) {
	p, err := ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(p.Number))
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("somebody listens")
	}
	for range 2 { // a server may go and come back
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	p.Release()
	p.Release()
}

func TestOutputCountsStepsAndKeepsWhatTellsMore(t *testing.T) {
	o := Output{Kind: func(line string) Line {
		switch {
		case strings.HasPrefix(line, "step"):
			return Step
		case strings.HasPrefix(line, "noise"):
			return Noise
		}
		return Other
	}}
	for _, part := range []string{"step 1\nste", "p 2\nnoise\noh", " no\nexit"} {
		if _, err := o.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if o.Steps() != 2 || o.Tail() != "oh no\nexit" {
		t.Errorf("%d steps, and kept is %q", o.Steps(), o.Tail())
	}
	for i := range 2 * keptLines {
		fmt.Fprintf(&o, "\n%d", i)
	}
	if lines := strings.Split(o.Tail(), "\n"); len(lines) != keptLines+1 || lines[keptLines] != fmt.Sprint(2*keptLines-1) {
		t.Errorf("kept is %q", lines)
	}
}

// recorder is a server that only says what becomes of it.
type recorder struct {
	calls   *[]string
	stopErr error
}

func (r recorder) StartAll(context.Context) error {
	*r.calls = append(*r.calls, "start all")
	return nil
}
func (r recorder) Stop() error     { *r.calls = append(*r.calls, "stop"); return r.stopErr }
func (r recorder) LogTail() string { return "the log's end" }

type tests func() int

func (f tests) Run() int { return f() }

func TestASharedServerStartsOnceAtNeedAndStopsAfterTheLastTest(t *testing.T) {
	var calls []string
	f := Fixture[recorder]{Name: "recorder", Package: "recording"}
	start := func(context.Context) (recorder, error) {
		calls = append(calls, "start")
		return recorder{calls: &calls}, nil
	}
	if _, err := f.shared(t); err == nil || !strings.Contains(err.Error(), "recording.Main(m)") {
		t.Errorf("without Main the error is %v", err)
	}
	if code := f.Main(tests(func() int { return 7 }), start).Run(); code != 7 || len(calls) > 0 {
		t.Errorf("where nobody needs it the code is %d, after %q", code, calls)
	}
	code := f.Main(tests(func() int { f.Shared(t); f.Shared(t); return 0 }), start).Run()
	if want := []string{"start", "start all", "stop"}; code != 0 || !slices.Equal(calls, want) {
		t.Errorf("the code is %d, after %q", code, calls)
	}
	failing := func(ctx context.Context) (recorder, error) {
		r, _ := start(ctx)
		r.stopErr = errors.New("on purpose")
		return r, nil
	}
	if code := f.Main(tests(func() int { f.Shared(t); return 0 }), failing).Run(); code != 1 {
		t.Errorf("where the stop fails the code is %d", code)
	}
}

func TestAServerThatDoesNotStartIsTriedOnce(t *testing.T) {
	var calls bytes.Buffer
	f := Fixture[recorder]{Name: "recorder"}
	f.Main(tests(func() int {
		for range 2 {
			if _, err := f.shared(t); err == nil {
				t.Error("it started")
			}
		}
		return 0
	}), func(context.Context) (recorder, error) {
		calls.WriteString("start ")
		return recorder{}, errors.New("no")
	}).Run()
	if calls.String() != "start " {
		t.Errorf("calls are %q", calls.String())
	}
}

func TestAServerOfOneTestStopsWithIt(t *testing.T) {
	var calls []string
	f := Fixture[recorder]{Name: "recorder"}
	t.Run("test", func(t *testing.T) {
		f.New(t, func(ctx context.Context) (recorder, error) {
			if _, limited := t.Deadline(); limited {
				if _, ok := ctx.Deadline(); !ok {
					t.Error("the start is not bounded by the tests' time limit")
				}
			}
			return recorder{calls: &calls}, nil
		})
		if len(calls) > 0 {
			t.Errorf("calls are %q", calls)
		}
	})
	if !slices.Equal(calls, []string{"stop"}) {
		t.Errorf("calls are %q", calls)
	}
}
