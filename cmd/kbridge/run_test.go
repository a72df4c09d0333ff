package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/bridge"
	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// asCommand in the environment makes the test binary kbridge itself.
const asCommand = "KBRIDGE_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	goleak.VerifyTestMain(testcluster.Main(kafkabroker.Main(m)))
}

// lockedBuffer is written by a command and read by its test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *lockedBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(b.String(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q does not come:\n%s", text, b.String())
		}
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kbridge.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// running is a command that runs within the test.
type running struct {
	out, log lockedBuffer
	stop     context.CancelFunc
	code     chan int
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, code: make(chan int, 1)}
	go func() { r.code <- execute(ctx, args, &r.out, &r.log) }()
	return r
}

// end stops the command and expects it to end cleanly.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	select {
	case code := <-r.code:
		if code != 0 {
			t.Errorf("exit code %d:\n%s", code, r.log.String())
		}
	case <-time.After(time.Minute):
		t.Fatalf("the command does not end:\n%s", r.log.String())
	}
}

func TestAWrongConfigurationExitsWithTwoAndContactsNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	contacted := make(chan struct{})
	go func() {
		if c, err := listener.Accept(); err == nil {
			c.Close()
			close(contacted)
		}
	}()
	file := writeConfig(t, fmt.Sprintf(`resources:
  - resource: pods
    lableSelector: app=x
    namespaces: 7
sinks:
  - name: a
    nats: {urls: ['nats://%s']}
  - name: a
    stdout: {}
`, listener.Addr()))
	for _, args := range [][]string{{"run", "--config", file}, {"check", "--config", file}} {
		var out, log bytes.Buffer
		if code := execute(t.Context(), args, &out, &log); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d", args, code, exitUsage)
		}
		for _, want := range []string{"resources[0].lableSelector", "labelSelector", "resources[0].namespaces", "sinks[1].name", file + ":3", file + ":4", file + ":8"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%v: %q is not in\n%s", args, want, log.String())
			}
		}
	}
	select {
	case <-contacted:
		t.Error("the broker was contacted")
	default:
	}
}

func TestCommandLinesThatAreWrongExitWithTwo(t *testing.T) {
	for _, args := range [][]string{
		{"run"}, {"run", "--config"}, {"run", "--nope"}, {"check", "x"}, {"check", "x", "y"}, {"check", "x", "--config", "y"}, {"rbac", "x"}, {"run", "--config", "/does/not/exist.yaml"},
		{"run", "--config", writeConfig(t, "resources: [{resource: pods}]"), "--log-format", "xml"},
		{"run", "--config", writeConfig(t, "resources: [{resource: pods}]"), "--grace-period", "-1s"},
		{"run", "--config", writeConfig(t, "resources: [{resource: pods}]"), "--grace-period", "2562047h"},
		{"run", "--log-level", "loud"}, {"run", "--log-level", "debug-4"}, {"run", "--log-level", "-8"}, {"nope"},
	} {
		var out, log bytes.Buffer
		if code := execute(t.Context(), args, &out, &log); code != exitUsage {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, exitUsage, log.String())
		}
		if !strings.HasPrefix(log.String(), "kbridge: ") {
			t.Errorf("%q: no message: %q", args, log.String())
		}
	}
}

func TestCheckSaysWhatTheExamplesSelect(t *testing.T) {
	for _, name := range []string{"quickstart.yaml", "nats.yaml"} {
		var out, log bytes.Buffer
		if code := execute(t.Context(), []string{"check", "--config", filepath.Join("..", "..", "examples", name)}, &out, &log); code != 0 {
			t.Errorf("%s: exit code %d: %s", name, code, log.String())
		}
		if !strings.Contains(out.String(), "is valid") || !strings.Contains(out.String(), "deployments.apps in ") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

func TestRunPublishesAndEndsWithNothingLeftRunning(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	file := writeConfig(t, fmt.Sprintf(`
resources:
  - {resource: secrets, namespaces: [%[1]s], data: change}
  - {resource: configmaps, namespaces: [%[1]s]}
sinks: [{name: out, stdout: {}}]
server: {address: '127.0.0.1:0'}
`, ns))
	dir := t.TempDir()
	r := start(t, "run", "--config", file, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", dir, "--log-level", "debug", "--log-format", "json")
	r.log.waitFor(t, `"listed"`)
	in := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace(ns)
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"},
		"stringData": map[string]any{"password": "correct-horse-battery"},
	}}
	if _, err := in.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := in.Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.out.waitFor(t, "dev.kbridge.object.deleted")
	r.end(t)

	ns1, err := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for lines := bufio.NewScanner(strings.NewReader(r.out.String())); lines.Scan(); {
		var e struct{ Type, Cluster string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("a line is no JSON: %v: %s", err, lines.Text())
		}
		if e.Cluster != string(ns1.GetUID()) {
			t.Errorf("cluster %q, want the UID of kube-system %q", e.Cluster, ns1.GetUID())
		}
		if !strings.HasPrefix(e.Type, "dev.kbridge.snapshot.") {
			types = append(types, e.Type)
		}
	}
	if want := []string{"dev.kbridge.object.added", "dev.kbridge.object.deleted"}; fmt.Sprint(types) != fmt.Sprint(want) {
		t.Errorf("types %q, want %q", types, want)
	}
	for _, leak := range []string{"correct-horse-battery", "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"} {
		if strings.Contains(r.out.String(), leak) || strings.Contains(r.log.String(), leak) {
			t.Errorf("the Secret's value is in what the command printed")
		}
	}
	if want := `"msg":"published","sink":"out","type":"`; !strings.Contains(r.log.String(), want) {
		t.Errorf("%s is not in the log:\n%s", want, r.log.String())
	}
	for lines := bufio.NewScanner(strings.NewReader(r.log.String())); lines.Scan(); {
		if !json.Valid(lines.Bytes()) {
			t.Errorf("a line of the log is no JSON: %s", lines.Text())
		}
	}
}

func TestRunAndTailMeetInTheEmbeddedServer(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	file := writeConfig(t, fmt.Sprintf(`
cluster: here
resources: [{resource: configmaps, namespaces: [%s]}]
server: {address: ''}
`, ns))
	dir := t.TempDir()
	tail := start(t, "tail", "--data-dir", dir, "--all", "-o", "json")
	r := start(t, "run", "--config", file, "--embedded", "--kubeconfig", cluster.Kubeconfig(), "--data-dir", dir)
	r.log.waitFor(t, "listed")
	in := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
	for i := range 3 {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("c", i)}}}
		if _, err := in.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tail.out.waitFor(t, `"c2"`)
	if n := strings.Count(tail.out.String(), "dev.kbridge.object.added"); n != 3 {
		t.Errorf("%d additions, want 3:\n%s", n, tail.out.String())
	}
	tail.end(t)
	r.end(t)
}

func TestAnAPIServerThatIsNotThereIsWaitedForAndNamed(t *testing.T) {
	address := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}()
	kubeconfig := writeConfig(t, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: 'http://%s'}}]}`, address))
	file := writeConfig(t, "resources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\nserver: {address: ''}")
	r := start(t, "run", "--config", file, "--kubeconfig", kubeconfig, "--data-dir", t.TempDir())
	r.log.waitFor(t, "connection refused")
	r.end(t)
}

func TestRunEndsWithAnErrorWhenTheReaderOfItsOutputIsGone(t *testing.T) {
	cluster := testcluster.Shared(t)
	file := writeConfig(t, "cluster: c\nresources: [{resource: namespaces}]\nsinks: [{name: out, stdout: {}}]\nserver: {address: ''}")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	reader.Close()
	var log lockedBuffer
	code := make(chan int, 1)
	go func() {
		code <- execute(t.Context(), []string{"run", "--config", file, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir()}, writer, &log)
	}()
	select {
	case got := <-code:
		if got != exitFailed || !strings.Contains(log.String(), "the reader of the output is gone") {
			t.Errorf("exit code %d:\n%s", got, log.String())
		}
	case <-time.After(time.Minute):
		t.Fatalf("the command does not end:\n%s", log.String())
	}
}

// While a sink can not connect it blocks, and no attempt to publish fails.
func TestABrokerThatCanNotBeReachedIsCounted(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := listener.Addr().String()
	listener.Close()
	cfg, err := config.Parse("x", fmt.Appendf(nil, "resources: [{resource: pods}]\nsinks: [{name: n, nats: {urls: ['nats://%[1]s']}}, {name: k, kafka: {brokers: ['%[1]s']}}]\n", away))
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	metrics := bridge.NewMetrics(reg)
	for _, entry := range cfg.Sinks {
		o, err := newOutput(t.Context(), adaptersOf(t.TempDir(), io.Discard, reg, log), entry, nil, metrics, &status.Tail{}, log)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := o.close(); err != nil {
				t.Error(err)
			}
		}()
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		counted := 0
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "kbridge_sink_failures_total" && m.GetCounter().GetValue() > 1 {
					counted++
				}
			}
		}
		if counted == len(cfg.Sinks) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("of %d sinks' failures %d are counted", len(cfg.Sinks), counted)
		}
	}
}
