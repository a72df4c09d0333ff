package test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// families are kbridge's own metrics, by name.
func (p *process) families() map[string]*dto.MetricFamily {
	p.t.Helper()
	text, err := p.get("/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool { return !strings.HasPrefix(name, "kbridge_") })
	return families
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// metricsDoc is docs/METRICS.md.
func metricsDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documentedMetrics are the rows of docs/METRICS.md, by name: type and sorted labels.
func documentedMetrics(t *testing.T) map[string]string {
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(kbridge_[a-z_]+)` \\| ([a-z]+) \\|([a-z, ]*)\\| .+ \\|$").FindAllStringSubmatch(metricsDoc(t), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		rows[m[1]] = m[2] + " " + strings.Join(labels, ",")
	}
	return rows
}

// twice selects configmaps in three entries: two of the same objects, without a name, for
// a sink each, and one of two namespaces for both.
func twice(one, two *natsserver.Server, same, first, second string) string {
	return fmt.Sprintf(`
cluster: test
kubernetes: {qps: 500, burst: 1000}
resources:
  - {resource: configmaps, namespaces: [%[1]s], sinks: [one]}
  - {resource: configmaps, namespaces: [%[1]s], sinks: [two], types: [added, deleted]}
  - {name: others, resource: configmaps, namespaces: [%[2]s, %[3]s]}
`, same, first, second) + "\nsinks:" + natsEntry("one", one, "", "") + natsEntry("two", two, "", "")
}

func TestWhatBecomesOfEachEntrysDeltasAddsUpForEachSink(t *testing.T) {
	cluster := testcluster.Shared(t)
	same, first, second := cluster.CreateNamespace(t), cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	p := start(t, cluster, twice(natsserver.New(t, ""), natsserver.New(t, "max_payload: 65536"), same, first, second)+stateIn(t.TempDir()))
	p.ready()
	create := func(ns, name string, size int) {
		o := object("v1", "ConfigMap", ns, name, map[string]any{"data": map[string]any{"x": strings.Repeat("x", size)}})
		if _, err := cluster.Dynamic(t).Resource(configMaps).Namespace(ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		create(same, fmt.Sprint("s-", i), 1)
		create(first, fmt.Sprint("f-", i), 1)
	}
	create(second, "large", 128<<10) // more than one of the brokers takes
	for i := range 5 {
		configMap := cluster.Dynamic(t).Resource(configMaps).Namespace(same)
		o, err := configMap.Get(t.Context(), fmt.Sprint("s-", i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Object["data"] = map[string]any{"x": "y"}
		if _, err := configMap.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// By entry; by entry and sink what was published, filtered and put aside.
	wantDeltas := map[string]float64{"configmaps": 10, "configmaps/2": 10, "others": 6}
	want := map[string]string{
		"configmaps one":   "published 10, filtered 0, folded 0, dead letters 0",
		"configmaps/2 two": "published 5, filtered 5, folded 0, dead letters 0",
		"others one":       "published 6, filtered 0, folded 0, dead letters 0",
		"others two":       "published 5, filtered 0, folded 0, dead letters 1",
	}
	eventually(t, "each delta is accounted for", func() error {
		deltas, dealt := map[string]float64{}, map[string]map[string]float64{}
		for name, f := range p.families() {
			for _, m := range f.GetMetric() {
				labels, value := labelsOf(m), m.GetCounter().GetValue()
				if _, stands := labels["type"]; stands && !slices.Contains([]string{"added", "updated", "deleted"}, labels["type"]) {
					continue
				}
				if name == "kbridge_deltas_total" {
					deltas[labels["entry"]] += value
				}
				if labels["entry"] == "" || labels["sink"] == "" {
					continue
				}
				key := labels["entry"] + " " + labels["sink"]
				if dealt[key] == nil {
					dealt[key] = map[string]float64{}
				}
				dealt[key][name] += value
			}
		}
		got := map[string]string{}
		for key, n := range dealt {
			got[key] = fmt.Sprintf("published %v, filtered %v, folded %v, dead letters %v", n["kbridge_published_total"], n["kbridge_filtered_total"], n["kbridge_folded_total"], n["kbridge_dead_letters_total"])
		}
		if !maps.Equal(deltas, wantDeltas) || !maps.Equal(got, want) {
			return fmt.Errorf("%v, and %q; want %v, and %q", deltas, got, wantDeltas, want)
		}
		return nil
	})
	if n := p.metric("kbridge_objects", `entry="others"`, `resource="configmaps"`); n != 6 {
		t.Errorf("the two watches of an entry have %v objects, want 6", n)
	}
	p.stop()
}

func TestTheMetricsOfARunAreThoseInTheDocs(t *testing.T) {
	cluster := testcluster.Shared(t)
	same, first, second := cluster.CreateNamespace(t), cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	p := start(t, cluster, twice(natsserver.New(t, ""), natsserver.New(t, ""), same, first, second)+stateIn(t.TempDir())+tracing(t))
	p.ready()
	doc, documented, found := metricsDoc(t), documentedMetrics(t), map[string]string{}
	var types []string
	for n := event.Added; int(n) < event.Types; n++ {
		types = append(types, n.String())
	}
	configured := map[string][]string{"sink": {"one", "two"}, "entry": {"configmaps", "configmaps/2", "others"}, "resource": {"configmaps"}, "type": types}
	for name, f := range p.families() {
		kind := strings.ToLower(f.GetType().String())
		for _, m := range f.GetMetric() {
			labels := labelsOf(m)
			row := kind + " " + strings.Join(slices.Sorted(maps.Keys(labels)), ",")
			if was := found[name]; was != "" && was != row {
				t.Errorf("%s is %q, and %q", name, was, row)
			}
			found[name] = row
			for label, value := range labels {
				known, ok := configured[label]
				if ok && !slices.Contains(known, value) || !ok && label != "version" && !strings.Contains(doc, "`"+value+"`") {
					t.Errorf("%s has the %s %q, which neither the configuration nor docs/METRICS.md has", name, label, value)
				}
			}
		}
		if f.GetHelp() == "" || !strings.HasSuffix(f.GetHelp(), ".") {
			t.Errorf("the help of %s is %q", name, f.GetHelp())
		}
		if is := kind == "counter"; is != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind)
		}
		if kind == "histogram" && !strings.HasSuffix(name, "_seconds") {
			t.Errorf("%s has no unit", name)
		}
	}
	for name := range union(documented, found) {
		if documented[name] != found[name] {
			t.Errorf("%s: docs/METRICS.md has %q, a run %q", name, documented[name], found[name])
		}
	}
	p.stop()
}

// tracing has each event traced, to a collector that takes all spans.
func tracing(t *testing.T) string {
	t.Helper()
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(collector.Close)
	return "tracing: {otlpEndpoint: '" + collector.URL + "', sampleRatio: 1}\n"
}

// union are the keys of both.
func union[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func TestWhatIsNotReadyIsSeenInTheMetrics(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+"  - {name: misspelt, resource: configmapps}\n"+natsSink(server, ""))
	shows := func(what string, want map[string]float64) {
		eventually(t, what, func() error {
			p.mustRun()
			for sample, want := range want {
				name, labels, _ := strings.Cut(sample, " ")
				n, err := p.tryMetric(name, labels)
				if err != nil {
					return fmt.Errorf("%s: %w", sample, err)
				}
				if n != want {
					return fmt.Errorf("%s is %v, want %v", sample, n, want)
				}
			}
			return nil
		})
	}
	shows("a resource is missing", map[string]float64{
		"kbridge_ready": 0, `kbridge_sink_ready sink="live"`: 1,
		`kbridge_entry_ready entry="configmaps"`: 1, `kbridge_entry_ready entry="misspelt"`: 0,
		`kbridge_synced entry="configmaps"`: 1, `kbridge_synced entry="misspelt"`: 0,
		"kbridge_config_warnings": 1, // there is no state
	})
	server.Kill()
	shows("the broker is away", map[string]float64{"kbridge_ready": 0, `kbridge_sink_ready sink="live"`: 0, `kbridge_entry_ready entry="configmaps"`: 1})
}
