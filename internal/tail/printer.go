package tail

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// stateLimit bounds the states that are kept to compare with, in bytes.
const stateLimit = 64 << 20

// The columns of resource and name grow with what comes, up to these widths; what
// is longer moves the rest of its line.
const (
	typeColumn                    = 8
	leastResource, widestResource = 16, 32
	leastName, widestName         = 24, 48
)

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
	if p.before == nil {
		p.before = newMemory(stateLimit)
		p.resource, p.name = leastResource, leastName
		p.day = p.Today
	}
	width := 0
	if p.Width != nil {
		width = p.Width()
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
	line := p.head(e, clock)
	line = append(line, p.marks(e)...)
	used := len("  ") * len(line)
	for _, s := range line {
		used += max(columns(s.text), s.column)
	}
	room := 0
	if width > 0 {
		room = max(width-used, 1)
	}
	if text := p.changes(e, room); text != "" {
		line = append(line, segment{text: text})
	}
	p.write(&b, line, width)
	if _, err := io.WriteString(p.Out, b.String()); err != nil {
		return fmt.Errorf("print event: %w", err)
	}
	return nil
}

func (p *Printer) head(e *Event, clock string) []segment {
	kind, name, version := Printable(e.typeName()), Printable(e.objectName()), e.Attribute("resourceversion")
	if e.marker() != "" {
		kind, name, version = "snapshot", Printable(markerText(e)), e.markerData().ResourceVersion
		if e.Attribute("type") == verifiedType {
			kind = "verified"
		}
	} else {
		p.name = max(p.name, min(columns(name), widestName))
	}
	resource := Printable(e.resourceName())
	p.resource = max(p.resource, min(columns(resource), widestResource))
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

func objects(n int) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

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

// changes says what an update changed, in so many columns if that can be, and
// remembers the object's state.
func (p *Printer) changes(e *Event, room int) string {
	if e.marker() != "" {
		return ""
	}
	object, before := e.states()
	known := p.before.get(e.key())
	kind := e.typeName()
	if kind == "deleted" || object == nil || e.isTruncated() {
		p.before.forget(e.key())
		return ""
	}
	p.before.put(e.key(), object)
	if kind != "updated" {
		return ""
	}
	if before == nil {
		before = known
	}
	if before == nil {
		return "(earlier state not seen)"
	}
	found, err := changes(before, object)
	switch {
	case err != nil:
		return "(not comparable)"
	case len(found) == 0 && e.isSecret():
		return "(no visible change: values are not shown)"
	case len(found) == 0:
		return "(no visible change)"
	}
	texts := make([]string, min(len(found), mostChanges))
	for i := range texts {
		texts[i] = found[i].text(!e.isSecret())
	}
	for n := len(texts); ; n-- {
		text := strings.Join(texts[:n], ", ")
		if n < len(found) {
			text += fmt.Sprintf(", +%d more", len(found)-n)
		}
		if n == 1 || room == 0 || columns(text) <= room {
			return text
		}
	}
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
