package bridge

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/sinks"
)

// failingSink fails beside events.
type failingSink struct {
	testSink
	failures sinks.Failures
}

func (s *failingSink) Failures() sinks.Failures { return s.failures }

// A sink that can not connect blocks in Publish: no attempt to publish fails.
func TestWhatASinkTriesAgainByItselfIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := &failingSink{}
	NewLane(Options{Sink: s, Metrics: NewMetrics(reg), Log: slog.New(slog.DiscardHandler)})
	s.failures = sinks.Failures{Connect: 3, Lookup: 2, Resend: 1}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "kbridge_sink_failures_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["sink"]+" "+labels["kind"]] = m.GetCounter().GetValue()
		}
	}
	if want := map[string]float64{"live connect": 3, "live lookup": 2, "live resend": 1}; !maps.Equal(got, want) {
		t.Errorf("the metrics are %v, want %v", got, want)
	}
}
