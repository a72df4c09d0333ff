// Package test holds the whole-process tests: kbridge as users run it, against a
// real API server and a real NATS server, each a process that can be killed.
package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(withoutBinary{testcluster.Main(m)})
}

// withoutBinary removes the binary that the tests ran when they have ended.
type withoutBinary struct{ testcluster.TestingM }

func (m withoutBinary) Run() int {
	defer func() { _ = os.RemoveAll(binary.dir) }()
	return m.TestingM.Run()
}

// patience is how long anything that must come may take, on a slow machine.
const patience = 90 * time.Second

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

var binary struct {
	sync.Once
	dir, path string
	err       error
}

// kbridgeBinary builds the command once for all tests.
func kbridgeBinary(t *testing.T) string {
	t.Helper()
	binary.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "kbridge-test-"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "kbridge")
		args := []string{"build", "-o", binary.path}
		if raceEnabled {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, "github.com/kbridge-io/kbridge/cmd/kbridge")...).CombinedOutput()
		if err != nil {
			binary.err = fmt.Errorf("build kbridge: %w\n%s", err, out)
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// process is a kbridge with its configuration and its folder. It can end and be
// started again.
type process struct {
	t             *testing.T
	child         *child.Process
	kubeconfig    string
	configuration string
	dir           string
	wrap          []string // a command that runs kbridge, or nothing
	flags         []string // more flags of kbridge run
	env           []string // more of the environment
	address       string
	logs          *syncBuffer
}

// start runs kbridge with the configuration, to which it adds the HTTP server.
func start(t *testing.T, cluster *testcluster.Cluster, configuration string) *process {
	t.Helper()
	p := prepare(t, cluster.Kubeconfig(), configuration)
	p.again()
	return p
}

// prepare is start without the start.
func prepare(t *testing.T, kubeconfig, configuration string) *process {
	t.Helper()
	p := &process{t: t, kubeconfig: kubeconfig, configuration: configuration, dir: t.TempDir(), logs: &syncBuffer{}}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("kbridge's log:\n%s", tail(p.logs.String(), 60))
		}
	})
	return p
}

// again starts kbridge, in the same folder as before.
func (p *process) again() {
	p.t.Helper()
	p.address = freeAddress(p.t)
	file := filepath.Join(p.dir, "kbridge.yaml")
	if err := os.WriteFile(file, []byte(p.configuration+"\nserver: {address: '"+p.address+"'}\n"), 0o600); err != nil {
		p.t.Fatal(err)
	}
	args := append(slices.Clone(p.wrap), kbridgeBinary(p.t), "run", "--config", file, "--kubeconfig", p.kubeconfig, "--data-dir", p.dir)
	args = append(args, p.flags...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stderr, cmd.Stdout = p.logs, p.logs
	var err error
	if p.child, err = child.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends kbridge as kill -9 does, if it runs.
func (p *process) kill() {
	if p.child != nil {
		p.child.Kill()
	}
}

// exitCode waits until kbridge ends by itself.
func (p *process) exitCode() int {
	p.t.Helper()
	select {
	case <-p.child.Done():
	case <-time.After(patience):
		p.t.Fatalf("kbridge does not end\n%s", tail(p.logs.String(), 30))
	}
	var exit *exec.ExitError
	if err := p.child.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

// ready waits for /readyz.
func (p *process) ready() {
	p.t.Helper()
	eventually(p.t, "kbridge is ready", func() error {
		p.mustRun()
		body, err := p.get("/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, body)
		}
		return nil
	})
}

// mustRun fails the test if the process has ended.
func (p *process) mustRun() {
	p.t.Helper()
	if !p.child.Running() {
		p.t.Fatalf("kbridge ended: %v\n%s", p.child.Wait(), tail(p.logs.String(), 30))
	}
}

// stop sends SIGTERM and expects a clean end.
func (p *process) stop() {
	p.t.Helper()
	p.child.Signal(syscall.SIGTERM)
	select {
	case <-p.child.Done():
	case <-time.After(patience):
		p.t.Fatalf("kbridge does not end\n%s", tail(p.logs.String(), 30))
	}
	if err := p.child.Wait(); err != nil {
		p.t.Fatalf("kbridge ended with %v\n%s", err, tail(p.logs.String(), 30))
	}
}

func (p *process) get(path string) (string, error) {
	resp, err := httpClient.Get("http://" + p.address + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// Each request has its own connection, so that none is left when a test ends.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

// metric sums the samples of a metric that have all these labels, each written as
// name="value".
func (p *process) metric(name string, labels ...string) float64 {
	p.t.Helper()
	sum, err := p.tryMetric(name, labels...)
	if err != nil {
		p.t.Fatalf("metrics: %v", err)
	}
	return sum
}

// tryMetric is metric for a kbridge that may not answer.
func (p *process) tryMetric(name string, labels ...string) (float64, error) {
	body, err := p.get("/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(body) {
		sample, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if sample != name && !strings.HasPrefix(sample, name+"{") {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(sample, l) }) {
			continue
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		sum += f
	}
	return sum, nil
}

// stored waits until the state has not been written for a while: what was dealt with
// is in it.
func (p *process) stored() {
	p.t.Helper()
	last, since := -1.0, time.Now()
	eventually(p.t, "the state is stored", func() error {
		commits := p.metric("kbridge_state_commits_total")
		if commits != last {
			last, since = commits, time.Now()
		}
		if quiet := time.Since(since); quiet < 2500*time.Millisecond {
			return fmt.Errorf("it was written %s ago", quiet)
		}
		return nil
	})
}

// anonymousMemory is the process's RssAnon in bytes: what it holds itself, without
// the pages of its binary.
func (p *process) anonymousMemory() int64 {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.child.PID()))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return kib << 10
		}
	}
	p.t.Fatal("no RssAnon")
	return 0
}

// cloudEvent is a structured event as a consumer reads it.
type cloudEvent struct {
	SpecVersion     string
	ID              string
	Source          string
	Type            string
	Subject         string
	Time            time.Time
	Namespace       string
	Name            string
	UID             string
	Resource        string
	ResourceVersion string
	Entry           string
	Epoch           uint32
	Snapshot        string
	Inferred        bool
	Data            json.RawMessage

	natsSubject string
	msgID       string
	stored      time.Time // when the stream took it
}

// short is the event's type without its prefix.
func (e cloudEvent) short() string { return strings.TrimPrefix(e.Type, "dev.kbridge.object.") }

// dedupID is what a broker recognises a repeat by.
func (e cloudEvent) dedupID() string {
	id := e.Source + "/" + e.ID
	if e.Snapshot != "" && e.short() == "added" {
		id += "/" + e.Snapshot
	}
	return id
}

// marker says that the event is about a watch, and not about an object.
func (e cloudEvent) marker() bool { return !strings.HasPrefix(e.Type, "dev.kbridge.object.") }

// object names the event's object.
func (e cloudEvent) object() string { return e.Resource + " " + e.Namespace + "/" + e.Name }

// objects are the events that are no markers.
func objects(events []cloudEvent) []cloudEvent {
	return slices.DeleteFunc(slices.Clone(events), cloudEvent.marker)
}

// readStream returns all that the server's stream holds, in order.
func readStream(t *testing.T, server *natsserver.Server) []cloudEvent {
	t.Helper()
	nc, err := natsgo.Connect(server.URL(), natsgo.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := js.Stream(ctx, "KBRIDGE")
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.DeleteConsumer(ctx, consumer.CachedInfo().Name) }() // or it stays for minutes
	events := make([]cloudEvent, 0, info.State.Msgs)
	for uint64(len(events)) < info.State.Msgs {
		batch, err := consumer.Fetch(min(500, int(info.State.Msgs)-len(events)), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			var e cloudEvent
			if err := json.Unmarshal(m.Data(), &e); err != nil {
				t.Fatalf("a message is no structured event: %v: %s", err, m.Data())
			}
			e.natsSubject, e.msgID = m.Subject(), m.Headers().Get("Nats-Msg-Id")
			if meta, err := m.Metadata(); err == nil {
				e.stored = meta.Timestamp
			}
			events = append(events, e)
		}
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d messages", len(events), info.State.Msgs)
		}
	}
	return events
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// syncBuffer collects a process's output while it is read.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// tail is the last n lines of s.
func tail(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
