package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// collect runs a collector, and returns how to read the contexts of the spans that came.
func collect(t *testing.T) (url string, contexts func() map[string]bool) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var export collectorpb.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &export) != nil {
			t.Errorf("what came is no export of spans: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range export.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				for _, s := range scope.Spans {
					seen[fmt.Sprintf("00-%x-%x-01", s.TraceId, s.SpanId)] = true
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func TestTheEventsThatRunPublishesAreTraced(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	collector, contexts := collect(t)
	config := writeConfig(t, fmt.Sprintf(`
cluster: c
resources: [{resource: configmaps, namespaces: [%s]}]
sinks: [{name: out, stdout: {}}]
server: {address: ''}
tracing: {otlpEndpoint: '%s', sampleRatio: 1}
`, ns, collector))
	tries(t, 0, []string{"--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir()},
		`tracing      ok       `+collector+`: the collector takes spans; of all events 100 % have one`)
	r := start(t, "run", "--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir())
	r.log.waitFor(t, "listed")
	createConfigMaps(t, cluster, ns, 10, nil)
	r.out.waitFor(t, `"c9"`)
	r.end(t)
	events := 0
	for line := range strings.Lines(r.out.String()) {
		var e struct{ Type, TraceParent string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch object := strings.Contains(e.Type, ".object."); {
		case object != (e.TraceParent != ""):
			t.Errorf("an event has the traceparent %q: %s", e.TraceParent, line)
		case object:
			events++
			if !contexts()[e.TraceParent] {
				t.Errorf("no span came with the context of %s", line)
			}
		}
	}
	if events != 10 || len(contexts()) != 10 {
		t.Errorf("%d events, and %d spans", events, len(contexts()))
	}
}

func TestACollectorThatIsAwayOrHangsHoldsUpNeitherEventsNorTheEnd(t *testing.T) {
	cluster := testcluster.Shared(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, c := range map[string]struct{ endpoint, finding, logged string }{
		"away":  {"http://127.0.0.1:1", `tracing      warning  \S+: spans would be dropped: .*connection refused`, "connection refused"},
		"hangs": {"http://" + silent.Addr().String(), `tracing      warning  \S+: spans would be dropped: no answer within 3s`, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := cluster.CreateNamespace(t)
			config := writeConfig(t, fmt.Sprintf(`
cluster: c
resources: [{resource: configmaps, namespaces: [%s]}]
sinks: [{name: out, stdout: {}}]
server: {address: '127.0.0.1:0'}
tracing: {otlpEndpoint: '%s', sampleRatio: 1}
`, ns, c.endpoint))
			tries(t, 0, []string{"--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir(), "--timeout", "3s"}, c.finding)
			r := start(t, "run", "--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir(), "--grace-period", "10h")
			r.log.waitFor(t, "listed")
			address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(r.log.String())[1]
			createConfigMaps(t, cluster, ns, 5, nil)
			r.out.waitFor(t, `"c4"`)
			if name == "away" {
				for end := time.Now().Add(time.Minute); !strings.Contains(get(t, "http://"+address+"/metrics"), `kbridge_spans_dropped_total{reason="failed"} 5`); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("the spans are not counted as dropped")
					}
				}
			}
			r.end(t)
			if n := strings.Count(r.log.String(), "spans can not be exported and are dropped"); n != 1 || !strings.Contains(r.log.String(), c.logged) {
				t.Errorf("it is logged %d times:\n%s", n, r.log.String())
			}
		})
	}
}
