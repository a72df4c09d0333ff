package tracing

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// queueSpans bounds what waits to be exported, and batchSpans what is exported at once.
	queueSpans = 2048
	batchSpans = 512
	// lingerFor is how long a batch waits for more.
	lingerFor = time.Second
	// exportTimeout bounds one attempt. There is no second one: spans are worth less than
	// what newer ones would wait for.
	exportTimeout = 10 * time.Second
)

// exporter takes spans that have ended to a SpanExporter. The SDK's own processor drops
// spans without telling anybody; this one counts them.
type exporter struct {
	to    sdk.SpanExporter
	spans chan sdk.ReadOnlySpan
	log   *slog.Logger

	exported       prometheus.Counter
	dropped        prometheus.Counter // there was no room, or no time before the end
	failed         prometheus.Counter // the collector has not taken them
	stop           chan struct{}      // closed when nothing more comes
	ending         context.Context
	end            context.CancelFunc // gives up what is exported
	running        sync.WaitGroup
	mu             sync.RWMutex // guards closed, and is read-locked while a span is put into the queue
	closed         bool
	failing        bool // the last attempt failed, which was logged; run's
	sinceItFailing int  // spans that were dropped since; run's
}

var _ sdk.SpanProcessor = (*exporter)(nil)

func newExporter(to sdk.SpanExporter, reg prometheus.Registerer, log *slog.Logger) *exporter {
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kbridge_spans_dropped_total",
		Help: "Spans of events that did not get to the collector: failed, it has not taken them; full, too many waited for it, or the process ended.",
	}, []string{"reason"})
	e := &exporter{
		to: to, spans: make(chan sdk.ReadOnlySpan, queueSpans), log: log, stop: make(chan struct{}),
		exported: prometheus.NewCounter(prometheus.CounterOpts{Name: "kbridge_spans_exported_total", Help: "Spans of events that the collector has taken."}),
		dropped:  dropped.WithLabelValues("full"), failed: dropped.WithLabelValues("failed"),
	}
	reg.MustRegister(dropped, e.exported)
	e.ending, e.end = context.WithCancel(context.Background())
	e.running.Go(e.run)
	return e
}

// OnStart implements sdk.SpanProcessor.
func (e *exporter) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd takes a span, and drops it where there is no room. It does not block.
func (e *exporter) OnEnd(s sdk.ReadOnlySpan) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.closed {
		select {
		case e.spans <- s:
			return
		default:
		}
	}
	e.dropped.Inc()
}

// ForceFlush implements sdk.SpanProcessor; nobody asks for it.
func (e *exporter) ForceFlush(context.Context) error { return nil }

// Shutdown exports what waits, until ctx ends.
func (e *exporter) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	e.mu.Unlock()
	if was {
		return nil
	}
	close(e.stop)
	defer context.AfterFunc(ctx, e.end)()
	e.running.Wait()
	e.end()
	return e.to.Shutdown(context.WithoutCancel(ctx))
}

// run exports spans until there are none and none will come.
func (e *exporter) run() {
	batch := make([]sdk.ReadOnlySpan, 0, batchSpans)
	for {
		batch = e.next(batch[:0])
		if len(batch) == 0 {
			return
		}
		e.export(batch)
		clear(batch)
	}
}

// next waits for a span and gathers those that come soon after it. It returns none where
// none will come any more.
func (e *exporter) next(batch []sdk.ReadOnlySpan) []sdk.ReadOnlySpan {
	select {
	case s := <-e.spans:
		batch = append(batch, s)
	case <-e.stop:
		select {
		case s := <-e.spans:
			batch = append(batch, s)
		default:
			return batch
		}
	}
	timer := time.NewTimer(lingerFor)
	defer timer.Stop()
	for stop, timeout := e.stop, timer.C; len(batch) < cap(batch); {
		select {
		case s := <-e.spans:
			batch = append(batch, s)
			continue
		default:
		}
		if stop == nil || timeout == nil {
			break // what was there is here
		}
		select {
		case s := <-e.spans:
			batch = append(batch, s)
		case <-timeout:
			timeout = nil
		case <-stop:
			stop = nil
		}
	}
	return batch
}

// rejected is the error of an export of which the collector has not taken some spans.
type rejected struct {
	spans  int
	reason string
}

func (r *rejected) Error() string { return r.reason }

func (e *exporter) export(batch []sdk.ReadOnlySpan) {
	ctx, cancel := context.WithTimeout(e.ending, exportTimeout)
	defer cancel()
	err := e.to.ExportSpans(ctx, batch)
	lost := 0
	var some *rejected
	switch {
	case err == nil:
	case errors.As(err, &some):
		lost = min(some.spans, len(batch))
	default:
		lost = len(batch)
	}
	e.exported.Add(float64(len(batch) - lost))
	e.failed.Add(float64(lost))
	switch {
	case err != nil && !e.failing:
		e.failing, e.sinceItFailing = true, 0
		e.log.Warn("spans can not be exported and are dropped; events go on", "err", err)
	case err == nil && e.failing:
		e.failing = false
		e.log.Info("spans are exported again", "dropped", e.sinceItFailing)
	}
	e.sinceItFailing += lost
}
