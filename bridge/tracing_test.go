package bridge

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/tracing"
)

// traced makes the lane trace all events. What it returns ends the tracer and returns the
// spans.
func traced(t *testing.T) (change, func() tracetest.SpanStubs) {
	t.Helper()
	spans := &spanKeeper{}
	tracer := tracing.New(1, spans, "test", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	return func(o *Options) { o.Tracer = tracer }, func() tracetest.SpanStubs {
		if err := tracer.Close(context.Background()); err != nil {
			t.Error(err)
		}
		return spans.GetSpans()
	}
}

// spanKeeper keeps the spans when it is shut down.
type spanKeeper struct{ tracetest.InMemoryExporter }

func (*spanKeeper) Shutdown(context.Context) error { return nil }

func TestASpanTellsOfTheAttemptsAndEndsWithTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		with, spans := traced(t)
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			sent = append(sent, e.TraceParent)
			if len(sent) == 1 {
				time.Sleep(time.Second)
				done(errAgain)
				return
			}
			done(nil)
		}, with)
		f, _ := r.feed()
		d := update("a", 1, 100)
		d.Time = d.Time.Add(-time.Minute)
		r.send(f, d)
		r.drain()
		end := time.Now()
		r.stop()
		all := spans()
		if len(all) != 1 {
			t.Fatalf("%d spans", len(all))
		}
		s := all[0]
		context := "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
		if got := strings.Join(sent, " "); got != context+" "+context {
			t.Errorf("the attempts have the contexts %s, and the span is %s", got, context)
		}
		var told []string
		for _, e := range s.Events {
			told = append(told, e.Name)
		}
		if got := strings.Join(told, " "); got != "attempt failed attempt" || !s.Events[1].Time.Equal(s.Events[0].Time.Add(time.Second)) {
			t.Errorf("it tells of %v", s.Events)
		}
		if !s.StartTime.Equal(d.Time) || !s.EndTime.Equal(end) || s.Status.Code != codes.Unset {
			t.Errorf("it is from %s to %s, want %s and %s, with the status %v", s.StartTime, s.EndTime, d.Time, end, s.Status)
		}
	})
}

func TestTheSpanOfADeadLetterSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with, spans := traced(t)
		r := newRig(t, refuseBad, with)
		f, _ := r.feed()
		r.send(f, update("bad", 1, 100))
		r.send(f, update("good", 2, 100))
		r.drain()
		r.stop()
		all := spans()
		if len(all) != 2 {
			t.Errorf("%d spans of two events", len(all))
		}
		for _, s := range all {
			bad := false
			for _, a := range s.Attributes {
				bad = bad || a.Value.AsString() == "shop/bad"
			}
			if (s.Status.Code == codes.Error) != bad || bad && s.Status.Description != "too large" {
				t.Errorf("a span, of the refused event: %t, has the status %v", bad, s.Status)
			}
		}
		if letters := r.letters(); len(letters) != 1 || !strings.Contains(string(letters[0].Event), `"traceparent":"00-`) {
			t.Errorf("the dead letters are %v", letters)
		}
	})
}

// What a sink has fallen behind on has a span for what is sent of it, and none for what
// was folded.
func TestWhatIsFoldedHasTheSpanOfWhatIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in inbox
		with, spans := traced(t)
		r := newRig(t, in.publish, with, func(o *Options) { o.MaxEvents, o.Fold, o.FoldAfter = 1, true, time.Second })
		f, _ := r.feed()
		r.send(f, update("a", 1, 100))
		for v := 2; v < 6; v++ {
			r.send(f, update("b", v, 100))
		}
		in.answer(t, "a/1", nil)
		in.answer(t, "b/5", nil)
		r.drain()
		r.stop()
		if n := len(spans()); n != 2 {
			t.Errorf("%d spans of two events", n)
		}
	})
}
