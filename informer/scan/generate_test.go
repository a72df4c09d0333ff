package scan

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// writer writes random JSON documents that use all that the grammar allows: white space, escapes where none are
// needed, keys twice, bytes that are no UTF-8, lone surrogates, numbers of any length.
type writer struct {
	*rand.Rand
	b      []byte
	secret string // a marker for every value that must not be kept
}

func newWriter(seed uint64) *writer {
	return &writer{Rand: rand.New(rand.NewPCG(seed, 0x6b627269))}
}

func (w *writer) one(n int) bool { return w.IntN(n) == 0 }

func (w *writer) put(s string) { w.b = append(w.b, s...) }

func (w *writer) space() {
	for w.one(6) {
		w.put([]string{" ", "\n", "\t", "\r"}[w.IntN(4)])
	}
}

// quoted writes s as a string, with some of its characters escaped in one of the ways there are.
func (w *writer) quoted(s string) {
	escapes := w.one(3)
	w.put(`"`)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.put(`\` + string(c))
		case c == '\n' && w.one(2):
			w.put(`\n`)
		case c < ' ', escapes && c < 0x80 && w.one(3):
			w.put(fmt.Sprintf([]string{`\u%04x`, `\u%04X`}[w.IntN(2)], c))
		default:
			w.b = append(w.b, c)
		}
	}
	w.put(`"`)
}

func (w *writer) text() string {
	return []string{
		"", "a", "web-7c9d8f6b54-x2lqp", "Grüße, 世界 🚀", "true", "line\nline", `say "hi" \o/`, "\x00\x1f\x7f",
		"a\xffb\xc3", "\ufffd", "\ufeff", "{not a copy", "exactly8", "exactly16 bytes.",
	}[w.IntN(14)]
}

// string writes a random string, now and then one that encoding/json reads as U+FFFD.
func (w *writer) string() {
	if w.one(12) {
		w.put([]string{`"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude80"`, `"\ud83dx\u0041"`, `"\ud800\ud800\udc00"`, `"\/\b\f"`}[w.IntN(6)])
		return
	}
	w.quoted(w.text())
}

func (w *writer) number() {
	w.put([]string{"0", "-0", "1", "-12.50", "1e5", "1E+400", "0.1e-3", strings.Repeat("9", 40), "18446744073709551616"}[w.IntN(9)])
}

var randomKeys = []string{
	"a", "b", "c", "items", "name", "data", "spec", "metadata", "é", `a\b`, "\ufffd", "", "status", "dat\xff",
}

func (w *writer) value(depth int) {
	n := 8
	if depth <= 0 {
		n = 6
	}
	switch w.IntN(n) {
	case 0:
		w.put("null")
	case 1:
		w.put([]string{"true", "false"}[w.IntN(2)])
	case 2:
		w.number()
	case 3, 4:
		w.string()
	case 5:
		w.put([]string{"{}", "[]"}[w.IntN(2)])
	case 6:
		w.array(func() { w.value(depth - 1) })
	case 7:
		w.object(w.randomKeys(4), func(string) { w.value(depth - 1) })
	}
}

func (w *writer) randomKeys(n int) (keys []string) {
	for range w.IntN(n) {
		keys = append(keys, randomKeys[w.IntN(len(randomKeys))])
	}
	return keys
}

func (w *writer) array(element func()) {
	w.put("[")
	w.space()
	for i := range w.IntN(4) {
		if i > 0 {
			w.put(",")
			w.space()
		}
		element()
		w.space()
	}
	w.put("]")
}

func (w *writer) object(keys []string, value func(key string)) {
	w.put("{")
	w.space()
	for i, key := range keys {
		if i > 0 {
			w.put(",")
			w.space()
		}
		w.quoted(key)
		w.space()
		w.put(":")
		w.space()
		value(key)
		w.space()
	}
	w.put("}")
}

// some returns a random choice of keys in a random order, some of them twice.
func (w *writer) some(keys ...string) (chosen []string) {
	for _, key := range keys {
		for n := 3; !w.one(n); n = 1 + w.IntN(2) {
			chosen = append(chosen, key)
		}
	}
	w.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen
}

// stringOrNull is what a field of the metadata may be.
func (w *writer) stringOrNull() {
	if w.one(8) {
		w.put("null")
		return
	}
	w.string()
}

// document writes an object as a server might, in an order that it would not.
func (w *writer) document(kind string) []byte {
	w.b = w.b[:0]
	w.space()
	keys := w.some("apiVersion", "kind", "metadata", "data", "stringData", "spec")
	w.object(append(keys, w.randomKeys(3)...), func(key string) {
		switch key {
		case "kind":
			w.quoted(kind)
		case "apiVersion":
			w.stringOrNull()
		case "metadata":
			w.metadata()
		case "data", "stringData":
			w.hidden(3)
		default:
			w.value(4)
		}
	})
	w.space()
	return w.b
}

func (w *writer) metadata() {
	if w.one(10) {
		w.put("null")
		return
	}
	w.object(w.some("name", "namespace", "uid", "resourceVersion", "annotations", "managedFields", "a"), func(key string) {
		switch key {
		case "annotations":
			w.annotations()
		case "managedFields", "a":
			w.value(3)
		default:
			w.stringOrNull()
		}
	})
}

func (w *writer) annotations() {
	if w.one(10) {
		w.put("null")
		return
	}
	keys := w.some(append([]string{"k8s.io/initial-events-end", "owner", "copy"}, copies...)...)
	w.object(keys, func(key string) {
		switch {
		case key == "k8s.io/initial-events-end":
			w.quoted([]string{"true", "false"}[w.IntN(2)])
		case key == "owner":
			w.string()
		case key == "copy":
			w.copyOfObject()
		default:
			w.quoted(w.secret)
		}
	})
}

// copyOfObject writes what a tool keeps of the object, behind what some put in front of it.
func (w *writer) copyOfObject() {
	before := []string{"", " ", "\n\t", "\ufeff", "\u2028\u00a0", "\r\n "}[w.IntN(6)]
	if w.one(5) {
		w.object([]string{"data"}, func(string) { w.quoted(w.secret) })
		return
	}
	w.quoted(before + []string{"{", "["}[w.IntN(2)] + w.secret)
}

// hidden writes a value of any type that holds nothing but secrets.
func (w *writer) hidden(depth int) {
	switch n := w.IntN(10); {
	case depth == 0 || n < 2:
		w.quoted(w.secret)
	case n == 2:
		w.put("null")
	case n == 3:
		w.array(func() { w.hidden(depth - 1) })
	default:
		w.object(w.randomKeys(5), func(string) { w.hidden(depth - 1) })
	}
}
