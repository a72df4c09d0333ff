package report

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Update writes tables into a document, each between the lines
//
//	<!-- figures NAME -->
//	<!-- end of figures -->
//
// where NAME is that of a case, or "targets". What stands there of a case that was not
// measured is left alone.
func (r *Report) Update(path string, targets []Target) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update the document: %w", err)
	}
	updated, err := r.fill(old, targets)
	if err != nil {
		return fmt.Errorf("update %s: %w", path, err)
	}
	if bytes.Equal(old, updated) {
		return nil
	}
	if err := os.WriteFile(path, updated, 0o644); err != nil {
		return fmt.Errorf("update the document: %w", err)
	}
	return nil
}

const (
	beginMark = "<!-- figures "
	endMark   = "<!-- end of figures -->"
)

func (r *Report) fill(document []byte, targets []Target) ([]byte, error) {
	var out strings.Builder
	rest := string(document)
	for {
		before, found, ok := strings.Cut(rest, beginMark)
		out.WriteString(before)
		if !ok {
			return []byte(out.String()), nil
		}
		name, body, _ := strings.Cut(found, " -->\n")
		old, after, ok := strings.Cut(body, endMark)
		if !ok {
			return nil, fmt.Errorf("the figures %s have no end", name)
		}
		out.WriteString(beginMark + name + " -->\n")
		if text := r.text(name, targets); text != "" {
			out.WriteString("\n" + text + "\n")
		} else {
			out.WriteString(old)
		}
		out.WriteString(endMark)
		rest = after
	}
}

// text is what stands between the marks; empty for what was not measured.
func (r *Report) text(name string, targets []Target) string {
	if name == "targets" {
		return Verdicts(r.Check(targets)).Markdown()
	}
	c := r.Case(name)
	if c == nil {
		return ""
	}
	text := ""
	for i, t := range c.Tables() {
		if i > 0 {
			text += "\n"
		}
		text += t.Markdown()
	}
	for _, note := range c.Notes {
		text += "\n- " + note
	}
	if len(c.Notes) > 0 {
		text += "\n"
	}
	runs := 0
	for _, f := range c.Figures {
		runs = max(runs, len(f.Values))
	}
	return text + fmt.Sprintf("\nMedian of %d runs (least–greatest), %s, %s.\n", runs, c.When.Format("2006-01-02"), c.Machine)
}
