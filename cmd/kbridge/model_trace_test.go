package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing/synctest"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
)

// mayTrace lets some worlds trace their events. It draws from numbers of its own: the
// others are as they would be without.
func (w *world) mayTrace() {
	rng := rand.New(rand.NewPCG(w.seed, 3))
	if rng.IntN(3) == 0 {
		w.cfg.Tracing = &config.Tracing{OTLPEndpoint: "http://collector", SampleRatio: pick(rng, 0.2, 1, 1)}
	}
}

// scriptedCollector takes spans, does not, or says nothing until it is given up.
type scriptedCollector struct{ w *world }

func (c *scriptedCollector) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	c.w.mu.Lock()
	n := c.w.rng2.IntN(4)
	c.w.mu.Unlock()
	switch n {
	case 0:
		return fmt.Errorf("%w: no spans", errScripted)
	case 1:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (*scriptedCollector) Shutdown(context.Context) error { return nil }

// checkTrace expects a traced event to say so, and others not to. The lock is held.
func (w *world) checkTrace(sink string, e *event.Event) {
	t := w.cfg.Tracing
	none, all := t == nil || e.Type.IsMarker(), t != nil && t.SampleRatio == 1 && !e.Type.IsMarker()
	switch {
	case none && e.TraceParent != "", all && e.TraceParent == "":
		w.failf("%s: %s has the traceparent %q", sink, e.ID, e.TraceParent)
	case e.TraceParent != "" && e.Format == event.Structured && !bytes.Contains(e.Value, []byte(`,"traceparent":"`+e.TraceParent+`",`)):
		w.failf("%s: %s does not have the traceparent %q: %s", sink, e.ID, e.TraceParent, e.Value)
	}
}

// checkSpans expects the span of each event that was dealt with to be exported, or to be
// counted as dropped.
func (w *world) checkSpans(p *process) {
	if w.cfg.Tracing == nil || w.cfg.Tracing.SampleRatio < 1 {
		return
	}
	synctest.Wait()
	families, err := p.reg.Gather()
	if err != nil {
		panic(err)
	}
	ended, spans := 0, 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int(m.GetCounter().GetValue())
			switch f.GetName() {
			case "kbridge_spans_exported_total", "kbridge_spans_dropped_total":
				spans += n
			case "kbridge_published_total", "kbridge_dead_letters_total":
				for _, l := range m.GetLabel() {
					if _, object := event.ParseType(l.GetValue()); l.GetName() == "type" && object {
						ended += n
					}
				}
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if spans != ended {
		w.failf("process %d has published %d objects' events, dead letters included, and accounts for %d spans", p.number, ended, spans)
	}
}
