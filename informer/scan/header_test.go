package scan

import "testing"

func TestTheHeaderIsReadWithoutTheRest(t *testing.T) {
	for doc, want := range map[string][2]string{
		`{"kind":"Pod","apiVersion":"v1","metadata":{}}`:           {"v1", "Pod"},
		`{"metadata":{"kind":"X"},"apiVersion":"v1","kind":"Pod"}`: {"v1", "Pod"},
		`{"k\u0069nd":"P\u006fd"}`:                                 {"", "Pod"},
		`{"kind":null,"apiVersion":1}`:                             {"", ""},
		` {}`:                                                      {"", ""},
		`{"kind":"Pod","apiVersion":"v1",` + "\x00":                {"v1", "Pod"},
	} {
		apiVersion, kind, err := Header([]byte(doc))
		if err != nil || string(apiVersion) != want[0] || string(kind) != want[1] {
			t.Errorf("%q: got %q, %q, %v", doc, apiVersion, kind, err)
		}
	}
	for _, doc := range []string{``, `[]`, `{`, `{"kind"}`, `{"kind":}`, `{"kind":"Pod"`, `{"kind":"Pod",}`, `{"x":tru,"kind":"Pod"}`} {
		if apiVersion, kind, err := Header([]byte(doc)); err == nil || apiVersion != nil || kind != nil {
			t.Errorf("%q: got %q, %q, %v, want an error", doc, apiVersion, kind, err)
		}
	}
}
