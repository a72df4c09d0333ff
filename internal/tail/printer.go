package tail

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/plural"
)

// stateLimit bounds the states that are kept to compare with, in bytes.
const stateLimit = 64 << 20

// The columns of resource and name grow with what comes, up to these widths, and in a
// terminal up to a part of its own, so that one long name does not push out the rest of
// every line that follows. What is longer moves the rest of its line where there is room
// for it, and is cut where there is not.
const (
	typeColumn                    = 8
	leastResource, widestResource = 16, 32
	leastName, widestName         = 24, 48
	resourceShare, nameShare      = 6, 4 // the part of a terminal's width that each may take
	shortest                      = 12   // what is cut keeps so many columns
)

// indent is where a line goes on that a terminal has no room for: under the type.
const indent = len("15:04:05.000") + len("  ")

// mostChanges is how many changed paths a line names.
const mostChanges = 3

// Printer writes one line an event. One goroutine uses it.
type Printer struct {
	Out    io.Writer
	Colour bool
	// Width returns the terminal's width in columns; 0 is no limit. It may be nil.
	Width func() int
	// Zone is where times are told; nil is the local one. Today is a day that needs
	// no line of its own, as 2006-01-02.
	Zone  *time.Location
	Today string

	before         *memory
	resource, name int    // the columns' widths so far
	day            string // of the last line
	cluster        string // of the first event
	clusters       bool   // whether there was another one
}

type colour string

// The colours, as a terminal takes them.
const (
	plain  colour = ""
	dim    colour = "2"
	bold   colour = "1"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	blue   colour = "34"
)

var typeColours = map[string]colour{"added": green, "updated": yellow, "deleted": red, "synced": blue, "snapshot": blue, "verified": blue}

// segment is a piece of a line, of one colour, in so many columns at least.
type segment struct {
	text   string
	colour colour
	column int
}

// Print writes the event's line.
func (p *Printer) Print(e *Event) error {
	width := 0
	if p.Width != nil {
		width = p.Width()
	}
	if p.before == nil {
		p.before = newMemory(stateLimit)
		p.resource, p.name = atMost(leastResource, width, resourceShare), atMost(leastName, width, nameShare)
		p.day = p.Today
	}
	var b strings.Builder
	clock := e.Attribute("time")
	if at, err := time.Parse(time.RFC3339Nano, clock); err == nil {
		zone := p.Zone
		if zone == nil {
			zone = time.Local
		}
		at = at.In(zone)
		if day := at.Format(time.DateOnly); day != p.day {
			p.day = day
			p.write(&b, []segment{{text: "-- " + day, colour: dim}}, width)
		}
		clock = at.Format("15:04:05.000")
	}
	line := append(p.head(e, clock, width), p.marks(e)...)
	fit(line, width)
	change := p.changes(e)
	room := width - taken(line) - len("  ")
	if width == 0 {
		room = math.MaxInt
	}
	text, fits := change.text(room)
	switch {
	case text == "":
		p.write(&b, line, width)
	case fits || width-indent < shortest:
		p.write(&b, append(line, segment{text: text}), width)
	default:
		p.write(&b, line, width)
		text, _ = change.text(width - indent)
		b.WriteString(strings.Repeat(" ", indent))
		p.write(&b, []segment{{text: text}}, width-indent)
	}
	if _, err := io.WriteString(p.Out, b.String()); err != nil {
		return fmt.Errorf("print event: %w", err)
	}
	return nil
}

// atMost is a column's width, or a part of the terminal's where that is less.
func atMost(column, width, share int) int {
	if width == 0 {
		return column
	}
	return min(column, max(shortest, width/share))
}

// taken is how many columns a line takes.
func taken(line []segment) int {
	n := len("  ") * (len(line) - 1)
	for i, s := range line {
		if n += columns(s.text); i < len(line)-1 {
			n += max(0, s.column-columns(s.text))
		}
	}
	return n
}

// fit cuts the name, and then the resource, of a line that is wider than the terminal:
// the version and what is special about the event come behind them.
func fit(line []segment, width int) {
	const resource, name = 2, 3 // see head
	if width == 0 {
		return
	}
	for _, i := range []int{name, resource} {
		s := &line[i]
		if over := taken(line) - width; over > 0 {
			s.column = min(s.column, max(shortest, max(columns(s.text), s.column)-over))
			s.text = clip(s.text, max(s.column, shortest, columns(s.text)-over))
		}
	}
}

func (p *Printer) head(e *Event, clock string, width int) []segment {
	kind, name, version := Printable(e.typeName()), Printable(e.objectName()), e.Attribute("resourceversion")
	if e.marker() != "" {
		kind, name, version = "snapshot", Printable(markerText(e)), e.markerData().ResourceVersion
		if e.Attribute("type") == verifiedType {
			kind = "verified"
		}
	} else {
		p.name = max(p.name, min(columns(name), atMost(widestName, width, nameShare)))
	}
	resource := Printable(e.resourceName())
	p.resource = max(p.resource, min(columns(resource), atMost(widestResource, width, resourceShare)))
	line := []segment{
		{text: Printable(clock), colour: dim},
		{text: kind, colour: typeColours[kind], column: typeColumn},
		{text: resource, column: p.resource},
		{text: name, colour: bold, column: p.name},
	}
	if version != "" {
		line = append(line, segment{text: "rv " + Printable(version), colour: dim})
	}
	return line
}

// markerText tells which end of which snapshot the event stands at: each of the
// namespaces that the configuration names has snapshots of its own.
func markerText(e *Event) string {
	d, in := e.markerData(), ""
	if ns := e.Attribute("namespace"); ns != "" {
		in = " in " + ns
	}
	if d.Compared != nil {
		return fmt.Sprintf("%s%s, %d differed", objects(*d.Compared), in, d.Differed)
	}
	text := e.marker() + in
	if d.Count == nil {
		return text
	}
	return text + ", " + objects(*d.Count)
}

func objects(n int) string { return plural.Of(n, "object") }

// marks are what is special about the event.
func (p *Printer) marks(e *Event) []segment {
	var marks []segment
	if cluster := e.Attribute("cluster"); p.cluster == "" {
		p.cluster = cluster
	} else if cluster != p.cluster {
		p.clusters = true
	}
	if p.clusters {
		marks = append(marks, segment{text: "cluster " + Printable(e.Attribute("cluster"))})
	}
	if e.Attribute("snapshot") != "" && e.marker() == "" {
		marks = append(marks, segment{text: "snapshot", colour: blue})
	}
	if e.Attribute("inferred") == "true" {
		marks = append(marks, segment{text: "inferred", colour: yellow})
	}
	if e.isTruncated() {
		marks = append(marks, segment{text: "truncated", colour: red})
	}
	return marks
}

// difference is what an update changed, in words.
type difference struct {
	texts []string // of the first few changes
	more  int      // there are besides
}

// text names as many changes as fit into so many columns, one in any case, and whether
// it does.
func (c difference) text(room int) (text string, fits bool) {
	for n := len(c.texts); n > 0; n-- {
		text = strings.Join(c.texts[:n], ", ")
		if left := c.more + len(c.texts) - n; left > 0 {
			text += fmt.Sprintf(", +%d more", left)
		}
		if columns(text) <= room {
			return text, true
		}
	}
	return text, false
}

// changes compares an update with the state before, and remembers the object's state.
func (p *Printer) changes(e *Event) difference {
	said := func(text string) difference { return difference{texts: []string{text}} }
	if e.marker() != "" {
		return difference{}
	}
	object, before := e.states()
	known := p.before.get(e.key())
	kind := e.typeName()
	if kind == "deleted" || object == nil || e.isTruncated() {
		p.before.forget(e.key())
		return difference{}
	}
	p.before.put(e.key(), object)
	if kind != "updated" {
		return difference{}
	}
	if before == nil {
		before = known
	}
	if before == nil {
		return said("(earlier state not seen)")
	}
	found, err := changes(before, object)
	switch {
	case err != nil:
		return said("(not comparable)")
	case len(found) == 0 && e.isSecret():
		return said("(no visible change: values are not shown)")
	case len(found) == 0:
		return said("(no visible change)")
	}
	c := difference{texts: make([]string, min(len(found), mostChanges))}
	for i := range c.texts {
		c.texts[i] = found[i].text(!e.isSecret())
	}
	c.more = len(found) - len(c.texts)
	return c
}

// write appends a line of the segments, two spaces between them, cut to the width.
func (p *Printer) write(b *strings.Builder, line []segment, width int) {
	at, pad := 0, 0
	for i, s := range line {
		if i > 0 {
			pad += len("  ")
		}
		text := s.text
		if width > 0 {
			if text = clip(text, width-at-pad); text == "" && s.text != "" {
				break // no room
			}
		}
		b.WriteString(strings.Repeat(" ", pad))
		if p.Colour && s.colour != plain {
			fmt.Fprintf(b, "\x1b[%sm%s\x1b[0m", s.colour, text)
		} else {
			b.WriteString(text)
		}
		at += pad + columns(text)
		pad = max(0, s.column-columns(text))
	}
	b.WriteByte('\n')
}
