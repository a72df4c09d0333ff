// Package tracing owns the spans of events: one for each event that is sampled, from the
// moment when kbridge learnt of the change to the broker's acknowledgement, and their way
// to a collector, which never holds up an event.
//
// The sampled event carries its span's context in the attribute traceparent, as the
// CloudEvents extension for distributed tracing has it, so that a consumer's spans belong
// to the same trace.
package tracing

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/kbridge-io/kbridge/event"
)

// Tracer begins spans. A nil one begins none. Many goroutines use it.
type Tracer struct {
	ratio    float64
	tracer   trace.Tracer
	exporter *exporter
}

// New returns a tracer that samples the ratio of all events, and exports their spans to
// the SpanExporter until Close.
func New(ratio float64, to sdk.SpanExporter, version string, reg prometheus.Registerer, log *slog.Logger) *Tracer {
	e := newExporter(to, reg, log)
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // Begin has decided
		sdk.WithSpanProcessor(e),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "kbridge"), attribute.String("service.version", version))),
	)
	return &Tracer{ratio: ratio, tracer: provider.Tracer("github.com/kbridge-io/kbridge"), exporter: e}
}

// Close exports what has ended, until ctx ends. What is not exported by then is dropped.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.exporter.Shutdown(ctx)
}

// Span is that of one event on its way to one sink. A nil one is of an event that is not
// sampled, and does nothing. One that is not ended is not exported.
type Span struct{ span trace.Span }

// Begin begins a span at the time of the event, or returns nil.
func (t *Tracer) Begin(at time.Time) *Span {
	if t == nil || rand.Float64() >= t.ratio {
		return nil
	}
	_, span := t.tracer.Start(context.Background(), "publish", trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindProducer), trace.WithNewRoot())
	return &Span{span}
}

// TraceParent is the span's context as W3C's header traceparent has it.
func (s *Span) TraceParent() string {
	if s == nil {
		return ""
	}
	c := s.span.SpanContext()
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}

// traceparentSize is the length of what TraceParent returns.
const traceparentSize = len("00-") + 32 + len("-") + 16 + len("-01")

// Size is how much longer an event is that carries a span's context, in bytes.
const Size = len(`,"traceparent":""`) + traceparentSize

// Size is how much longer the event is, in bytes: zero where it is not traced.
func (s *Span) Size() int {
	if s == nil {
		return 0
	}
	return Size
}

// About says which event the span is of: what it is about, and nothing of what is in it.
func (s *Span) About(sink string, e *event.Event) {
	if s == nil {
		return
	}
	s.span.SetName("publish " + e.Resource.Name())
	s.span.SetAttributes(attribute.String("kbridge.sink", sink), attribute.Int("kbridge.bytes", len(e.Value)))
	e.Attributes(func(name, value string) {
		if key, ok := attributes[name]; ok {
			s.span.SetAttributes(attribute.String(key, value))
		}
	})
}

// attributes are what OpenTelemetry's conventions call those of a CloudEvent.
var attributes = map[string]string{
	"specversion": "cloudevents.event_spec_version",
	"id":          "cloudevents.event_id",
	"source":      "cloudevents.event_source",
	"type":        "cloudevents.event_type",
	"subject":     "cloudevents.event_subject",
}

// Attempt notes that the event is handed to the sink.
func (s *Span) Attempt() {
	if s != nil {
		s.span.AddEvent("attempt")
	}
}

// Failed notes that the sink has not taken the event, which is tried again.
func (s *Span) Failed(err error) {
	if s != nil {
		s.span.AddEvent("failed", trace.WithAttributes(attribute.String("error.message", err.Error())))
	}
}

// Acknowledged ends the span: the broker has stored the event.
func (s *Span) Acknowledged() {
	if s != nil {
		s.span.End()
	}
}

// DeadLetter ends the span: the event is in the dead letters, because of reason.
func (s *Span) DeadLetter(reason error) {
	if s != nil {
		s.span.SetStatus(codes.Error, reason.Error())
		s.span.End()
	}
}
