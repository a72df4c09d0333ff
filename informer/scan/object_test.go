package scan

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func keep(t *testing.T, o Options, src string) (string, Meta) {
	t.Helper()
	var m Meta
	out, err := rules(t, o).Object(nil, []byte(src), &m)
	if err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return string(out), m
}

func TestADroppedMemberTakesItsCommaAlong(t *testing.T) {
	o := Options{Drop: [][]string{{"a"}, {"b"}, {"o", "a"}, {"o", "b"}}}
	for src, want := range map[string]string{
		`{"a":1,"x":2,"y":3}`:              `{"x":2,"y":3}`,
		`{"x":2,"a":1,"y":3}`:              `{"x":2,"y":3}`,
		`{"x":2,"y":3,"a":1}`:              `{"x":2,"y":3}`,
		`{"a":1,"b":2}`:                    `{}`,
		`{"a":1}`:                          `{}`,
		`{"a":1,"x":2,"b":3}`:              `{"x":2}`,
		`{"a":1,"b":2,"x":3,"a":4,"b":5}`:  `{"x":3}`,
		`{"x":1,"a":2,"b":3,"y":4}`:        `{"x":1,"y":4}`,
		`{"x":1,"o":{"a":2,"b":3}}`:        `{"x":1,"o":{}}`,
		`{"o":{"a":2,"x":3},"a":{"o":1}}`:  `{"o":{"x":3}}`,
		" {\n \"x\" : 1 ,\n \"a\" : 2 }\n": "{\n \"x\" : 1 }",
	} {
		if got, _ := keep(t, o, src); got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
	}
}

func TestAPathGoesOnIntoTheElementsOfAnArray(t *testing.T) {
	o := Options{Drop: [][]string{{"spec", "containers", "env"}, {"list"}}}
	src := `{"spec":{"containers":[{"env":[1],"name":"a"},{"name":"b"},[{"env":2}],"env",null]},"list":[1,2]}`
	want := `{"spec":{"containers":[{"name":"a"},{"name":"b"},[{}],"env",null]}}`
	if got, _ := keep(t, o, src); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestKeysAreComparedAsTheyAreDecoded(t *testing.T) {
	o := Options{Drop: [][]string{{`b\n`}, {"\ufffd"}, {"data"}, {"🚀"}}}
	src := `{"b\n":1,"b\\n":2,"x\ud800":3,"\ud800":4,"` + "\xff" + `":5,"d\u0061ta":6,"\ud83d\ude80":7,"🚀":8,"DATA":9}`
	want := `{"b\n":1,"x\ud800":3,"DATA":9}`
	if got, _ := keep(t, o, src); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatIsKeptIsCopiedUnchanged(t *testing.T) {
	src := `{"apiVersion":"v1","kind":"X","n":1.50e+400,"big":123456789012345678901234567890,"s":"\u0041\/ü🚀"}`
	if got, _ := keep(t, Options{APIVersion: "v1", Kind: "X", Drop: defaultDrop}, src); got != src {
		t.Errorf("got %s, want %s", got, src)
	}
}

func TestBytesThatAreNoUTF8AreReplacedAndNothingElse(t *testing.T) {
	for src, want := range map[string]string{
		"{\"apiVersion\":\"v1\",\"kind\":\"X\",\"s\":\"a\xffb\xc3\",\"t\":\"ü\"}":  `{"apiVersion":"v1","kind":"X","s":"a` + "\uFFFDb\uFFFD" + `","t":"ü"}`,
		"{\"apiVersion\":\"v1\",\"kind\":\"X\",\"k\xe2\x28\":1,\"drop\":\"\xff\"}": `{"apiVersion":"v1","kind":"X","k` + "\uFFFD(" + `":1}`,
	} {
		got, _ := keep(t, Options{Drop: [][]string{{"drop"}}}, src)
		if got != want || !utf8.ValidString(got) || !json.Valid([]byte(got)) {
			t.Errorf("%q: got %q, want %q", src, got, want)
		}
		r := rules(t, Options{})
		if out, err := r.Object([]byte("before\xff"), []byte(src), &Meta{}); err != nil || !strings.HasPrefix(string(out), "before\xff{") {
			t.Errorf("what was there before is %q, %v", out, err)
		}
	}
}

func TestAPIVersionAndKindArePutInFrontWhereTheyAreAbsent(t *testing.T) {
	o := Options{APIVersion: "apps/v1", Kind: "Deployment", Drop: [][]string{{"status"}}}
	for src, want := range map[string]string{
		`{"metadata":{}}`:                      `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{}}`,
		`{"kind":"Deployment","spec":1}`:       `{"apiVersion":"apps/v1","kind":"Deployment","spec":1}`,
		`{"spec":1,"apiVersion":"apps/v1"}`:    `{"kind":"Deployment","spec":1,"apiVersion":"apps/v1"}`,
		`{}`:                                   `{"apiVersion":"apps/v1","kind":"Deployment"}`,
		`{ "status":1 }`:                       `{"apiVersion":"apps/v1","kind":"Deployment" }`,
		`{"kind":"Other","apiVersion":"o/v1"}`: `{"kind":"Other","apiVersion":"o/v1"}`,
	} {
		got, m := keep(t, o, src)
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
		if strings.Contains(src, "Other") != (m.Kind == "Other" && m.APIVersion == "o/v1") {
			t.Errorf("%s: got meta %+v", src, m)
		}
	}
}

func TestTheOutputIsAppended(t *testing.T) {
	var m Meta
	out, err := rules(t, Options{}).Object([]byte("before "), []byte(`{"a":1}`), &m)
	if err != nil || string(out) != `before {"a":1}` {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestMetadataIsReadAsEncodingJSONReadsIt(t *testing.T) {
	for src, want := range map[string]Meta{
		`{}`:                {},
		`{"metadata":null}`: {},
		`{"metadata":{"name":"a","namespace":"b","uid":"c","resourceVersion":"12"}}`:               {Key: "b/a", Name: "a", Namespace: "b", UID: "c", ResourceVersion: "12"},
		`{"m\u0065tadata":{"n\u0061me":"\u0061\n\ud83d\ude80","uid":"é"}}`:                         {Key: "a\n🚀", Name: "a\n🚀", UID: "é"},
		`{"metadata":{"name":"a","name":"b"}}`:                                                     {Key: "b", Name: "b"},
		`{"metadata":{"name":"a","name":null}}`:                                                    {},
		`{"metadata":{"name":"a","uid":"b"},"metadata":{"uid":"c"}}`:                               {UID: "c"},
		`{"metadata":{"name":"a"},"metadata":null}`:                                                {},
		`{"spec":{"metadata":{"name":"a"}},"name":"b"}`:                                            {},
		`{"metadata":{"ownerReferences":[{"name":"a"}],"labels":{"name":"b"}}}`:                    {},
		`{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}`:                        {InitialEventsEnd: true},
		`{"metadata":{"annotations":{"k8s.io/initial-events-end":true}}}`:                          {},
		`{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"annotations":{}}}`:       {},
		`{"metadata":{"annotations":[{"k8s.io/initial-events-end":"true"}]}}`:                      {},
		`{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}},"metadata":{"uid":"c"}}`: {UID: "c"},
		`{"kind":"Status","apiVersion":"v1","metadata":{},"code":410}`:                             {Kind: "Status", APIVersion: "v1"},
	} {
		got, err := ReadMeta([]byte(src))
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", src, got, err, want)
		}
		// What is dropped is read all the same.
		o := Options{Drop: [][]string{{"metadata", "annotations"}, {"spec"}}}
		if _, got := keep(t, o, src); got != want {
			t.Errorf("%s: got %+v, want %+v", src, got, want)
		}
	}
}

func TestFieldsOfTheWrongTypeAreNamed(t *testing.T) {
	secret := Options{Kind: "Secret", RedactSecret: true}
	for _, c := range []struct {
		src, want string
		o         Options
	}{
		{`{"metadata":{"name":1}}`, "metadata.name at offset 20: expected a string", Options{}},
		{`{"metadata":{"namespace":{}}}`, "metadata.namespace at offset 25: expected a string", Options{}},
		{`{"metadata":{"uid":[]}}`, "metadata.uid at offset 19: expected a string", Options{}},
		{`{"metadata":{"resourceVersion":7}}`, "metadata.resourceVersion at offset 31: expected a string", Options{}},
		{`{"metadata":[]}`, "metadata at offset 12: expected an object", Options{}},
		{`{"kind":false}`, "kind at offset 8: expected a string", Options{}},
		{`{"apiVersion":1}`, "apiVersion at offset 14: expected a string", Options{}},
		{`{"metadata":{"annotations":"{}"}}`, "metadata.annotations at offset 27: expected an object", secret},
		{`{"metadata":{"annotations":[]}}`, "metadata.annotations at offset 27: expected an object", secret},
		{`{"kind":"SecretList","items":[]}`, "kind at offset 9: expected the kind that the rules are for", secret},
		{`{"kind":null,"items":[]}`, "kind at offset 0: expected the kind that the rules are for", secret},
	} {
		m := Meta{Name: "stale"}
		out, err := rules(t, c.o).Object([]byte("x"), []byte(c.src), &m)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.src, err, c.want)
		}
		if string(out) != "x" || m != (Meta{}) {
			t.Errorf("%s: got %q and %+v beside the error", c.src, out, m)
		}
	}
}

func TestWhatEncodingJSONRefusesIsRefused(t *testing.T) {
	r := rules(t, Options{Drop: [][]string{{"a", "b"}, {"a", "c", "d"}}})
	deep := func(n int) string {
		return `{"x":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	deepPath := func(n int) string {
		return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	for _, src := range []string{
		``, ` `, `null`, `1`, `"a"`, `[]`, `{`, `}`, `{}}`, `{} {}`, `{},`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`,
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":+1}`, `{"a":1e}`, `{"a":1e+}`, `{"a":0x1}`, `{"a":NaN}`, `{"a":- 1}`,
		`{"a":tru}`, `{"a":nul}`, `{"a":True}`, `{"a":nullx}`, `{"a":falsey}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u12`, `{"a":"\`, `{"a":"`,
		"{\"a\":\"\n\"}", "{\"a\":\"0123456789\x1f\"}", "{\"a\":\"\x00\"}", `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":{]}`, `{"a":[1}`, `{"a":{"b":1]}`,
		`{"a":{"b":}}`, `{"a":{"c":[{"d":1},]}}`, "{\v}", "{\u00a0}", "\ufeff{}", `{"a":1}x`, `{"x":{"y":{"z":[{"q":tru}]}}}`, `{'a':1}`, `{"a":1//` + "\n}",
		deep(10000), deep(10001), deepPath(10000), deepPath(10001), deep(64), deep(65), deep(129), deep(200)[:300],
	} {
		var m Meta
		out, err := r.Object(nil, []byte(src), &m)
		want := json.Valid([]byte(src)) && strings.HasPrefix(strings.TrimSpace(src), "{")
		if (err == nil) != want {
			t.Errorf("%.40q: got error %v, want valid %v", src, err, want)
		}
		if err != nil && out != nil {
			t.Errorf("%.40q: got %q beside an error", src, out)
		}
		if _, err := ReadMeta([]byte(src)); (err == nil) != want {
			t.Errorf("%.40q: ReadMeta: got error %v, want valid %v", src, err, want)
		}
	}
}

func TestEveryByteAtEveryPlaceIsJudgedAsByEncodingJSON(t *testing.T) {
	r := rules(t, Options{Drop: [][]string{{"a", "b"}}})
	base := []byte(`{"a":[{"b":-1.5e+2,"c":[true,null]},"x\u00e9 long enough\n"],"z":{"y":{}}}`)
	for i := range base {
		for c := range 256 {
			src := bytes.Clone(base)
			src[i] = byte(c)
			var m Meta
			_, err := r.Object(nil, src, &m)
			if want := json.Valid(src) && src[0] == '{'; (err == nil) != want {
				t.Fatalf("%q: got error %v, want valid %v", src, err, want)
			}
		}
		if _, err := ReadMeta(base[:i]); err == nil {
			t.Fatalf("%q: no error", base[:i])
		}
	}
}

func TestErrorsHoldNothingOfTheDocument(t *testing.T) {
	r := rules(t, Options{Kind: "Secret", RedactSecret: true})
	for _, src := range []string{
		`{"data":{"k":"hunter2`, `{"hunter2":hunter2}`, `{"kind":"hunter2"}`, `{"metadata":{"name":{"hunter2":1}}}`, `{"a":"hunter2"} hunter2`,
	} {
		var m Meta
		_, err := r.Object(nil, []byte(src), &m)
		var e *Error
		if !errors.As(err, &e) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", src, err)
		}
	}
}

func TestIdentityCanNotBeDropped(t *testing.T) {
	for _, path := range [][]string{
		nil, {"apiVersion"}, {"kind"}, {"metadata"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}, {"metadata", "resourceVersion"}, {"a", "\xff"},
	} {
		if r, err := New(Options{Drop: [][]string{{"a"}, path}}); err == nil || r != nil {
			t.Errorf("%q: got %v and %v, want nothing and an error", path, r, err)
		}
	}
	if _, err := New(Options{Kind: "ConfigMap", RedactSecret: true}); err == nil {
		t.Error("rules that redact a ConfigMap were accepted")
	}
}

func TestASecondPassChangesNothing(t *testing.T) {
	for _, bm := range benchmarks {
		r := rules(t, bm.options)
		var m, again Meta
		once, err := r.Object(nil, sample(t, bm.file), &m)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := r.Object(nil, once, &again)
		if err != nil || !bytes.Equal(once, twice) || m != again {
			t.Errorf("%s: got %s, %v after %s", bm.name, twice, err, once)
		}
	}
}

func TestAnObjectCostsTwoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	for _, bm := range benchmarks {
		src := sample(t, bm.file)
		frame := []byte(`{"type":"MODIFIED","object":` + string(src) + "}\n")
		r := rules(t, bm.options)
		var m Meta
		if n := testing.AllocsPerRun(200, func() {
			if _, err := r.Object(nil, src, &m); err != nil {
				t.Fatal(err)
			}
		}); n > 2 {
			t.Errorf("%s: %v allocations for an object, want the strings and the output", bm.name, n)
		}
		if n := testing.AllocsPerRun(200, func() {
			if _, _, err := r.WatchEvent(nil, frame, &m); err != nil {
				t.Fatal(err)
			}
		}); n > 2 {
			t.Errorf("%s: %v allocations for a frame, want the strings and the output", bm.name, n)
		}
		room := make([]byte, 0, len(src)+100)
		if n := testing.AllocsPerRun(200, func() {
			if _, err := r.Object(room, src, &m); err != nil {
				t.Fatal(err)
			}
		}); n > 1 {
			t.Errorf("%s: %v allocations with room for the output, want the strings", bm.name, n)
		}
	}
}

// manyPaths has paths of each shape: into arrays, of odd keys, one inside of another, below what is read.
var manyPaths = Options{APIVersion: "g/v1", Kind: "K", Drop: [][]string{
	{"a"}, {"b", "a"}, {"b", "c", "a"}, {"b", "c"}, {"items", "name"}, {"é"}, {`c`, `a\b`}, {"\ufffd"}, {"spec", ""}, {"spec", "a", "b"},
	{"metadata", "managedFields"}, {"metadata", "annotations", "owner"}, {"metadata", "name", "a"}, {"kind", "a"}, {"data", "data"},
}}

var secretRules = Options{APIVersion: "v1", Kind: "Secret", Drop: defaultDrop, RedactSecret: true}

var secretAndPaths = Options{APIVersion: "v1", Kind: "Secret", RedactSecret: true, Drop: [][]string{
	{"data", "a"}, {"data", "b", "c"}, {"stringData"}, {"metadata", "annotations", "owner"}, {"metadata", "annotations", "copy", "a"}, {"spec", "a"},
}}

// checkObject holds the rules of o to the model.
func checkObject(t *testing.T, src []byte, o Options) {
	t.Helper()
	before := bytes.Clone(src)
	var m Meta
	out, err := rules(t, o).Object(nil, src, &m)
	if !bytes.Equal(src, before) {
		t.Fatalf("%q: the source was changed", before)
	}
	valid := json.Valid(src) && bytes.HasPrefix(bytes.TrimLeft(src, " \t\r\n"), []byte("{"))
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || out != nil || m != (Meta{}) {
			t.Fatalf("%q: got %q, %+v beside %v", src, out, m, err)
		}
		if !valid {
			return
		}
		// A valid document is refused for the type of a field, and for a kind that is not the redacted one.
		at := src[e.Offset:]
		switch {
		case e.Path == "":
			t.Fatalf("%q: got %v for a valid document", src, err)
		case e.Want == wants[wantKind]:
			if !o.RedactSecret {
				t.Fatalf("%q: got %v where nothing is redacted", src, err)
			}
		case e.Want == wants[wantString] && (at[0] == '"' || at[0] == 'n'), e.Want == wants[wantObject] && (at[0] == '{' || at[0] == 'n'):
			t.Fatalf("%q: got %v where the type is right", src, err)
		}
		return
	}
	if !valid {
		t.Fatalf("%q: an invalid document was accepted", src)
	}
	in, err := decode(src)
	if err != nil {
		t.Fatal(err)
	}
	if want := modelMeta(in.(map[string]any), o); m != want {
		t.Fatalf("%q: got meta %+v, want %+v", src, m, want)
	}
	got, err := decode(out)
	if err != nil {
		t.Fatalf("%q: the output %q is not valid: %v", src, out, err)
	}
	parsed, err := parse(src)
	if err != nil {
		t.Fatal(err)
	}
	if want := model(parsed, o); !reflect.DeepEqual(got, any(want)) {
		t.Fatalf("%q: got %q, want %v", src, out, want)
	}
	var again Meta
	twice, err := rules(t, o).Object(nil, out, &again)
	if o.RedactSecret {
		again.InitialEventsEnd = m.InitialEventsEnd // the annotation may be gone, and no Secret is a bookmark
	}
	if err != nil || !bytes.Equal(out, twice) || m != again {
		t.Fatalf("%q: a second pass over %q gave %q, %v", src, out, twice, err)
	}
}

func TestRandomDocumentsComeOutAsTheModelSays(t *testing.T) {
	for seed := range uint64(800) {
		w := newWriter(seed)
		w.secret = "s"
		checkObject(t, w.document("K"), manyPaths)
		checkObject(t, w.document("Secret"), secretRules)
		checkObject(t, w.document("Secret"), secretAndPaths)
	}
}

func FuzzObject(f *testing.F) {
	for _, bm := range benchmarks {
		f.Add(sample(f, bm.file))
	}
	for seed := range uint64(20) {
		f.Add(bytes.Clone(newWriter(seed).document("K")))
		f.Add(bytes.Clone(newWriter(seed).document("Secret")))
	}
	f.Add([]byte(`{"kind":"Pod","metadata":{"name":"a","annotations":{"k8s.io/initial-events-end":"true"}},"b":[{"c":{"a":1}},{"a":2,"x":3}]}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		checkObject(t, src, manyPaths)
		checkObject(t, src, secretRules)
		checkObject(t, src, secretAndPaths)
		checkObject(t, src, Options{APIVersion: "v1", Kind: "Pod", Drop: defaultDrop})
	})
}
