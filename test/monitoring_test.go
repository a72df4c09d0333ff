package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/internal/testprometheus"
)

const (
	alertsFile    = "../deploy/helm/kbridge/files/alerts.yaml"
	dashboardFile = "../deploy/helm/kbridge/files/dashboard.json"
	runbook       = "https://github.com/kbridge-io/kbridge/blob/main/docs/OPERATIONS.md#"
)

type alertRule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readAll(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal(readAll(t, alertsFile), &file); err != nil {
		t.Fatal(err)
	}
	var rules []alertRule
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there is no rule")
	}
	return rules
}

// undocumented are the metrics in a query that neither docs/METRICS.md has nor Go's client gives.
func undocumented(t *testing.T, query string) (names []string) {
	documented := documentedMetrics(t)
	for _, name := range metricsIn(query) {
		if _, ok := documented[name]; !ok && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			names = append(names, name)
		}
	}
	return names
}

func metricsIn(query string) []string {
	names := regexp.MustCompile(`\b(?:kbridge|go|process)_[a-z_]+`).FindAllString(query, -1)
	for i, name := range names {
		names[i] = strings.TrimSuffix(name, "_bucket")
	}
	return names
}

func TestTheAlertsFireWhenTheyShallAndNotInAShortDisturbance(t *testing.T) {
	promtool := testprometheus.Require(t).Promtool
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", "testdata/alerts.test.yaml"}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestEachAlertHasTestsASectionAndMetricsThatExist(t *testing.T) {
	var tests struct {
		Tests []struct {
			Name   string
			Series []any `yaml:"input_series"`
			Checks []struct {
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal(readAll(t, "testdata/alerts.test.yaml"), &tests); err != nil {
		t.Fatal(err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		alert, _, _ := strings.Cut(test.Name, ":")
		silent := len(test.Checks) > 0
		for _, c := range test.Checks {
			for _, s := range c.Samples {
				fires[s.Labels], silent = true, false
			}
		}
		quiet[alert] = quiet[alert] || silent
	}
	sections := map[string]string{}
	_, text, _ := strings.Cut(string(readAll(t, "../docs/OPERATIONS.md")), "\n## Alerts\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, section := range strings.Split(text, "\n### ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		sections[name] = body
	}
	for _, r := range alertRules(t) {
		if !fires[`{alertname="`+r.Alert+`"}`] || !quiet[r.Alert] {
			t.Errorf("%s: testdata/alerts.test.yaml needs a test in which it fires, and %q in which nothing does", r.Alert, r.Alert+": a short disturbance")
		}
		for _, part := range []string{"**Means**", "**Look at**", "**Do**"} {
			if !strings.Contains(sections[r.Alert], part) {
				t.Errorf("%s: docs/OPERATIONS.md has no section of that name with %s", r.Alert, part)
			}
		}
		delete(sections, r.Alert)
		if names := undocumented(t, r.Expr); len(names) > 0 || len(metricsIn(r.Expr)) == 0 {
			t.Errorf("%s: docs/METRICS.md does not have %q of %s", r.Alert, names, r.Expr)
		}
		if got, want := r.Annotations["runbook_url"], runbook+strings.ToLower(r.Alert); got != want {
			t.Errorf("%s: the runbook is %q, want %q", r.Alert, got, want)
		}
		if severity := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s: the severity is %q", r.Alert, severity)
		}
		kept := r.labels(t)
		for _, a := range []string{"summary", "description"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s has no %s", r.Alert, a)
			}
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations[a], -1) {
				if !slices.Contains(kept, m[1]) {
					t.Errorf("%s: its %s names the label %s, and it has %q", r.Alert, a, m[1], kept)
				}
			}
		}
	}
	for name := range sections {
		t.Errorf("docs/OPERATIONS.md explains %s, which is no alert", name)
	}
}

// labels are those that an alert has: of what it sums by, or else of its first metric and of the target.
func (r alertRule) labels(t *testing.T) []string {
	if m := regexp.MustCompile(`\bby \(([a-z, ]+)\)`).FindStringSubmatch(r.Expr); m != nil {
		return strings.Split(m[1], ", ")
	}
	_, labels, _ := strings.Cut(documentedMetrics(t)[metricsIn(r.Expr)[0]], " ")
	return append(strings.Split(labels, ","), "namespace", "pod", "job", "instance")
}

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  struct{ Type, UID string }
	Targets     []struct {
		Expr    string
		Instant bool
	}
}

type dashboard struct {
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition, AllValue string }
	}
	Panels []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(readAll(t, dashboardFile), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheDashboardExplainsItsPanelsAndShowsEachMetric(t *testing.T) {
	d := readDashboard(t)
	if d.SchemaVersion < 38 {
		t.Errorf("the schema is %d, that of Grafana 10 is 38", d.SchemaVersion)
	}
	ids, shown, rows := map[int]bool{}, map[string]bool{}, []string(nil)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: the id %d is given twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Description == "" || p.Datasource.UID != "${datasource}" || p.Datasource.Type != "prometheus" || len(p.Targets) == 0 {
			t.Errorf("%s lacks something: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			if names := undocumented(t, target.Expr); len(names) > 0 {
				t.Errorf("%s: docs/METRICS.md does not have %q", p.Title, names)
			}
			for _, name := range metricsIn(target.Expr) {
				shown[name] = true
			}
		}
	}
	if want := []string{"Health now", "Resources", "Sinks", "State", "Process"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	for name := range documentedMetrics(t) {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// scrape is the configuration of a Prometheus that reads kbridge's metrics each second, with the labels that Kubernetes
// gives, and evaluates the alerts.
func scrape(t *testing.T, p *process) string {
	t.Helper()
	rules, err := filepath.Abs(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ['%s']
scrape_configs:
  - job_name: kbridge
    static_configs: [{targets: ['%s'], labels: {namespace: kb, pod: kbridge-0}}]
`, rules, p.address)
}

func TestNoPanelOfTheDashboardIsEmptyForARealKbridge(t *testing.T) {
	programs := testprometheus.Require(t)
	cluster := testcluster.Shared(t)
	one, two := natsserver.New(t, ""), natsserver.New(t, "max_payload: 65536")
	same, first, second := cluster.CreateNamespace(t), cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	p := prepare(t, cluster.Kubeconfig(), twice(one, two, same, first, second)+stateIn(t.TempDir())+tracing(t))
	p.configuration = strings.Replace(p.configuration, "- name: one\n", "- name: one\n    foldAfter: 1s\n    window: {events: 50}\n", 1)
	p.env = []string{"GOMEMLIMIT=1GiB"} // as the container's limit does
	p.again()
	server := testprometheus.Start(t, programs, scrape(t, p))
	began := time.Now()
	p.ready()
	reaches := func(what, query string, want float64) {
		eventually(t, what, func() error {
			d, err := server.Range(t.Context(), query, time.Now().Add(-time.Second), time.Now(), time.Second)
			if err == nil && (d.Values == 0 || d.Max != want && want == 0 || d.Max < want) {
				err = fmt.Errorf("%s is %v", query, d)
			}
			return err
		})
	}
	reaches("the counters are seen at 0", `min(count_over_time(kbridge_dead_letters_total{sink="two"}[1m]))`, 2)
	c := startChurn(t, cluster, same, 4, "x")
	c.goesOn(t, 100)
	one.Kill()
	large := object("v1", "ConfigMap", second, "large", map[string]any{"data": map[string]any{"x": strings.Repeat("x", 128<<10)}})
	if _, err := cluster.Dynamic(t).Resource(configMaps).Namespace(second).Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reaches("the sink is behind", `kbridge_behind_objects{sink="one"}`, 1)
	reaches("there are failures to connect", `kbridge_sink_failures_total{sink="one",kind="connect"}`, 1)
	reaches("the other sink has a dead letter", `sum(kbridge_dead_letters_total{sink="two"})`, 1)
	reaches("changes are folded", `sum(kbridge_folded_total{sink="one"})`, 1)
	one.Start()
	reaches("the sink has caught up", `kbridge_behind_objects{sink="one"}`, 0)
	c.goesOn(t, 100)
	c.end()
	_, accounting, _ := strings.Cut(metricsDoc(t), "```promql\n")
	accounting, _, _ = strings.Cut(accounting, "```")
	reaches("each delta is accounted for", "max(abs("+accounting+"))", 0)
	eventually(t, "the alert that has no time to wait fires", func() error {
		firing, err := server.Firing(t.Context())
		if err == nil && !slices.Equal(firing, []string{"KbridgeDeadLetters"}) {
			err = fmt.Errorf("%q fire", firing)
		}
		return err
	})
	if err := server.Unhealthy(t.Context()); err != nil {
		t.Errorf("rules: %v", err)
	}

	d := readDashboard(t)
	chosen := map[string]string{"namespace": "kb", "pod": "kbridge-0", "sink": "one|two", "resource": "configmaps"}
	all := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		all[v.Name] = v.AllValue
		m := regexp.MustCompile(`^label_values\((.+),(\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("the variable %s is %q", v.Name, v.Definition)
		}
		values, err := server.LabelValues(t.Context(), withVariables(m[1], chosen), m[2], began)
		if got := strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", "|"), "[]"); err != nil || got != chosen[v.Name] {
			t.Errorf("the variable %s offers %q, want %q: %v", v.Name, got, chosen[v.Name], err)
		}
	}
	// What failed has to be seen to have failed.
	troubled := []string{"Dead letters", "Folded changes", "Waiting and behind", "Failures", "Not sent", "Dead letters and truncated events", "Window", "Oldest event"}
	for _, pnl := range d.Panels {
		highest := 0.0
		for _, target := range pnl.Targets {
			for _, values := range []map[string]string{all, chosen} {
				query, from, to := withVariables(target.Expr, values), began, time.Now()
				if target.Instant {
					from = to
				}
				drawn, err := server.Range(t.Context(), query, from, to, time.Second)
				if err != nil || drawn.Values == 0 {
					t.Errorf("%s shows nothing: %v\n%s", pnl.Title, err, query)
				}
				highest = max(highest, drawn.Max)
			}
		}
		if slices.Contains(troubled, pnl.Title) && highest <= 0 {
			t.Errorf("%s shows nothing of what failed", pnl.Title)
		}
	}
	p.stop()
}

// withVariables is a query as Grafana sends it.
func withVariables(query string, values map[string]string) string {
	query = strings.NewReplacer("$__rate_interval", "8s", "$__range", "5m").Replace(query)
	return os.Expand(query, func(name string) string { return values[name] })
}
