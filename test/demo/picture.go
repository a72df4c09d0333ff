//go:build unix

package main

import (
	"fmt"
	"html"
	"os"
	"strings"
)

// Of the picture's letters, in pixels.
const (
	letterWidth = 7.23
	lineHeight  = 18
	margin      = 16
)

// draw writes lines of kbridge tail as a picture of a terminal, in the light and dark
// colours of whoever looks at it.
func draw(path string, lines []string) error {
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line)))
	}
	var b strings.Builder
	w, h := float64(width)*letterWidth+2*margin, len(lines)*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="What kbridge tail prints">`+"\n", w, h, w, h)
	b.WriteString(`<style>
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#1f2328}
rect{fill:#f6f8fa}.added{fill:#116329}.updated{fill:#7d4e00}.deleted{fill:#a40e26}.time{fill:#57606a}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22}.added{fill:#56d364}.updated{fill:#e3b341}.deleted{fill:#ff7b72}.time{fill:#9198a1}}
</style>
<rect width="100%" height="100%" rx="8"/>
`)
	for i, line := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve">%s</text>`+"\n", margin, margin+13+i*lineHeight, spans(line))
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// spans colours a line's time and its kind of event.
func spans(line string) string {
	at, rest, _ := strings.Cut(line, "  ")
	kind, _, _ := strings.Cut(rest, " ")
	switch kind {
	case "added", "updated", "deleted":
		return `<tspan class="time">` + html.EscapeString(at) + `</tspan>  <tspan class="` + kind + `">` + kind + `</tspan>` + html.EscapeString(strings.TrimPrefix(rest, kind))
	default:
		return html.EscapeString(line)
	}
}
