package report

import "fmt"

// Target is what a figure is to reach.
type Target struct {
	Case, Subject, Metric string
	Limit                 float64
	// AtLeast says that the figure is not to be below the limit; otherwise it is not to
	// be above.
	AtLeast bool
}

// Verdict is a target with what was measured.
type Verdict struct {
	Target
	Figure *Figure // nil: it was not measured
}

// Check finds the figures of the targets.
func (r *Report) Check(targets []Target) []Verdict {
	var list []Verdict
	for _, t := range targets {
		v := Verdict{Target: t}
		if c := r.Case(t.Case); c != nil {
			v.Figure = c.Find(t.Subject, t.Metric, 0)
		}
		list = append(list, v)
	}
	return list
}

// Met says that the median meets the target.
func (v Verdict) Met() bool {
	if v.AtLeast {
		return v.Figure.Median >= v.Limit
	}
	return v.Figure.Median <= v.Limit
}

func (v Verdict) row() []string {
	sign := "≤"
	if v.AtLeast {
		sign = "≥"
	}
	what := v.Case + ": " + v.Subject + ": " + v.Metric
	if v.Figure == nil {
		return []string{what, sign + " " + number(v.Limit), "not measured", ""}
	}
	word := "met"
	if !v.Met() {
		word = "**missed**"
	}
	return []string{what, fmt.Sprintf("%s %s %s", sign, number(v.Limit), v.Figure.Unit), v.Figure.String(), word}
}

// Verdicts is a table of targets.
func Verdicts(list []Verdict) Table {
	t := Table{Head: []string{"figure", "target", "measured", ""}}
	for _, v := range list {
		t.Rows = append(t.Rows, v.row())
	}
	return t
}
