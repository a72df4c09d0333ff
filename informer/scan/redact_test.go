package scan

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTheValuesOfASecretAreRedacted(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true}
	for src, want := range map[string]string{
		`{"data":{"a":"x","b":"y"}}`:                  `{"data":{"a":"cmVkYWN0ZWQ=","b":"cmVkYWN0ZWQ="}}`,
		`{"stringData":{"a":"x"},"type":"Opaque"}`:    `{"stringData":{"a":"redacted"},"type":"Opaque"}`,
		`{"data":{"a":{"b":["x"]},"c":[1],"d":null}}`: `{"data":{"a":"cmVkYWN0ZWQ=","c":"cmVkYWN0ZWQ=","d":"cmVkYWN0ZWQ="}}`,
		`{"data":null,"stringData":null}`:             `{"data":null,"stringData":null}`,
		`{"data":{}}`:                                 `{"data":{}}`,
		`{"data":"x"}`:                                `{"data":"cmVkYWN0ZWQ="}`,
		`{"data":[{"a":"x"}]}`:                        `{"data":"cmVkYWN0ZWQ="}`,
		`{"data":7,"stringData":true}`:                `{"data":"cmVkYWN0ZWQ=","stringData":"redacted"}`,
		`{"d\u0061ta":{"a":"x"}}`:                     `{"d\u0061ta":{"a":"cmVkYWN0ZWQ="}}`,
		`{"data":{"a":"x"},"data":{"b":"y"}}`:         `{"data":{"a":"cmVkYWN0ZWQ="},"data":{"b":"cmVkYWN0ZWQ="}}`,
		`{"data":{"a":"x","a":"y"}}`:                  `{"data":{"a":"cmVkYWN0ZWQ=","a":"cmVkYWN0ZWQ="}}`,
		`{"data":{"data":"x","name":{"data":"y"}}}`:   `{"data":{"data":"cmVkYWN0ZWQ=","name":"cmVkYWN0ZWQ="}}`,
		`{"spec":{"data":{"a":"x"}}}`:                 `{"spec":{"data":{"a":"x"}}}`,
	} {
		got, _ := keep(t, o, src)
		if want = `{"kind":"Secret",` + want[1:]; got != want {
			t.Errorf("%s: got %s, want %s", src, got, want)
		}
	}
}

func TestAnnotationsThatCopyASecretAreRemoved(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true}
	for annotations, want := range map[string]string{
		`{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":1}\n","owner":"me"}`: `{"owner":"me"}`,
		`{"kubectl.kubernetes.io\/last-applied-configuration":""}`:                           `{}`,
		`{"objectset.rio.cattle.io/applied":"H4sI","owner":"me"}`:                            `{"owner":"me"}`,
		`{"owner":"me","kapp.k14s.io/original":"x"}`:                                         `{"owner":"me"}`,
		`{"a":"x","banzaicloud.com/last-applied":"UEsD","b":"y"}`:                            `{"a":"x","b":"y"}`,
		`{"some/copy":"{}","b":"y"}`:                                                         `{"b":"y"}`,
		`{"some/copy":" \n\u007b\"data\":1}","list":"[1]"}`:                                  `{}`,
		`{"some/copy":"\ufeff\u00a0{","b":"y {"}`:                                            `{"b":"y {"}`,
		`{"object":{"data":"x"},"array":["x"],"number":1,"null":null}`:                       `{"null":null}`,
		`null`: `null`,
	} {
		got, _ := keep(t, o, `{"kind":"Secret","metadata":{"annotations":`+annotations+`}}`)
		if want = `{"kind":"Secret","metadata":{"annotations":` + want + `}}`; got != want {
			t.Errorf("%s: got %s, want %s", annotations, got, want)
		}
	}
	// In each of several, and nowhere else.
	got, _ := keep(t, o, `{"metadata":{"annotations":{"a":"{"},"annotations":{"a":"["},"labels":{"a":"{"}},"metadata":{"annotations":{"a":"{"}},"annotations":{"a":"{"}}`)
	want := `{"kind":"Secret","metadata":{"annotations":{},"annotations":{},"labels":{"a":"{"}},"metadata":{"annotations":{}},"annotations":{"a":"{"}}`
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNothingIsRedactedUnlessTheRulesSaySo(t *testing.T) {
	src := `{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"copy":"{}"}},"data":{"a":"x"}}`
	if got, _ := keep(t, Options{APIVersion: "v1", Kind: "Secret"}, src); got != src {
		t.Errorf("got %s, want %s", got, src)
	}
}

// leaks reads every value of a kept Secret, those of duplicate keys too, and returns the first that should not be
// there.
func leaks(out []byte) error {
	v, err := parse(out)
	if err != nil {
		return err
	}
	for _, m := range v.([]member) {
		with := map[string]string{"data": "cmVkYWN0ZWQ=", "stringData": "redacted"}[m.key]
		if with == "" || m.value == with || m.value == nil {
			continue
		}
		values, isObject := m.value.([]member)
		if !isObject || slices.ContainsFunc(values, func(m member) bool { return m.value != with }) {
			return fmt.Errorf("a value of %s is kept", m.key)
		}
	}
	for _, m := range v.([]member) {
		metadata, _ := m.value.([]member)
		for _, n := range metadata {
			annotations, _ := n.value.([]member)
			if m.key == "metadata" && n.key == "annotations" && slices.ContainsFunc(annotations, isCopy) {
				return errors.New("an annotation with a copy is kept")
			}
		}
	}
	return nil
}

// leaksCopies holds the annotations of a kept Secret against the values that src had, plain and in base64.
func leaksCopies(src, out []byte) error {
	before, err := parse(src)
	if err != nil {
		return err
	}
	after, err := decode(out)
	if err != nil {
		return err
	}
	metadata, _ := after.(map[string]any)["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for _, m := range before.([]member) {
		values, _ := m.value.([]member)
		for _, v := range values {
			value, _ := v.value.(string)
			if b, err := base64.StdEncoding.DecodeString(value); err == nil && m.key == "data" {
				value = string(b)
			}
			counting := strings.Map(func(r rune) rune {
				if r <= ' ' || r == utf8.RuneError || strings.ContainsRune("\"'\\\x7f", r) {
					return -1
				}
				return r
			}, value)
			if m.key != "data" && m.key != "stringData" || len(counting) < 6 || value == metadata["name"] || value == metadata["namespace"] || value == "redacted" {
				continue
			}
			for _, a := range annotations {
				text, _ := a.(string)
				for _, copied := range []string{
					value, base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
				} {
					if strings.Contains(text, copied) {
						return fmt.Errorf("a copy of %q is kept in %q", value, text)
					}
				}
			}
		}
	}
	return nil
}

func checkRedacted(t *testing.T, src []byte, o Options) (kept bool) {
	t.Helper()
	var m Meta
	out, err := rules(t, o).Object(nil, src, &m)
	if err != nil {
		if out != nil {
			t.Fatalf("%q: bytes beside the error %v", src, err)
		}
		return false
	}
	if err := errors.Join(leaks(out), leaksCopies(src, out)); err != nil {
		t.Fatalf("%q: %v in %q", src, err, out)
	}
	return true
}

const marker = "hunter2-hunter2"

func checkMarker(t *testing.T, seed uint64) {
	t.Helper()
	w := newWriter(seed)
	w.secret = marker
	src := w.document("Secret")
	for _, o := range []Options{secretRules, secretAndPaths} {
		if !checkRedacted(t, src, o) {
			t.Fatalf("%q: a Secret was refused", src)
		}
		var m Meta
		out, _ := rules(t, o).Object(nil, src, &m)
		// The marker may stand there in escapes: look at what is read, too.
		v, err := parse(out)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(out, []byte(marker)) || strings.Contains(fmt.Sprint(v), marker) {
			t.Fatalf("%q: a secret is kept in %q", src, out)
		}
	}
}

func TestNoMarkerInARandomSecretIsKept(t *testing.T) {
	for seed := range uint64(1000) {
		checkMarker(t, seed)
	}
}

func FuzzRedact(f *testing.F) {
	f.Add(uint64(1), sample(f, "secret.json"))
	f.Add(uint64(2), []byte(`{"kind":"Secret","data":{"d\u0061ta":"x"},"d\u0061ta":["x"],"stringData":"x"}`))
	f.Add(uint64(3), []byte(`{"metadata":{"annotations":{"a":"\n {\"data\":1}","b":{"c":"d"}},"annotations":{"kapp.k14s.io\/original":"x"}}}`))
	for seed := range uint64(20) {
		w := newWriter(seed)
		w.secret = marker
		f.Add(seed+100, bytes.Clone(w.document("Secret")))
	}
	f.Add(uint64(4), []byte(secretWith("hunter2", "the password is hunter2", quoteJSON, false, false)))
	f.Add(uint64(5), []byte(secretWith(privateKey, lines(base64.StdEncoding.EncodeToString([]byte(privateKey)), 64, "\n"), quoteJSON, true, false)))
	f.Add(uint64(6), []byte(secretWith("p@ss \"w0rd\\", "https://u:p%40ss+%22w0rd%5C@h/", quoteJSON, true, true)))
	f.Fuzz(func(t *testing.T, seed uint64, src []byte) {
		checkMarker(t, seed)
		checkCopies(t, seed)
		checkRedacted(t, src, secretRules)
		checkRedacted(t, src, secretAndPaths)
	})
}
