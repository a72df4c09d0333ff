package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

// Report is all that was found.
type Report struct {
	Findings []Finding
}

// count is how many findings have the outcome.
func (r Report) count(o Outcome) int {
	n := 0
	for _, f := range r.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// Gaps is how many of the findings are gaps.
func (r Report) Gaps() int { return r.count(Gap) }

// WriteText writes a line for each finding, of four columns: group, outcome, and subject
// and text with a colon between them. The last line sums up.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(f.line())
		b.WriteByte('\n')
	}
	b.WriteString(r.summary())
	b.WriteByte('\n')
	return write(w, b.String())
}

// line is the finding as text.
func (f Finding) line() string {
	text := f.Text
	if f.Mend != nil {
		text += "; " + f.Mend.String()
	}
	return fmt.Sprintf("%-11s  %-7s  %s: %s", f.Group, f.Outcome, inOneLine(f.Subject), inOneLine(text))
}

func (r Report) summary() string {
	what := "no gaps: a start finds what it needs"
	switch gaps := r.Gaps(); {
	case gaps == 1:
		what = "1 gap: a start would not do all that the configuration asks for"
	case gaps > 1:
		what = fmt.Sprintf("%d gaps: a start would not do all that the configuration asks for", gaps)
	}
	return fmt.Sprintf("%s (ok: %d, warnings: %d, skipped: %d)", what, r.count(OK), r.count(Warning), r.count(Skipped))
}

// WriteJSON writes one document with the findings and how many have each outcome.
func (r Report) WriteJSON(w io.Writer) error {
	findings := make([]Finding, len(r.Findings)) // so that none is an empty list
	copy(findings, r.Findings)
	out, err := json.MarshalIndent(struct {
		OK       int       `json:"ok"`
		Warnings int       `json:"warnings"`
		Gaps     int       `json:"gaps"`
		Skipped  int       `json:"skipped"`
		Findings []Finding `json:"findings"`
	}{r.count(OK), r.count(Warning), r.Gaps(), r.count(Skipped), findings}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode findings: %w", err)
	}
	return write(w, string(out)+"\n")
}

func write(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	return nil
}

// inOneLine escapes what would not stay in the line, or would write over it: parts of the
// text are servers' answers.
func inOneLine(s string) string {
	s = strings.TrimSpace(s)
	if !strings.ContainsFunc(s, isHidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString("; ")
		case isHidden(r):
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isHidden(r rune) bool { return r != ' ' && !unicode.IsGraphic(r) || r == unicode.ReplacementChar }
