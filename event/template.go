package event

import (
	"fmt"
	"slices"
	"strings"
)

// Template makes a NATS subject or a Kafka topic of an event: fixed text with
// placeholders such as {namespace}. It is safe for concurrent use.
type Template struct {
	parts  []part
	escape func(dst []byte, s string) []byte
}

// part is fixed text, or the value of a field, whose name text is then.
type part struct {
	text  string
	field func(*Event) string
}

// fields are the placeholders. An empty group is `core` and an empty namespace `_`,
// so that a subject has as many tokens for each object.
var fields = map[string]func(*Event) string{
	"cluster":   func(e *Event) string { return e.Resource.Cluster },
	"group":     func(e *Event) string { return e.Resource.groupOrCore() },
	"version":   func(e *Event) string { return e.Resource.Version },
	"resource":  func(e *Event) string { return e.Resource.Resource },
	"kind":      func(e *Event) string { return e.Resource.Kind },
	"namespace": func(e *Event) string { return e.Key.Namespace },
	"name":      func(e *Event) string { return e.Key.Name },
	"type":      func(e *Event) string { return e.Type.String() },
}

// Placeholders returns the names a template may have between braces, sorted.
func Placeholders() []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// NATSSubject parses a template for NATS subjects. Values become tokens: each
// byte outside [A-Za-z0-9_-] is percent-encoded, so that a name with a dot stays
// one token and none is a wildcard.
func NATSSubject(s string) (*Template, error) { return parseTemplate(s, appendToken) }

// KafkaTopic parses a template for Kafka topics. In values each byte outside
// [A-Za-z0-9.-] becomes `_` and two hex digits.
func KafkaTopic(s string) (*Template, error) { return parseTemplate(s, appendTopic) }

func parseTemplate(s string, escape func([]byte, string) []byte) (*Template, error) {
	t := &Template{escape: escape}
	for rest := s; rest != ""; {
		text, after, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return nil, fmt.Errorf("template %q: a } without its {", s)
		}
		if text != "" {
			t.parts = append(t.parts, part{text: text})
		}
		if !found {
			break
		}
		name, after, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf("template %q: a { without its }", s)
		}
		field, ok := fields[name]
		if !ok {
			return nil, fmt.Errorf("template %q: unknown placeholder {%s}: expected one of {%s}", s, name, strings.Join(Placeholders(), "}, {"))
		}
		t.parts = append(t.parts, part{name, field})
		rest = after
	}
	if len(t.parts) == 0 {
		return nil, fmt.Errorf("template is empty")
	}
	return t, nil
}

// Append appends what the template makes of the event.
func (t *Template) Append(dst []byte, e *Event) []byte {
	for i := range t.parts {
		dst = t.parts[i].append(dst, e, t.escape)
	}
	return dst
}

func (p *part) append(dst []byte, e *Event, escape func([]byte, string) []byte) []byte {
	if p.field == nil {
		return append(dst, p.text...)
	}
	if value := p.field(e); value != "" {
		return escape(dst, value)
	}
	return append(dst, blank)
}

// Pattern is what the template makes of events of which some fields are not known: those
// are a `*`. No subject and no topic has one.
func (t *Template) Pattern(e *Event, unknown []string) string {
	var made []byte
	for i := range t.parts {
		p := &t.parts[i]
		if p.field != nil && slices.Contains(unknown, p.text) {
			made = append(made, '*')
			continue
		}
		made = p.append(made, e, t.escape)
	}
	return string(made)
}

// blank stands for an empty namespace in subjects and topics; no namespace can be
// called that.
const blank = '_'

func (r *Resource) groupOrCore() string {
	if r.Group == "" {
		return "core"
	}
	return r.Group
}

const upperHex = "0123456789ABCDEF"

func appendToken(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; isAlnum(c) || c == '-' || c == '_' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

func appendTopic(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; isAlnum(c) || c == '-' || c == '.' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '_', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
