package scan

import (
	"bytes"
	"encoding/base64"
	"slices"
	"sync"
)

// secret is what a walk notes of a Secret in order to find the annotations that hold copies of its values. Since the
// values may stand behind the annotations, that is done at the end of the walk; where something is found, the
// document is walked once more, and those annotations are left out as if they had been dropped.
type secret struct {
	data, stringData []span // the values, without their quotes
	annotations      []span // the annotations' values
	// strange says that not all values are known: one is no string, which an API server does not send.
	strange bool
	judged  bool  // the document has been walked once
	remove  []int // where the values of the annotations stand that must go, in order
	search  search
	names   []byte // the Secret's own, and its namespace's
	scratch []byte
}

// secrets keeps what was allocated for one Secret for the next.
var secrets = sync.Pool{New: func() any { return new(secret) }}

// What one Secret may leave behind. An API server's limit for all of a Secret is 1 MiB.
const (
	maxPooledSpans = 1024
	maxPooledBytes = 64 << 10
)

func (s *secret) release() {
	if cap(s.data)+cap(s.stringData)+cap(s.annotations)+cap(s.search.needles) > maxPooledSpans ||
		cap(s.search.text)+cap(s.search.forms)+cap(s.scratch) > maxPooledBytes {
		return
	}
	s.data, s.stringData, s.annotations, s.remove = s.data[:0], s.stringData[:0], s.annotations[:0], s.remove[:0]
	s.strange, s.judged = false, false
	secrets.Put(s)
}

// value notes the value that stands from from to to in src, of a key in f's object or in place of the object.
func (s *secret) value(src []byte, f field, from, to int) {
	switch {
	case s.judged || src[from] == 'n':
	case src[from] != '"':
		s.strange = true
	case f == fieldData:
		s.data = append(s.data, span{from + 1, to - 1})
	default:
		s.stringData = append(s.stringData, span{from + 1, to - 1})
	}
}

// annotation reports whether the annotation whose value stands from from to to must go, which is known in the second
// walk.
func (s *secret) annotation(from, to int) bool {
	if !s.judged {
		s.annotations = append(s.annotations, span{from, to})
		return false
	}
	_, found := slices.BinarySearch(s.remove, from)
	return found
}

// judge decides which annotations must go, and reports whether any has to.
func (s *secret) judge(w *walk) bool {
	s.judged = true
	if len(s.annotations) == 0 {
		return false
	}
	if !s.strange {
		s.learn(w)
	}
	for _, a := range s.annotations {
		if s.strange || s.holdsCopy(w.src[a.from:a.to]) {
			s.remove = append(s.remove, a.from)
		}
	}
	return len(s.remove) > 0
}

// learn makes the values known to the search.
func (s *secret) learn(w *walk) {
	longest := 0
	for _, a := range s.annotations {
		longest = max(longest, a.to-a.from)
	}
	s.search.reset(longest)
	s.names = appendText(s.names[:0], w.bytes(w.name))
	name := len(s.names)
	s.names = appendText(s.names, w.bytes(w.namespace))
	for _, v := range s.data {
		s.add(s.decode(w.bytes(v)), name)
	}
	for _, v := range s.stringData {
		s.scratch = appendText(s.scratch[:0], w.bytes(v))
		s.add(s.scratch, name)
	}
	s.search.prepare()
}

// decode returns what raw, a value under data, stands for; what is no base64, which no API server sends, for itself.
// Of a value that is too long to stand in an annotation it returns a part that is too long.
func (s *secret) decode(raw []byte) []byte {
	s.scratch = slices.Grow(s.scratch[:0], len(raw))
	if head := 4 * s.search.longest; head < len(raw) {
		n, err := base64.StdEncoding.Decode(s.scratch[:head], raw[:head])
		if err == nil && s.search.count(s.scratch[:n]) > s.search.longest {
			return s.scratch[:n]
		}
	}
	n, err := base64.StdEncoding.Decode(s.scratch[:len(raw)], raw)
	if err == nil {
		return s.scratch[:n]
	}
	s.scratch = appendText(s.scratch, raw)
	text := len(s.scratch)
	s.scratch = slices.Grow(s.scratch, text)
	if n, err = base64.StdEncoding.Decode(s.scratch[text:2*text], s.scratch); err != nil {
		return s.scratch
	}
	return s.scratch[text : text+n]
}

// add makes a value known to the search, unless the event says it anyway: a ServiceAccount's token has its namespace
// beside it. The Secret's name is the first part of its names.
func (s *secret) add(value []byte, name int) {
	if !bytes.Equal(value, s.names[:name]) && !bytes.Equal(value, s.names[name:]) && string(value) != placeholder {
		s.search.add(value)
	}
}

// holdsCopy reports whether an annotation's value has to go. What is neither a string nor null does without being
// looked into: no API server sends it.
func (s *secret) holdsCopy(value []byte) bool {
	if value[0] != '"' {
		return value[0] != 'n'
	}
	s.scratch = appendText(s.scratch[:0], value[1:len(value)-1])
	return s.search.finds(s.scratch)
}
