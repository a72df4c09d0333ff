package testprometheus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Server is a Prometheus that ends with the test.
type Server struct {
	process *testserver.Process
	api     v1.API
}

// listening is the line of the log that has the port which the kernel picked.
var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// Start starts a Prometheus with the configuration on a port that the kernel picks, and its data in the test's folder.
func Start(t testing.TB, programs Programs, config string) *Server {
	t.Helper()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "prometheus.yaml"), filepath.Join(dir, "log")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // no connection is left when a test ends
	s := &Server{}
	s.process = &testserver.Process{
		Name: "prometheus", Log: log,
		Command: func() *exec.Cmd {
			return exec.Command(programs.Prometheus, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
		},
		Ready: func(ctx context.Context) error {
			text, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			m := listening.FindSubmatch(text)
			if m == nil {
				return errors.New("it does not listen yet")
			}
			client, err := api.NewClient(api.Config{Address: "http://" + string(m[1]), RoundTripper: transport})
			if err != nil {
				return err
			}
			s.api = v1.NewAPI(client)
			_, err = s.api.Runtimeinfo(ctx)
			return err
		},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Prometheus's log:\n%s", s.process.LogTail())
		}
		s.process.Kill()
	})
	if err := s.process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// Drawn is what a graph would show of a query: how many values that can be drawn, for a ratio of nothing can not, and
// the largest of them.
type Drawn struct {
	Values int
	Max    float64
}

// Range evaluates a query at each step from one time to another, as a graph does.
func (s *Server) Range(ctx context.Context, query string, from, to time.Time, step time.Duration) (Drawn, error) {
	result, warnings, _, err := s.api.QueryRange(ctx, query, v1.Range{Start: from, End: to, Step: step})
	if err != nil {
		return Drawn{}, err
	}
	matrix, ok := result.(model.Matrix)
	if !ok || len(warnings) > 0 {
		return Drawn{}, fmt.Errorf("the result is a %s, warnings %q", result.Type(), warnings)
	}
	d := Drawn{Max: math.Inf(-1)}
	for _, series := range matrix {
		for _, v := range series.Values {
			if f := float64(v.Value); !math.IsNaN(f) && !math.IsInf(f, 0) {
				d.Values, d.Max = d.Values+1, max(d.Max, f)
			}
		}
	}
	return d, nil
}

// Firing are the names of the alerts that fire.
func (s *Server) Firing(ctx context.Context) ([]string, error) {
	alerts, err := s.api.Alerts(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range alerts.Alerts {
		if a.State == v1.AlertStateFiring {
			names = append(names, string(a.Labels[model.AlertNameLabel]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Unhealthy says of each rule that can not be evaluated why.
func (s *Server) Unhealthy(ctx context.Context) error {
	rules, err := s.api.Rules(ctx, nil)
	if err != nil {
		return err
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if alert, ok := rule.(v1.AlertingRule); !ok || alert.Health != v1.RuleHealthGood {
				err = errors.Join(err, fmt.Errorf("%s: %s %s", alert.Name, alert.Health, alert.LastError))
			}
		}
	}
	return err
}

// LabelValues are the values that a label of a metric has had since a time.
func (s *Server) LabelValues(ctx context.Context, metric, label string, since time.Time) (model.LabelValues, error) {
	values, _, _, err := s.api.LabelValues(ctx, label, []string{metric}, since, time.Now())
	return values, err
}
