package objects

import (
	"fmt"
	"strconv"
	"strings"
)

// segment is a piece of a template: text, or a hole, or a block.
type segment struct {
	text string
	fill func(dst []byte, o *object, salt uint64) []byte // nil for text and blocks
	// A block is there for half of the workloads, or repeats.
	block    segments
	optional bool
	times    int
	// salt makes two holes of the same kind differ.
	salt uint64
}

type segments []segment

// append fills the holes with what belongs to the object. turn is how often the block
// around the segments was there before.
func (list segments) append(dst []byte, o *object, turn uint64) []byte {
	for i := range list {
		s := &list[i]
		switch {
		case s.fill != nil:
			dst = s.fill(dst, o, s.salt+turn<<32)
		case s.optional:
			if mix(o.group+s.salt)&1 == 0 {
				dst = s.block.append(dst, o, turn)
			}
		case s.times > 0:
			for n := range s.times {
				dst = s.block.append(dst, o, uint64(n))
			}
		default:
			dst = append(dst, s.text...)
		}
	}
	return dst
}

// parser turns a template's text into segments. The text is JSON with holes in double
// braces and line feeds where a reader wants them, which are left out.
type parser struct {
	rest string
	salt uint64
}

func parse(text string) segments {
	p := parser{rest: strings.ReplaceAll(text, "\n", "")}
	list, end := p.segments()
	if end != "" {
		panic("BUG: template: a block ends that did not begin")
	}
	return list
}

// segments reads up to the end of the block or of the text, and says which it was.
func (p *parser) segments() (list segments, end string) {
	for {
		text, rest, found := strings.Cut(p.rest, "{{")
		if text != "" {
			list = append(list, segment{text: text})
		}
		if !found {
			p.rest = ""
			return list, ""
		}
		var hole string
		hole, p.rest, found = strings.Cut(rest, "}}")
		if !found {
			panic("BUG: template: a hole does not end")
		}
		// An object's nested braces are not holes: `{{` never stands in them by chance,
		// because JSON has a quote or a brace's end behind an opening brace.
		if hole == "end" {
			return list, hole
		}
		list = append(list, p.hole(hole))
	}
}

func (p *parser) hole(text string) segment {
	p.salt++
	s := segment{salt: p.salt}
	words := strings.Fields(text)
	switch words[0] {
	case "optional":
		s.optional = true
		s.block = p.body()
	case "repeat":
		s.times = number(words[1])
		s.block = p.body()
	default:
		fill, ok := holes[words[0]]
		if !ok {
			panic(fmt.Sprintf("BUG: template: unknown hole %q", text))
		}
		s.fill = fill(words[1:])
	}
	return s
}

func (p *parser) body() segments {
	block, end := p.segments()
	if end != "end" {
		panic("BUG: template: a block does not end")
	}
	return block
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("BUG: template: " + err.Error())
	}
	return n
}
