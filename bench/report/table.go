package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table is rows of text.
type Table struct {
	Head []string
	Rows [][]string
}

// Tables shows the case: a row a subject, a column a metric, each cell the median with
// the least and the greatest value. Subjects that share no metric stand in tables of
// their own.
func (c *Case) Tables() []Table {
	var tables []Table
	for _, figures := range c.groups() {
		tables = append(tables, tableOf(figures))
	}
	return tables
}

// place is what a row is for.
type place struct {
	subject string
	at      float64
}

// groups parts the figures by subjects that share metrics.
func (c *Case) groups() [][]*Figure {
	var groups [][]*Figure
	group := map[string]int{} // of each metric
	known := map[place]int{}  // of each row
	for _, f := range c.Figures {
		p := place{f.Subject, f.At}
		i, ok := known[p]
		if !ok {
			i, ok = group[f.Metric]
		}
		if !ok {
			i = len(groups)
			groups = append(groups, nil)
		}
		known[p], group[f.Metric] = i, i
		groups[i] = append(groups[i], f)
	}
	return groups
}

func tableOf(figures []*Figure) Table {
	t := Table{Head: []string{""}}
	column := map[string]int{}
	row := map[place]int{}
	for _, f := range figures {
		if column[f.Metric] == 0 {
			column[f.Metric] = len(t.Head)
			t.Head = append(t.Head, f.head())
		}
	}
	for _, f := range figures {
		p := place{f.Subject, f.At}
		i, ok := row[p]
		if !ok {
			i = len(t.Rows)
			row[p] = i
			t.Rows = append(t.Rows, make([]string, len(t.Head)))
			t.Rows[i][0] = f.Subject
			if f.At != 0 {
				t.Rows[i][0] += ", " + number(f.At)
			}
		}
		t.Rows[i][column[f.Metric]] = f.String()
	}
	return t
}

func (f *Figure) head() string {
	if f.Unit == "" {
		return f.Metric
	}
	return f.Metric + ", " + f.Unit
}

// String is the median with the spread.
func (f *Figure) String() string {
	if len(f.Values) == 1 {
		return number(f.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(f.Median), number(f.Min), number(f.Max))
}

// number has three digits that count, and groups of thousands.
func number(x float64) string {
	size := math.Abs(x)
	if size != 0 && size < 100 {
		digits := 2 - int(math.Floor(math.Log10(size)))
		return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(x, 'f', digits, 64), "0"), ".")
	}
	if size >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(size))-2)
		x = math.Round(x/unit) * unit
	}
	text := strconv.FormatFloat(math.Abs(x), 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if x < 0 {
		text = "-" + text
	}
	return text
}

// Markdown is the table for a document.
func (t Table) Markdown() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(t.Head)
	rule := make([]string, len(t.Head))
	for i := range rule {
		rule[i] = "---"
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}

// String is the table for a terminal.
func (t Table) String() string {
	widths := make([]int, len(t.Head))
	all := append([][]string{t.Head}, t.Rows...)
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
