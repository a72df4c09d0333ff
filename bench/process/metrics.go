//go:build unix

package process

import (
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are what a program said at /metrics.
type Metrics map[string]*dto.MetricFamily

// Scrape asks the program.
func (p *Process) Scrape(ctx context.Context) (Metrics, error) {
	var m Metrics
	return m, p.get(ctx, "/metrics", func(body io.Reader) (err error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		m, err = parser.TextToMetricFamilies(body)
		return err
	})
}

// Ready asks kbridge whether it is ready.
func (p *Process) Ready(ctx context.Context) bool {
	return p.get(ctx, "/readyz", func(io.Reader) error { return nil }) == nil
}

func (p *Process) get(ctx context.Context, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ended := p.Ended(); ended != nil {
			return ended
		}
		return fmt.Errorf("get %s: %w", path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", path, resp.Status)
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Sum adds up the series of a metric whose labels are those given, as alternating names
// and values.
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
	for _, series := range m[name].GetMetric() {
		if !has(series, labels) {
			continue
		}
		sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue()
	}
	return sum
}

func has(series *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		found := false
		for _, l := range series.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
