package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/sinks/credentials"
	"github.com/kbridge-io/kbridge/sinks/stdout"

	"github.com/kbridge-io/kbridge/config"
)

// address waits until the command serves, and returns where.
func (r *running) address(t *testing.T) string {
	t.Helper()
	r.log.waitFor(t, "serving metrics and health")
	return regexp.MustCompile(`msg="serving metrics and health" address=(\S+)`).FindStringSubmatch(r.log.String())[1]
}

// statusz reads the document, in which there is nothing that the struct does not have.
func statusz(t *testing.T, address string) (doc status.Status) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(get(t, "http://"+address+"/statusz")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// eventually asks until the document is as it should be.
func eventually(t *testing.T, address, what string, is func(doc status.Status) bool) status.Status {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		doc := statusz(t, address)
		if is(doc) {
			return doc
		}
		if time.Now().After(end) {
			text, _ := json.MarshalIndent(doc, "", " ")
			t.Fatalf("%s: not within a minute:\n%s", what, text)
		}
	}
}

func TestStatuszTellsWhatIsThereAndWhatIsWrongInWords(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	in := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
	create := func(name string) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}}
		if _, err := in.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := listener.Addr().String()
	listener.Close()
	dir := t.TempDir()
	file := writeConfig(t, fmt.Sprintf(`
cluster: here
resources:
  - {name: mine, resource: configmaps, namespaces: [%s]}
  - {group: late.dev, resource: gadgets, sinks: [out]}
sinks:
  - {name: out, stdout: {}}
  - {name: audit, nats: {urls: ['nats://%s']}}
state: {file: {dir: '%s'}}
server: {address: '127.0.0.1:0', debug: true}
`, ns, away, dir))
	r := start(t, "run", "--config", file, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", dir, "--grace-period", "1s")
	defer r.end(t)
	address := r.address(t)
	doc := eventually(t, address, "it watches and delivers", func(doc status.Status) bool {
		return len(doc.Resources) == 2 && doc.Resources[0].Phase == status.Watching && len(doc.Sinks) == 2 && doc.Sinks[0].Events >= 3 && // with its two markers
			doc.State.Commits > 0 && len(doc.Problems) >= 2 && doc.Sinks[1].BehindObjects+doc.Sinks[1].Window.Events > 0
	})
	if doc.Cluster != "here" || doc.Version != version || doc.Ready || doc.Server != cluster.Config().Host || time.Since(doc.Started) > time.Hour || time.Since(doc.Time) > time.Minute {
		t.Errorf("it is %+v", doc)
	}
	mine := doc.Resources[0]
	if mine.Entry != "mine" || mine.Resource != "configmaps" || !slices.Equal(mine.Namespaces, []string{ns}) || mine.Objects != 1 || mine.Lists["start"] != 1 || mine.LagSeconds == 0 {
		t.Errorf("the resource is told as %+v", mine)
	}
	out, audit := doc.Sinks[0], doc.Sinks[1]
	if out.Kind != "stdout" || out.Error != "" || out.DeadLetters.Target != filepath.Join(dir, "dead", "out.jsonl") || out.Window.MaxEvents != 65536 {
		t.Errorf("the sink is told as %+v", out)
	}
	if audit.Kind != "nats" || audit.Target != "nats://"+away+", stream KBRIDGE" || !strings.Contains(audit.Error, "connection refused") || audit.LastError == nil || audit.Failures == 0 || audit.Events != 0 {
		t.Errorf("the broken sink is told as %+v", audit)
	}
	if doc.State.Dir != dir || doc.State.LastCommit.IsZero() {
		t.Errorf("the state is told as %+v", doc.State)
	}
	problem := func(about string) status.Problem {
		t.Helper()
		i := slices.IndexFunc(doc.Problems, func(p status.Problem) bool { return p.About == about })
		if i < 0 {
			t.Fatalf("no problem of %s in %+v", about, doc.Problems)
		}
		return doc.Problems[i]
	}
	if p := problem("sink audit"); p.Reason != "undelivered" || !p.Unready || p.Since.IsZero() || !strings.Contains(p.Text, "connection refused") || !strings.Contains(p.Advice, "does the broker run") {
		t.Errorf("a sink's problem is told as %+v", p)
	}
	if p := problem("resource gadgets.late.dev"); p.Reason != "notServed" || !p.Unready || !strings.Contains(p.Text, "does not have gadgets.late.dev") || !strings.Contains(p.Advice, "Is its name right") {
		t.Errorf("a resource's problem is told as %+v", p)
	}
	// The same source: what is wrong on the page is what keeps the probe from saying yes.
	var unready strings.Builder
	for _, p := range doc.Problems {
		if p.Unready {
			fmt.Fprintln(&unready, p)
		}
	}
	if readyz := get(t, "http://"+address+"/readyz"); readyz != unready.String() {
		t.Errorf("/readyz says\n%sand /statusz\n%s", readyz, unready.String())
	}
	if profiles := get(t, "http://"+doc.Debug+"/debug/pprof/"); !strings.Contains(profiles, "goroutine") {
		t.Errorf("profiles at %s: %.100s", doc.Debug, profiles)
	}
	before := doc.Resources[0].Changes
	create("b")
	eventually(t, address, "a change is counted", func(doc status.Status) bool {
		r := doc.Resources[0]
		return r.Objects == 2 && r.Changes == before+1 && r.ChangesPerSecond > 0 && doc.Sinks[0].EventsPerSecond > 0
	})
}

func TestAdviceFitsTheError(t *testing.T) {
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := refused.Addr().String()
	refused.Close()
	dial := func(address string, timeout time.Duration) error {
		c, err := net.DialTimeout("tcp", address, timeout)
		if err == nil {
			c.Close()
			t.Fatalf("%s answers", address)
		}
		return fmt.Errorf("connect: %w", err)
	}
	_, ca := encrypted(t)
	_, missing := credentials.TLS(&config.TLS{CA: ca + ".not"})
	for want, err := range map[string]error{
		"Nothing listens there":  dial(address, time.Minute),
		"name right":             fmt.Errorf("connect: %w", &net.DNSError{Err: "no such host", Name: "nats.invalid", IsNotFound: true}),
		"authority":              fmt.Errorf("connect: %w", &tls.CertificateVerificationError{Err: fmt.Errorf("unknown")}),
		"Is the file there":      missing,
		"No answer comes":        fmt.Errorf("read: %w", os.ErrDeadlineExceeded),
		"reader for its output":  fmt.Errorf("write: %w", stdout.ErrReaderGone),
		"does it let kbridge in": fmt.Errorf("nats: authorization violation"),
	} {
		if advice := sinkAdvice(err); !strings.Contains(advice, want) {
			t.Errorf("%v: the advice is %q, want %q", err, advice, want)
		}
	}
}

func TestTheReasonsOfProblemsInTheDocsAreThoseInTheCode(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/STATUS.md"), "\n## What can be wrong")
	documented := matches(section, "(?m)^\\| `([a-zA-Z]+)` \\|")
	implemented := matches(read(t, "cmd/kbridge/problems.go"), `(?:problem|notice)\([^,]+, "([a-zA-Z]+)"`)
	for _, reason := range informer.Reasons {
		implemented = append(implemented, string(reason))
	}
	slices.Sort(implemented)
	implemented = slices.Compact(implemented)
	if !slices.Equal(documented, implemented) || len(implemented) < 10 {
		t.Errorf("docs/STATUS.md and the code differ:\ndocs %q\ncode %q", documented, implemented)
	}
}
