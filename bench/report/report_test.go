package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPercentileInterpolates(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		percent float64
		want    float64
	}{
		{nil, 50, 0},
		{[]float64{7}, 99.9, 7},
		{[]float64{3, 1, 2}, 50, 2},
		{[]float64{4, 1, 3, 2}, 50, 2.5},
		{[]float64{1, 2, 3, 4, 5}, 0, 1},
		{[]float64{1, 2, 3, 4, 5}, 100, 5},
		{[]float64{0, 100}, 99, 99},
	} {
		if got := Percentile(c.values, c.percent); got != c.want {
			t.Errorf("percentile %v of %v is %v, want %v", c.percent, c.values, got, c.want)
		}
	}
}

func TestPercentileLeavesTheValuesInTheirOrder(t *testing.T) {
	values := []float64{3, 1, 2}
	Percentile(values, 50)
	if values[0] != 3 {
		t.Errorf("values are now %v", values)
	}
}

func TestNumbersHaveThreeDigitsThatCount(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0", 0.01234: "0.0123", 1.5: "1.5", 20: "20", 23.456: "23.5", 123.4: "123", 40_123: "40,100", 1_234_567: "1,230,000", -1234: "-1,230", 99.96: "100",
	} {
		if got := number(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
}

var rate = Metric{"events", "1/s"}

func sample() *Report {
	c := &Case{Name: "stdout"}
	for _, v := range []float64{41_000, 39_000, 45_000} {
		c.Add("kbridge", rate, v)
	}
	c.Add("baseline", rate, 2000)
	c.Add("baseline", Metric{"CPU", "µs"}, 300)
	r := &Report{}
	r.Put(c)
	return r
}

func TestATableHasARowForEachSubject(t *testing.T) {
	want := `|  | events, 1/s | CPU, µs |
| --- | --- | --- |
| kbridge | 41,000 (39,000–45,000) |  |
| baseline | 2,000 | 300 |
`
	tables := sample().Case("stdout").Tables()
	if got := tables[0].Markdown(); len(tables) != 1 || got != want {
		t.Errorf("%d tables; the first is\n%s\nwant\n%s", len(tables), got, want)
	}
}

func TestSubjectsThatShareNoMetricHaveTablesOfTheirOwn(t *testing.T) {
	c := &Case{}
	c.Add("list", rate, 1)
	c.Add("resync", Metric{"p99", "ms"}, 2)
	c.Add("again", rate, 3)
	tables := c.Tables()
	if len(tables) != 2 || len(tables[0].Rows) != 2 || len(tables[1].Rows) != 1 {
		t.Errorf("tables are %v", tables)
	}
}

func TestATargetIsMetByTheMedian(t *testing.T) {
	for limit, want := range map[float64]bool{40_000: true, 41_001: false} {
		v := sample().Check([]Target{{Case: "stdout", Subject: "kbridge", Metric: "events", Limit: limit, AtLeast: true}})
		if v[0].Met() != want {
			t.Errorf("at least %v: met is %v", limit, v[0].Met())
		}
	}
	v := sample().Check([]Target{{Case: "nats", Subject: "kbridge", Metric: "events"}})
	if v[0].Figure != nil || !strings.Contains(Verdicts(v).String(), "not measured") {
		t.Error("a figure that was not measured has a verdict")
	}
}

func TestADocumentGetsTheTablesOfWhatWasMeasured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	before := "# Figures\n<!-- figures stdout -->\nold\n<!-- end of figures -->\nbetween\n<!-- figures nats -->\nkept\n<!-- end of figures -->\nafter\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := sample().Update(path, nil); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"# Figures\n", "| kbridge | 41,000", "<!-- end of figures -->\nbetween\n", "nats -->\nkept\n<!-- end of figures -->\nafter\n"} {
			if strings.Count(string(got), want) != 1 {
				t.Errorf("%q is not there once in\n%s", want, got)
			}
		}
		if strings.Contains(string(got), "old") {
			t.Error("the old table is still there")
		}
	}
}

func TestADocumentWithoutAnEndMarkIsLeftAlone(t *testing.T) {
	if _, err := sample().fill([]byte("<!-- figures stdout -->\n"), nil); err == nil {
		t.Error("no error")
	}
}

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	if r, err := Read(path); err != nil || len(r.Cases) != 0 {
		t.Fatalf("a report that is not there: %v, %v", r, err)
	}
	if err := sample().Write(path); err != nil {
		t.Fatal(err)
	}
	r, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Case("stdout").Tables(), sample().Case("stdout").Tables(); !cmp.Equal(got, want) {
		t.Errorf("read\n%v\nwant\n%v", got, want)
	}
}

func TestAPlotIsAPNGAndAnSVG(t *testing.T) {
	c := &Case{Name: "growth"}
	for _, objects := range []float64{1000, 10_000, 100_000} {
		c.AddAt("kbridge", Metric{"memory", "MiB"}, objects, objects/1000)
	}
	base := filepath.Join(t.TempDir(), "growth")
	if err := c.Plot(base, []Panel{{Title: "Memory", X: "objects", Y: "MiB", Metrics: []string{"memory"}}}); err != nil {
		t.Fatal(err)
	}
	for suffix, magic := range map[string]string{".png": "\x89PNG", ".svg": "<?xml"} {
		data, err := os.ReadFile(base + suffix)
		if err != nil || !strings.HasPrefix(string(data), magic) {
			t.Errorf("%s begins with %.10q, %v", suffix, data, err)
		}
	}
	if err := c.Plot(base, []Panel{{Title: "None", Metrics: []string{"none"}}}); err == nil {
		t.Error("a plot of nothing is no error")
	}
}
