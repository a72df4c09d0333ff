package scan

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Meta is what kbridge needs to know of an object. Its strings are copies; all but the first two are parts of one
// allocation.
type Meta struct {
	APIVersion, Kind string // the rules' own strings where the document has the same or none
	Key              string // namespace/name, or the name where there is no namespace
	Namespace, Name  string // parts of it
	UID              string
	ResourceVersion  string
	// InitialEventsEnd is set on the bookmark that ends a watch list's first events.
	InitialEventsEnd bool
}

const (
	placeholder        = "redacted"
	redactedData       = `"cmVkYWN0ZWQ="` // base64 of it
	redactedStringData = `"` + placeholder + `"`
)

// Redacted reports whether a value of the Secret in src may have been redacted before.
func Redacted(src []byte) bool {
	return bytes.Contains(src, []byte(redactedData)) || bytes.Contains(src, []byte(redactedStringData))
}

// Object appends the kept part of src, one JSON object with or without white space around it, to dst, and fills m.
// src is neither changed nor retained, and must not overlap dst. With a nil dst the result is allocated once, in
// its size.
//
// With an error it returns dst as it was and an empty m; nothing of the document is in the error. Documents of a
// redacted resource that are of another kind are such an error, since it is not known where their secrets are.
func (r *Rules) Object(dst, src []byte, m *Meta) ([]byte, error) {
	out, end, err := r.object(dst, src, spaces(src, 0), 0, m)
	if err != nil {
		return dst, err
	}
	if end = spaces(src, end); end < len(src) {
		*m = Meta{}
		return dst, newError("", end, wantEnd)
	}
	return out, nil
}

// unruled reads metadata and nothing else.
var unruled = func() *Rules {
	r, err := New(Options{})
	if err != nil {
		panic("BUG: empty rules: " + err.Error())
	}
	return r
}()

// ReadMeta reads the metadata of one JSON object of any kind, a Status for instance.
func ReadMeta(src []byte) (m Meta, err error) {
	var w walk
	w.src = src
	end, f := w.document(&unruled.root, spaces(src, 0), 0)
	if f == ok {
		if end = spaces(src, end); end < len(src) {
			f = wantEnd
		}
	}
	if f != ok {
		return Meta{}, newError(w.path, end, f)
	}
	w.meta(unruled, &m)
	return m, nil
}

// object is Object for the document at offset i of src, with depth containers around it. It returns the offset
// behind the document and leaves what follows to the caller.
func (r *Rules) object(dst, src []byte, i, depth int, m *Meta) (out []byte, end int, err error) {
	w := walks.Get().(*walk)
	defer w.release()
	w.src = src
	if r.redact {
		w.secret = secrets.Get().(*secret)
	}
	*m = Meta{}
	end, f := w.document(&r.root, i, depth)
	if f != ok {
		return dst, end, newError(w.path, end, f)
	}
	if r.redact && w.lacks&lacksKind == 0 && !isText(w.bytes(w.kind), r.kind) {
		return dst, end, newError("kind", w.kind.from, wantKind)
	}
	if r.redact && w.secret.judge(w) {
		w.cuts = w.cuts[:0]
		if end, f = w.document(&r.root, i, depth); f != ok {
			panic("BUG: a document that was read once can not be read again")
		}
	}
	w.meta(r, m)

	prefix := r.prefix[w.lacks]
	if w.empty && prefix != "" {
		prefix = prefix[:len(prefix)-1]
	}
	size := end - i + len(prefix)
	for _, c := range w.cuts {
		size += len(c.with) - (c.to - c.from)
	}
	out = append(slices.Grow(dst, size), '{')
	out = append(out, prefix...)
	from := i + 1
	for _, c := range w.cuts {
		out = append(out, src[from:c.from]...)
		out = append(out, c.with...)
		from = c.to
	}
	return readable(append(out, src[from:end]...), len(dst)), end, nil
}

// readable returns the document from there on as it is, or with the replacement character
// in place of bytes that are no UTF-8: many parsers refuse a document that has any.
func readable(document []byte, from int) []byte {
	if utf8.Valid(document[from:]) {
		return document
	}
	return append(document[:from], bytes.ToValidUTF8(document[from:], []byte("\uFFFD"))...)
}

// cut is a range of the document that is left out, and what stands in its place.
type cut struct {
	from, to int
	with     string
}

// walk is the state of one pass over one document.
type walk struct {
	src    []byte
	cuts   []cut   // in the order of the document, never overlapping
	secret *secret // what is redacted, or nil

	apiVersion, kind                      span
	namespace, name, uid, resourceVersion span
	initialEventsEnd                      bool

	lacks int    // what of apiVersion and kind the document has not
	empty bool   // no member of the document is kept
	path  string // of the fault, where there is one
}

// walks keeps walks for the sake of their cuts.
var walks = sync.Pool{New: func() any { return new(walk) }}

// maxPooledCuts bounds what a Secret with very many keys leaves behind.
const maxPooledCuts = 1024

func (w *walk) release() {
	cuts := w.cuts[:0]
	if cap(cuts) > maxPooledCuts {
		cuts = nil
	}
	if w.secret != nil {
		w.secret.release()
	}
	*w = walk{cuts: cuts}
	walks.Put(w)
}

// document walks the object at i and returns the offset behind it.
func (w *walk) document(root *node, i, depth int) (int, fault) {
	if i >= len(w.src) || w.src[i] != '{' {
		return i, wantObject
	}
	w.lacks = lacksAPIVersion | lacksKind
	end, kept, f := w.members(root, i, depth, true)
	w.empty = !kept
	return end, f
}

// members walks the object at i, for whose keys n has rules, and reports whether it keeps any member. In place
// says that the object was reached through objects only, so that the fields of n are what they are called.
func (w *walk) members(n *node, i, depth int, inPlace bool) (end int, kept bool, f fault) {
	b := w.src
	from, more, f := first(b, i, depth) // from is where the member begins
	if f != ok || !more {
		return from, false, f
	}
	comma := 0 // in front of the member, if it is not the first
	with, annotations := w.secrecy(n, inPlace)
	for {
		raw, value, f := key(b, from)
		if f != ok {
			return value, false, f
		}
		mark := len(w.cuts)
		drop := false
		if c := n.child(raw); c == nil {
			end, f = skip(b, value, depth+1)
		} else {
			drop = c.drop
			end, f = w.value(c, value, depth+1, inPlace)
		}
		if f != ok {
			return end, false, f
		}
		if with != "" {
			w.cuts = append(w.cuts[:mark], cut{from: value, to: end, with: with})
			w.secret.value(b, n.field, value, end)
		}
		if annotations && !drop {
			drop = w.secret.annotation(value, end)
		}
		next, more, f := following(b, end, '}')
		if f != ok {
			return next, false, f
		}
		switch {
		case !drop:
			kept = true
		case kept:
			w.cuts = append(w.cuts[:mark], cut{from: comma, to: end})
		case more:
			w.cuts = append(w.cuts[:mark], cut{from: from, to: next})
		default:
			w.cuts = append(w.cuts[:mark], cut{from: from, to: end})
		}
		if !more {
			return next, kept, ok
		}
		comma, from = end, next
	}
}

// secrecy says what stands in place of the values of n's object, and whether they are the annotations of a Secret.
func (w *walk) secrecy(n *node, inPlace bool) (with string, annotations bool) {
	if w.secret == nil || !inPlace {
		return "", false
	}
	return n.field.redacted(), n.field == fieldAnnotations
}

func (f field) redacted() string {
	switch f {
	case fieldData:
		return redactedData
	case fieldStringData:
		return redactedStringData
	}
	return ""
}

// value walks the value at i, of a key whose node is n.
func (w *walk) value(n *node, i, depth int, inPlace bool) (end int, f fault) {
	if i >= len(w.src) {
		return i, wantValue
	}
	if inPlace && n.field != noField {
		if f := w.begin(n.field, i); f != ok {
			return i, f
		}
	}
	mark := len(w.cuts)
	switch c := w.src[i]; {
	case c == '{' && (len(n.children) > 0 || n.field != noField):
		end, _, f = w.members(n, i, depth, inPlace)
	case c == '[' && len(n.children) > 0:
		end, f = w.elements(n, i, depth)
	default:
		end, f = skip(w.src, i, depth)
	}
	if f == ok && inPlace && n.field != noField {
		w.end(n.field, i, end, mark)
	}
	return end, f
}

// elements walks the array at i, into each of whose elements the paths of n go on.
func (w *walk) elements(n *node, i, depth int) (end int, f fault) {
	i, more, f := first(w.src, i, depth)
	for f == ok && more {
		if i, f = w.value(n, i, depth+1, false); f == ok {
			i, more, f = following(w.src, i, ']')
		}
	}
	return i, f
}

// begin checks the type of the field whose value is at i, and forgets what an earlier one of that name said.
func (w *walk) begin(f field, i int) fault {
	want := wantString
	switch c := w.src[i]; f {
	case fieldMetadata:
		w.namespace, w.name, w.uid, w.resourceVersion, w.initialEventsEnd = span{}, span{}, span{}, span{}, false
		if c == '{' || c == 'n' {
			return ok
		}
		want = wantObject
	case fieldAnnotations:
		w.initialEventsEnd = false
		if c == '{' || c == 'n' || w.secret == nil {
			return ok
		}
		want = wantObject
	case fieldInitialEventsEnd, fieldData, fieldStringData:
		return ok
	default:
		if c == '"' || c == 'n' {
			return ok
		}
	}
	return w.fail(f, want)
}

func (w *walk) fail(f field, want fault) fault {
	w.path = strings.Join(fields[f], ".")
	return want
}

// end takes note of the field whose value stands from i to end. mark is the number of cuts before it.
func (w *walk) end(f field, i, end, mark int) {
	s := span{}
	if w.src[i] == '"' {
		s = span{i + 1, end - 1}
	}
	switch f {
	case fieldAPIVersion:
		w.apiVersion = s
		w.lacks &^= lacksAPIVersion
	case fieldKind:
		w.kind = s
		w.lacks &^= lacksKind
	case fieldNamespace:
		w.namespace = s
	case fieldName:
		w.name = s
	case fieldUID:
		w.uid = s
	case fieldResourceVersion:
		w.resourceVersion = s
	case fieldInitialEventsEnd:
		w.initialEventsEnd = s.to > 0 && isText(w.src[s.from:s.to], "true")
	case fieldData, fieldStringData:
		if c := w.src[i]; c != '{' && c != 'n' {
			w.cuts = append(w.cuts[:mark], cut{from: i, to: end, with: f.redacted()})
			w.secret.strange = true
		}
	}
}

// meta fills m with copies of what was found.
func (w *walk) meta(r *Rules, m *Meta) {
	m.APIVersion = w.intern(w.apiVersion, w.lacks&lacksAPIVersion != 0, r.apiVersion)
	m.Kind = w.intern(w.kind, w.lacks&lacksKind != 0, r.kind)
	m.InitialEventsEnd = w.initialEventsEnd

	var room [256]byte
	b := appendText(room[:0], w.bytes(w.namespace))
	namespace, from := len(b), 0
	if namespace > 0 {
		b = append(b, '/')
		from = len(b)
	}
	b = appendText(b, w.bytes(w.name))
	name := len(b)
	b = appendText(b, w.bytes(w.uid))
	uid := len(b)
	all := string(appendText(b, w.bytes(w.resourceVersion)))
	m.Key, m.Namespace, m.Name = all[:name], all[:namespace], all[from:name]
	m.UID, m.ResourceVersion = all[name:uid], all[uid:]
}

func (w *walk) bytes(s span) []byte { return w.src[s.from:s.to] }

// intern returns the text of s, which is usual's string where it is the same or lacking.
func (w *walk) intern(s span, lacking bool, usual string) string {
	raw := w.bytes(s)
	if lacking || isText(raw, usual) {
		return usual
	}
	return text(raw)
}
