// Package report owns the bench's figures: what they are made of, how they are written
// as JSON, as tables and as plots, and whether they meet their targets.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Metric is what is measured, of whatever it is measured.
type Metric struct{ Name, Unit string }

// Figure is one metric of one subject, once a run.
type Figure struct {
	Subject string
	Metric  string
	Unit    string
	// At is the size that a figure of growth is for, such as the number of objects.
	At     float64 `json:",omitempty"`
	Median float64
	Min    float64
	Max    float64
	Values []float64
}

// Case is the figures of one case, and what they were measured on. Cases can be measured
// at different times.
type Case struct {
	Name    string
	When    time.Time
	Machine Machine
	// Quick says that sizes were small and the figures only show that the bench works.
	Quick   bool `json:",omitempty"`
	Figures []*Figure
	// Notes are what went otherwise than a figure supposes.
	Notes []string `json:",omitempty"`
}

// Add adds the value of one run.
func (c *Case) Add(subject string, m Metric, value float64) { c.AddAt(subject, m, 0, value) }

// AddAt adds the value of one run at a size.
func (c *Case) AddAt(subject string, m Metric, at, value float64) {
	f := c.Find(subject, m.Name, at)
	if f == nil {
		f = &Figure{Subject: subject, Metric: m.Name, Unit: m.Unit, At: at}
		c.Figures = append(c.Figures, f)
	}
	f.Values = append(f.Values, value)
	f.Median, f.Min, f.Max = Percentile(f.Values, 50), slices.Min(f.Values), slices.Max(f.Values)
}

// Find returns a figure, nil if there is none.
func (c *Case) Find(subject, metric string, at float64) *Figure {
	for _, f := range c.Figures {
		if f.Subject == subject && f.Metric == metric && f.At == at {
			return f
		}
	}
	return nil
}

// Note adds a sentence, once.
func (c *Case) Note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(c.Notes, note) {
		c.Notes = append(c.Notes, note)
	}
}

// Report is a set of cases.
type Report struct{ Cases []*Case }

// Case returns the case of that name, nil if there is none.
func (r *Report) Case(name string) *Case {
	for _, c := range r.Cases {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Put adds a case, or replaces the one of that name.
func (r *Report) Put(c *Case) {
	for i, old := range r.Cases {
		if old.Name == c.Name {
			r.Cases[i] = c
			return
		}
	}
	r.Cases = append(r.Cases, c)
}

// Read reads a report. One that is not there is empty.
func Read(path string) (*Report, error) {
	r := &Report{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, r)
	}
	if err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	return r, nil
}

// Write writes the report.
func (r *Report) Write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
