package scan

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestTheEndOfADocumentIsFound(t *testing.T) {
	for buf, want := range map[string]int{
		``:                           -1,
		" \n\t":                      -1,
		`{`:                          -1,
		`{}`:                         2,
		"\n {} {}":                   4,
		`{}{}`:                       2,
		`{"a":{"b":[1,{}]}}x`:        18,
		`{"a":"}"}`:                  9,
		`{"a":"\"}"}`:                11,
		`{"a":"\\"}`:                 10,
		`{"a":"\\\"}"}`:              13,
		`{"a":"` + "\x01\x00" + `"}`: 10,
		`{"a":"\`:                    -1,
		`{"a":"x`:                    -1,
		`[[],[]]`:                    7,
		`"a\"b" `:                    6,
		`12 `:                        2,
		`12`:                         -1,
		`null{}`:                     4,
		`}{}`:                        1,
		`,`:                          1,
		`{]`:                         2,
	} {
		if got := End([]byte(buf)); got != want {
			t.Errorf("%q: got %d, want %d", buf, got, want)
		}
	}
}

// feed gives a stream to one Framer in pieces, as a reader with a buffer does, and returns the documents.
func feed(stream []byte, piece func() int) (documents []string) {
	var f Framer
	var buf []byte
	for {
		if n := f.End(buf); n >= 0 {
			documents = append(documents, string(buf[:n]))
			buf = buf[n:]
			continue
		}
		if len(stream) == 0 {
			return documents
		}
		n := min(max(piece(), 1), len(stream))
		buf = append(buf, stream[:n]...)
		stream = stream[n:]
	}
}

func TestDocumentsAreFoundWhereverTheStreamIsCut(t *testing.T) {
	want := []string{`{"a":"\\\"}é"}`, "\n" + `[{"b":"{"}]`, ` "x\\"`, ` 12`, "\n{}", `{}`}
	for size := 1; size < 40; size++ {
		got := feed([]byte(strings.Join(want, "")), func() int { return size })
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("in pieces of %d bytes: got %q", size, got)
		}
	}
}

func TestAFramerLooksAtEachByteOnce(t *testing.T) {
	var f Framer
	doc := []byte(`{"a":["x","y\\"],"b":{"c":"` + strings.Repeat("x", 100) + `"}}`)
	for n := 1; n <= len(doc); n++ {
		buf := bytes.Repeat([]byte("}"), n) // what was looked at may be anything by now
		buf[n-1] = doc[n-1]
		got, want := f.End(buf), -1
		if n == len(doc) {
			want = n
		}
		if got != want {
			t.Fatalf("got %d with %d of %d bytes, want %d", got, n, len(doc), want)
		}
	}
	f.End(doc[:20])
	f.Reset()
	if got := f.End(doc); got != len(doc) {
		t.Errorf("after Reset got %d", got)
	}
}

func checkFramer(t *testing.T, stream []byte, seed uint64) {
	t.Helper()
	// Whatever it is, no document is lost or cut in another way when it comes in pieces.
	w := newWriter(seed)
	got := feed(stream, func() int { return 1 + w.IntN(9) })
	if whole := feed(stream, func() int { return len(stream) }); strings.Join(got, "|") != strings.Join(whole, "|") {
		t.Fatalf("%q: got %q in pieces and %q at once", stream, got, whole)
	}
	if !strings.HasPrefix(string(stream), strings.Join(got, "")) {
		t.Fatalf("%q: got %q", stream, got)
	}
	// As long as the stream is one of objects and arrays, encoding/json finds the same ends.
	d := json.NewDecoder(bytes.NewReader(stream))
	from := 0
	for i := 0; ; i++ {
		var v json.RawMessage
		err := d.Decode(&v)
		if err == io.EOF || err != nil || v[0] != '{' && v[0] != '[' && v[0] != '"' {
			return
		}
		end := int(d.InputOffset())
		if i >= len(got) || got[i] != string(stream[from:end]) {
			t.Fatalf("%q: document %d: got %q, want %q", stream, i, got, stream[from:end])
		}
		from = end
	}
}

func TestRandomStreamsAreCutAsEncodingJSONCutsThem(t *testing.T) {
	for seed := range uint64(400) {
		var stream []byte
		w := newWriter(seed)
		for range 4 {
			stream = append(stream, w.document("K")...)
		}
		checkFramer(t, stream, seed)
	}
}

func FuzzFramer(f *testing.F) {
	f.Add(bytes.Join([][]byte{sample(f, "configmap.json"), sample(f, "secret.json")}, []byte("\n")), uint64(1))
	f.Add([]byte(`{"type":"ADDED","object":{"a":"\\\"}"}}{"type":"DELETED","object":{}}`), uint64(2))
	f.Add([]byte(` [1,"]"] "a\"" 12 null} x`), uint64(3))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) { checkFramer(t, stream, seed) })
}
