package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/kbridge-io/kbridge/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	spans    []*tracepb.Span
	resource map[string]string
	answer   func(w http.ResponseWriter, spans int) // nil: it takes all
	asked    int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{resource: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		var export collectorpb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &export); err != nil || req.Method != http.MethodPost || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s of %s: %v", req.Method, req.URL, req.Header.Get("Content-Type"), err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked++
		var spans []*tracepb.Span
		for _, of := range export.ResourceSpans {
			for _, a := range of.Resource.Attributes {
				r.resource[a.Key] = a.Value.GetStringValue()
			}
			for _, scope := range of.ScopeSpans {
				spans = append(spans, scope.Spans...)
			}
		}
		if r.answer != nil {
			r.answer(w, len(spans))
			return
		}
		r.spans = append(r.spans, spans...)
	}))
	t.Cleanup(r.Close)
	return r
}

// answers sets what the collector does from now on.
func (r *receiver) answers(answer func(w http.ResponseWriter, spans int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// lockedText is a log that is read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

type rig struct {
	*Tracer
	log lockedText
}

func newRig(t *testing.T, ratio float64, to sdk.SpanExporter) *rig {
	t.Helper()
	r := &rig{}
	r.Tracer = New(ratio, to, "v1.2.3", prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&r.log, nil)))
	t.Cleanup(func() { r.close(t) })
	return r
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
}

// counts are how many spans were exported, and dropped because of failures and for want
// of room.
func (r *rig) counts() (exported, failed, full float64) {
	return testutil.ToFloat64(r.exporter.exported), testutil.ToFloat64(r.exporter.failed), testutil.ToFloat64(r.exporter.dropped)
}

func otlp(t *testing.T, endpoint string) sdk.SpanExporter {
	t.Helper()
	e, err := OTLP(endpoint, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func podEvent(t *testing.T, s *Span, at time.Time) *event.Event {
	t.Helper()
	d := &event.Delta{
		Type: event.Updated, Time: at,
		Resource: event.NewResource(event.ResourceInfo{Cluster: "c", Version: "v1", Resource: "pods", Kind: "Pod"}),
		Object:   &event.Object{Namespace: "shop", Name: "a", UID: "u", ResourceVersion: "7", Body: []byte(`{"spec":"hidden"}`)},
	}
	e := &event.Event{TraceParent: s.TraceParent()}
	if err := d.Encode(e, event.Structured, nil); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestASpanLastsFromTheChangeToTheAcknowledgementAndItsContextIsInTheEvent(t *testing.T) {
	collector := newReceiver(t)
	r := newRig(t, 1, otlp(t, collector.URL))
	at := time.Now().Add(-time.Minute)
	s := r.Begin(at)
	e := podEvent(t, s, at)
	s.About("live", e)
	s.Attempt()
	s.Failed(errors.New("not yet"))
	s.Attempt()
	s.Acknowledged()
	r.close(t)
	if len(collector.spans) != 1 {
		t.Fatalf("%d spans came", len(collector.spans))
	}
	span := collector.spans[0]
	context := fmt.Sprintf("00-%x-%x-01", span.TraceId, span.SpanId)
	if !strings.Contains(string(e.Value), `,"traceparent":"`+context+`"`) || len(context) != traceparentSize || s.Size() != len(`,"traceparent":"`+context+`"`) {
		t.Errorf("the span's context is %s, and the event %s", context, e.Value)
	}
	if span.StartTimeUnixNano != uint64(at.UnixNano()) || time.Since(time.Unix(0, int64(span.EndTimeUnixNano))) > 30*time.Second {
		t.Errorf("it lasts from %d to %d, and the change was at %d", span.StartTimeUnixNano, span.EndTimeUnixNano, at.UnixNano())
	}
	if span.Name != "publish pods" || span.Kind != tracepb.Span_SPAN_KIND_PRODUCER || len(span.ParentSpanId) > 0 || span.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the span is %v", span)
	}
	attributes := map[string]string{}
	for _, a := range span.Attributes {
		attributes[a.Key] = a.Value.GetStringValue()
		if n, is := a.Value.Value.(*commonpb.AnyValue_IntValue); is {
			attributes[a.Key] = fmt.Sprint(n.IntValue)
		}
	}
	for key, want := range map[string]string{
		"kbridge.sink": "live", "kbridge.bytes": fmt.Sprint(len(e.Value)), "cloudevents.event_id": "u.7", "cloudevents.event_subject": "shop/a",
		"cloudevents.event_type": "dev.kbridge.object.updated", "cloudevents.event_source": "kubernetes://c/api/v1/pods", "cloudevents.event_spec_version": "1.0",
	} {
		if attributes[key] != want {
			t.Errorf("%s is %q, want %q", key, attributes[key], want)
		}
	}
	var told []string
	for _, e := range span.Events {
		told = append(told, e.Name)
	}
	if got := strings.Join(told, " "); got != "attempt failed attempt" || span.Events[1].Attributes[0].Value.GetStringValue() != "not yet" {
		t.Errorf("it tells of %s", got)
	}
	if collector.resource["service.name"] != "kbridge" || collector.resource["service.version"] != "v1.2.3" {
		t.Errorf("the resource is %v", collector.resource)
	}
	if strings.Contains(span.String(), "hidden") {
		t.Error("the body is in the span")
	}
	if exported, failed, full := r.counts(); exported != 1 || failed+full != 0 {
		t.Errorf("%v are counted as exported, %v as dropped", exported, failed+full)
	}
}

func TestTheSpanOfADeadLetterHasFailed(t *testing.T) {
	collector := newReceiver(t)
	r := newRig(t, 1, otlp(t, collector.URL))
	r.Begin(time.Now()).DeadLetter(errors.New("too large"))
	r.close(t)
	if status := collector.spans[0].Status; status.Code != tracepb.Status_STATUS_CODE_ERROR || status.Message != "too large" {
		t.Errorf("its status is %v", status)
	}
}

func TestAsManyAreSampledAsTheRatioSays(t *testing.T) {
	r := newRig(t, 0.1, &scripted{})
	sampled := 0
	seen := map[string]bool{}
	for range 20_000 {
		if s := r.Begin(time.Now()); s != nil {
			sampled++
			seen[s.TraceParent()] = true
		}
	}
	if sampled < 1500 || sampled > 2500 || len(seen) != sampled {
		t.Errorf("of 20,000 events %d are sampled, with %d contexts", sampled, len(seen))
	}
	if !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(newRig(t, 1, &scripted{}).Begin(time.Now()).TraceParent()) {
		t.Error("a context is not as W3C has it")
	}
}

func TestWhatIsNotTracedCostsNothing(t *testing.T) {
	never := newRig(t, 0, &scripted{})
	for name, tracer := range map[string]*Tracer{"off": nil, "not sampled": never.Tracer} {
		now := time.Now()
		if n := testing.AllocsPerRun(100, func() {
			s := tracer.Begin(now)
			if s.TraceParent() != "" || s.Size() != 0 {
				t.Error("it has a context")
			}
			s.About("live", nil)
			s.Attempt()
			s.Failed(nil)
			s.Acknowledged()
			s.DeadLetter(nil)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if err := (*Tracer)(nil).Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func TestACollectorThatIsAwayIsLoggedOnceAndWhatItMissesIsCounted(t *testing.T) {
	collector := newReceiver(t)
	r := newRig(t, 1, otlp(t, collector.URL+"/"))
	collector.answers(func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusServiceUnavailable) })
	for n := range 3 {
		r.Begin(time.Now()).Acknowledged()
		eventually(t, "a failure to be counted", func() bool { _, failed, _ := r.counts(); return failed == float64(n+1) })
	}
	if r.log.count("can not be exported") != 1 || r.log.count("503 Service Unavailable") != 1 {
		t.Errorf("the log is\n%s", r.log.text.String())
	}
	collector.answers(nil)
	r.Begin(time.Now()).Acknowledged()
	eventually(t, "the spans to be exported", func() bool { exported, _, _ := r.counts(); return exported == 1 })
	if r.log.count(`"spans are exported again" dropped=3`) != 1 {
		t.Errorf("the log is\n%s", r.log.text.String())
	}
	collector.Close()
	r.Begin(time.Now()).Acknowledged()
	eventually(t, "another failure", func() bool { return r.log.count("connection refused") == 1 })
}

func TestSpansThatTheCollectorRejectsAreCounted(t *testing.T) {
	collector := newReceiver(t)
	r := newRig(t, 1, otlp(t, collector.URL))
	collector.answers(func(w http.ResponseWriter, spans int) {
		answer, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: int64(spans - 1), ErrorMessage: "of a tenant that is full"}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(answer)
	})
	for range 5 {
		r.Begin(time.Now()).Acknowledged()
	}
	r.close(t)
	if exported, failed, _ := r.counts(); exported != 1 || failed != 4 || r.log.count("of a tenant that is full") != 1 {
		t.Errorf("%v are counted as exported and %v as dropped:\n%s", exported, failed, r.log.text.String())
	}
}

// scripted is a collector of the test's.
type scripted struct {
	export func(ctx context.Context, spans []sdk.ReadOnlySpan) error
}

func (s *scripted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if s.export == nil {
		return nil
	}
	return s.export(ctx, spans)
}
func (*scripted) Shutdown(context.Context) error { return nil }

func TestACollectorThatHangsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, &scripted{func(ctx context.Context, _ []sdk.ReadOnlySpan) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		r.Begin(time.Now()).Acknowledged()
		time.Sleep(2 * lingerFor) // it is being exported
		began := time.Now()
		for range queueSpans + 100 {
			r.Begin(time.Now()).Acknowledged()
		}
		if _, _, full := r.counts(); full != 100 {
			t.Errorf("%v spans are dropped for want of room, want 100", full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
		r.Begin(time.Now()).Acknowledged()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("something has waited for %s", waited)
		}
		if exported, failed, full := r.counts(); exported != 0 || failed != queueSpans+1 || full != 101 {
			t.Errorf("of %d spans %v are exported, %v have failed and %v had no room", queueSpans+102, exported, failed, full)
		}
	})
}

// An attempt is given up, and what comes later is exported.
func TestACollectorThatHangsOnceIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := true
		r := newRig(t, 1, &scripted{func(ctx context.Context, _ []sdk.ReadOnlySpan) error {
			if hangs {
				hangs = false
				<-ctx.Done()
			}
			return ctx.Err()
		}})
		r.Begin(time.Now()).Acknowledged()
		time.Sleep(2 * lingerFor)
		r.Begin(time.Now()).Acknowledged()
		time.Sleep(exportTimeout + lingerFor)
		if exported, failed, _ := r.counts(); exported != 1 || failed != 1 {
			t.Errorf("%v are exported and %v have failed", exported, failed)
		}
	})
}

func TestSpansAreExportedManyAtOnce(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	first := make(chan struct{})
	r := newRig(t, 1, &scripted{func(_ context.Context, spans []sdk.ReadOnlySpan) error {
		<-first
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, len(spans))
		return nil
	}})
	const spans = 3*batchSpans + 7
	for range spans {
		r.Begin(time.Now()).Acknowledged()
	}
	close(first)
	r.close(t)
	total := 0
	for _, n := range sizes {
		total += n
	}
	if total != spans || len(sizes) > 6 {
		t.Errorf("%d spans come in batches of %v", total, sizes)
	}
}

func TestACollectorCanBeAskedWithoutSpans(t *testing.T) {
	collector := newReceiver(t)
	if err := Check(t.Context(), collector.URL+"/v1/traces", "v1"); err != nil || collector.asked != 1 || len(collector.spans) != 0 {
		t.Errorf("it was asked %d times: %v", collector.asked, err)
	}
	collector.answers(func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusNotFound) })
	if err := Check(t.Context(), collector.URL, "v1"); err == nil || !strings.Contains(err.Error(), "/v1/traces answers 404 Not Found") {
		t.Errorf("one that has no such path: %v", err)
	}
	for _, endpoint := range []string{"", "otel:4317", "grpc://otel:4317"} {
		if _, err := OTLP(endpoint, "v1"); err == nil {
			t.Errorf("%q is taken", endpoint)
		}
	}
}

// What a collector answers is read as its own code would read it.
func FuzzPartialSuccess(f *testing.F) {
	for _, n := range []int64{0, 7, -1, 1 << 40} {
		answer, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: n, ErrorMessage: "why"}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(answer)
	}
	f.Add([]byte("<html>"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var want collectorpb.ExportTraceServiceResponse
		if proto.Unmarshal(answer, &want) != nil {
			_ = partialSuccess(answer) // it says something, and ends
			return
		}
		var got *rejected
		n := want.GetPartialSuccess().GetRejectedSpans()
		if err := partialSuccess(answer); errors.As(err, &got) != (n != 0) || n > 0 && n <= queueSpans && got.spans != int(n) {
			t.Errorf("of an answer that rejects %d it says %v", n, err)
		}
	})
}
