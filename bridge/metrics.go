package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// Metrics counts what the lanes of a process do.
type Metrics struct {
	reg              prometheus.Registerer
	published        *prometheus.CounterVec
	filtered         *prometheus.CounterVec
	deadLetters      *prometheus.CounterVec
	deadLetterErrors *prometheus.CounterVec
	failures         *prometheus.CounterVec
	folded           *prometheus.CounterVec
	unseen           *prometheus.CounterVec
	truncated        *prometheus.CounterVec
	latency          *prometheus.HistogramVec
}

// NewMetrics registers the lanes' metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	m := &Metrics{
		reg:              reg,
		published:        counter("kbridge_published_total", "Events that the sink's broker acknowledged.", "sink", "entry", "resource", "type"),
		filtered:         counter("kbridge_filtered_total", "Deltas that were not sent to the sink, by what left them out.", "sink", "entry", "resource", "reason"),
		deadLetters:      counter("kbridge_dead_letters_total", "Events that are in the dead letters, by why.", "sink", "entry", "resource", "type", "reason"),
		deadLetterErrors: counter("kbridge_dead_letter_errors_total", "Dead letters that could not be written at once.", "sink"),
		folded:           counter("kbridge_folded_total", "Deltas that were folded into a later state of their object.", "sink", "entry", "resource"),
		unseen:           counter("kbridge_unseen_total", "Objects that came and went while the sink was behind.", "sink", "entry", "resource"),
		truncated:        counter("kbridge_truncated_total", "Events that went without their body: larger than the broker takes, or not to be read.", "sink", "entry", "resource"),
		failures:         counter("kbridge_publish_failures_total", "Attempts to publish that failed and are tried again.", "sink"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kbridge_delivery_seconds",
			Help:    "Time from the delta to the broker's acknowledgement.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"sink"}),
	}
	reg.MustRegister(m.latency)
	return m
}

// laneMetrics are a lane's own, looked up once.
type laneMetrics struct {
	failures         prometheus.Counter
	deadLetterErrors prometheus.Counter
	latency          prometheus.Observer
}

func (m *Metrics) lane(l *Lane) laneMetrics {
	gauge := func(name, help string, value func() float64) {
		m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{"sink": l.Name()},
		}, value))
	}
	gauge("kbridge_window_bytes", "Bytes in the lane's window.", func() float64 {
		bytes, _, _ := l.Usage()
		return float64(bytes)
	})
	gauge("kbridge_window_max_bytes", "Bytes that the lane's window may hold.", func() float64 { return float64(l.opts.MaxBytes) })
	gauge("kbridge_window_events", "Events in the lane's window.", func() float64 {
		_, events, _ := l.Usage()
		return float64(events)
	})
	gauge("kbridge_window_max_events", "Events that the lane's window may hold.", func() float64 { return float64(l.opts.MaxEvents) })
	gauge("kbridge_window_waiting", "Watches that wait for room in the lane's window.", func() float64 {
		_, _, waiting := l.Usage()
		return float64(waiting)
	})
	gauge("kbridge_behind_objects", "Objects that the sink is behind on.", func() float64 { return float64(l.Behind()) })
	gauge("kbridge_oldest_unacknowledged_seconds", "Age of the oldest event that is not dealt with.", func() float64 {
		return l.Oldest(time.Now()).Seconds()
	})
	if s, ok := l.opts.Sink.(sinks.Failing); ok {
		m.failing(l.Name(), s)
	}
	return laneMetrics{
		failures:         m.failures.WithLabelValues(l.Name()),
		deadLetterErrors: m.deadLetterErrors.WithLabelValues(l.Name()),
		latency:          m.latency.WithLabelValues(l.Name()),
	}
}

// failing registers what a sink counts itself.
func (m *Metrics) failing(sink string, s sinks.Failing) {
	for kind, value := range map[string]func(sinks.Failures) uint64{
		"connect": func(f sinks.Failures) uint64 { return f.Connect },
		"lookup":  func(f sinks.Failures) uint64 { return f.Lookup },
		"resend":  func(f sinks.Failures) uint64 { return f.Resend },
	} {
		m.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "kbridge_sink_failures_total", Help: "What went wrong with the sink beside attempts to publish, and is tried again by itself.",
			ConstLabels: prometheus.Labels{"sink": sink, "kind": kind},
		}, func() float64 { return float64(value(s.Failures())) }))
	}
}

// portMetrics are a port's own, looked up once. The ports of an entry's watches share
// them.
type portMetrics struct {
	published                   [event.Types]prometheus.Counter
	refused, poison             [event.Types]prometheus.Counter // dead letters
	filteredType, filteredKnown prometheus.Counter
	folded, unseen, truncated   prometheus.Counter
}

func (m *Metrics) port(sink, entry, resource string) portMetrics {
	p := portMetrics{
		filteredType:  m.filtered.WithLabelValues(sink, entry, resource, "type"),
		filteredKnown: m.filtered.WithLabelValues(sink, entry, resource, "known"),
		folded:        m.folded.WithLabelValues(sink, entry, resource),
		unseen:        m.unseen.WithLabelValues(sink, entry, resource),
		truncated:     m.truncated.WithLabelValues(sink, entry, resource),
	}
	for t := event.Added; int(t) < event.Types; t++ {
		p.published[t] = m.published.WithLabelValues(sink, entry, resource, t.String())
		p.refused[t] = m.deadLetters.WithLabelValues(sink, entry, resource, t.String(), "refused")
		p.poison[t] = m.deadLetters.WithLabelValues(sink, entry, resource, t.String(), "poison")
	}
	return p
}
