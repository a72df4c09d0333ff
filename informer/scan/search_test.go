package scan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"go.yaml.in/yaml/v3"
)

// encodings are what a value goes through on its way into an annotation. Each can be applied to what another gave.
var encodings = map[string]func(string) string{
	"as it is":                     func(s string) string { return s },
	"among words":                  func(s string) string { return "the password is " + s + ", keep it" },
	"a JSON string":                quoteJSON,
	"JSON for HTML":                func(s string) string { return jsonOf(map[string]string{"key": s}) },
	"JSON in JSON":                 func(s string) string { return quoteJSON(jsonOf(map[string]string{"key": s})) },
	"every character escaped":      func(s string) string { return escapeAll(s, `\u%04x`) },
	"in upper case":                func(s string) string { return escapeAll(s, `\u%04X`) },
	"slashes escaped":              func(s string) string { return strings.ReplaceAll(quoteJSON(s), "/", `\/`) },
	"base64":                       func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"base64 without padding":       func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
	"base64 for URLs":              func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
	"that without padding":         func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"base64 behind one byte":       func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s + "y")) },
	"base64 behind two bytes":      func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte("xy" + s + "z")) },
	"base64 among words":           func(s string) string { return "is " + base64.RawStdEncoding.EncodeToString([]byte(s)) + " now" },
	"base64 in a path":             func(s string) string { return "/v1/" + base64.RawURLEncoding.EncodeToString([]byte(s)) + "/keys" },
	"base64 in lines":              func(s string) string { return lines(base64.StdEncoding.EncodeToString([]byte(s)), 64, "\n") },
	"base64 in short indented CRs": func(s string) string { return lines(base64.StdEncoding.EncodeToString([]byte(s)), 5, "\r\n    ") },
	"basic authorization":          func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+s)) },
	"a query":                      func(s string) string { return "https://example.com/?a=b&key=" + url.QueryEscape(s) + "&c=d" },
	"a path":                       func(s string) string { return "https://example.com/" + url.PathEscape(s) + "/x" },
	"a URL's user": func(s string) string {
		return (&url.URL{Scheme: "amqp", User: url.UserPassword("u", s), Host: "h"}).String()
	},
	"every byte in percent": func(s string) string { return percentAll(s, "%%%02x") },
	"in upper percent":      func(s string) string { return percentAll(s, "%%%02X") },
	"YAML":                  func(s string) string { return yamlOf(s, 0) },
	"YAML in double quotes": func(s string) string { return yamlOf(s, yaml.DoubleQuotedStyle) },
	"YAML in single quotes": func(s string) string { return yamlOf(s, yaml.SingleQuotedStyle) },
	"a YAML block":          func(s string) string { return "a:\n  b: |\n    " + strings.ReplaceAll(s, "\n", "\n    ") },
	"a folded YAML block": func(s string) string {
		return "a: >\n  " + strings.ReplaceAll(strings.ReplaceAll(s, "\n", "\n\n  "), " ", "\n  ")
	},
	"a quoted word of a shell": func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func quoteJSON(s string) string { return jsonOf(s) }

func escapeAll(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, format, unit)
		}
	}
	return b.String()
}

func percentAll(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func lines(s string, width int, end string) string {
	var b strings.Builder
	for len(s) > width {
		b.WriteString(s[:width] + end)
		s = s[width:]
	}
	return b.String() + s
}

// yamlOf writes s with a key.
func yamlOf(s string, style yaml.Style) string {
	b, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		{Kind: yaml.ScalarNode, Value: "key"}, {Kind: yaml.ScalarNode, Value: s, Style: style},
	}})
	if err != nil {
		panic(err)
	}
	return string(b)
}

const privateKey = `-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49
AwEHoUQDQgAEPR3tU2Fta9ktY+6P9G0cWO+0kETA6SFs38GecTyudlHz6xvCdz8q
EKTcWGekdmdDPsHloRNtsiCa697B2O9IFA==
-----END EC PRIVATE KEY-----
`

// values are of the kinds that Secrets have.
var values = map[string]string{
	"a short password": "hunter",
	"a password":       `p@ss "w0rd'\/<&>+%41 é世🚀\n`,
	"letters only":     "correcthorsebatterystaple",
	"a URL":            "postgres://u:p%40ss@db.example.com:5432/shop?sslmode=require",
	"a key":            privateKey,
	"JSON":             `{"auths":{"registry.example.com":{"username":"u","auth":"dTpodW50ZXIy"}}}`,
	"lines":            "HOST=db\nPASSWORD=\"hunter 2\"\n\nPATH=C:\\new\\u0041\n",
	"bytes":            "\x00\x01k\xff\xfe\xc3\xa9\x80\\n%42\"\x10\x9aabcdefgh\xd3\x1f \xef\xbf\xbd~",
	"no ASCII":         "пароль",
}

// secretWith writes a Secret with one value and two annotations of which one is to stay.
func secretWith(value, annotation string, quote func(string) string, dataFirst, stringData bool) string {
	metadata := `"metadata":{"name":"s","annotations":{"a":"b","example.com/any":` + quote(annotation) + `,"owner":"team-payments"}}`
	data := `"data":{"x":"","key":"` + base64.StdEncoding.EncodeToString([]byte(value)) + `"}`
	if stringData {
		data = `"stringData":{"x":"","key":` + quoteJSON(value) + `}`
	}
	if dataFirst {
		return `{"kind":"Secret",` + data + `,` + metadata + `}`
	}
	return `{"kind":"Secret",` + metadata + `,` + data + `}`
}

const withoutCopy = `"annotations":{"a":"b","owner":"team-payments"}`

func TestAnAnnotationWithAValueGoesHoweverTheValueIsEncoded(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true}
	escaped := func(s string) string {
		return strings.ReplaceAll(`"`+escapeAll(s, `\u%04X`)+`"`, `\u002F`, `\/`)
	}
	for what, value := range values {
		for how, encode := range encodings {
			annotation := "note: " + encode(value) // so that it does not begin as JSON
			for i, src := range []string{
				secretWith(value, annotation, quoteJSON, false, false),
				secretWith(value, annotation, quoteJSON, true, false),
				secretWith(value, annotation, escaped, false, false),
				secretWith(strings.ToValidUTF8(value, "\ufffd"), "note: "+encode(strings.ToValidUTF8(value, "\ufffd")), quoteJSON, false, true),
			} {
				if got, _ := keep(t, o, src); !strings.Contains(got, withoutCopy) {
					t.Errorf("%s, %s, %d: got %s for %s", what, how, i, got, src)
				}
			}
		}
	}
}

func TestAnAnnotationWithoutAValueStays(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true}
	for _, c := range []struct{ name, value, annotation string }{
		{"another text", "hunter2", "hunter3 huntr2"},
		{"base64 of another text", "hunter2", "aHVudGVyMw=="},
		{"a hash of the value", "hunter2", "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7"},
		{"a part of the value", "user=a password=hunter2", "hunter2"},
		{"a value that is too short", "admin", "admin"},
		{"one that is with what does not count", " a d\n\"m\\i'n", "admin a d m i n"},
		{"nothing", "", ""},
		{"the Secret's name", "checkout-db", "checkout-db"},
		{"its namespace", "shop-eu", "serves shop-eu"},
		{"what stands in place of values", "redacted", "redacted"},
		{"a certificate's name", privateKey, "ca.example.com,*.example.com"},
		{"words that look like base64 of JSON", "hunter2", "extended external-dns/exchange eyebrows Wyoming e30"},
		{"a certificate", "hunter2", "-----BEGIN CERTIFICATE-----\n" + lines(strings.Repeat("MIIBszCCAVmgAwIBAgIRAJ+W", 40), 64, "\n") + "\n-----END CERTIFICATE-----"},
		{"a path of Windows", "hunter2", `C:\new\users\100%`},
		{"a template", "hunter2", "x {{ .Values.name }} %s %d%% \\"},
	} {
		src := `{"kind":"Secret","metadata":{"name":"checkout-db","namespace":"shop-eu","annotations":{"a":` + quoteJSON(c.annotation) +
			`}},"data":{"k":"` + base64.StdEncoding.EncodeToString([]byte(c.value)) + `"}}`
		if got, _ := keep(t, o, src); !strings.Contains(got, `"a":`+quoteJSON(c.annotation)) {
			t.Errorf("%s: got %s for %s", c.name, got, src)
		}
	}
}

func TestAnAnnotationThatCanHideADocumentGoes(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true}
	const old = `{"data":{"k":"` + "b2xkIHZhbHVl" + `"}}` // a value that the Secret has no more
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, annotation := range map[string]string{
		"a line feed":                "\n" + old,
		"white space of all kinds":   " \t\r\n\u00a0\u2028\u200b" + old,
		"a byte order mark":          "\ufeff" + old,
		"a quote":                    `"` + old,
		"a JSON string":              quoteJSON(old),
		"one in single quotes":       "'" + old + "'",
		"in backquotes":              "`\n" + old + "`",
		"an array":                   "\n[" + old + "]",
		"percent":                    url.QueryEscape(old),
		"base64":                     b64(old),
		"base64 for URLs":            base64.RawURLEncoding.EncodeToString([]byte(old)),
		"base64 of indented JSON":    b64("{\n  \"data\": {}\n}"),
		"base64 of an array":         b64("[" + old + "]"),
		"base64 of a line feed":      b64("\n\n  " + old),
		"base64 of a mark":           b64("\ufeff" + old),
		"base64 of a JSON string":    b64(quoteJSON(old)),
		"base64 in quotes":           `"` + b64(old) + `"`,
		"base64 in lines":            lines(b64(old), 4, "\n"),
		"base64 twice":               b64(b64(old)),
		"base64 three times":         b64(b64(b64(old))),
		"a data URL":                 "data:application/json;base64," + b64(old),
		"a word":                     "v2: " + b64(old),
		"a JSON Web Token":           "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln",
		"gzip":                       "H4sIAAAAAAAAA6tWSkksSVSyqlbKVrJSSjLKNcoz8yhTqq0FAKy7YY4XAAAA",
		"gzip as Helm stores it":     b64("H4sIAAAAAAAAA6tWSkksSVSyqlbKVrJSSjLKNcoz8yhTqq0FAKy7YY4XAAAA"),
		"gzip with a name":           b64("\x1f\x8b\x08\x08\x00\x00\x00\x00\x02\xffa.json\x00"),
		"zip":                        b64("PK\x03\x04\x14\x00\x00\x00\x08\x00"),
		"zstd":                       b64("\x28\xb5\x2f\xfd\x04\x00\xb9\x00\x00"),
		"bzip2":                      b64("BZh91AY&SY\x00\x00"),
		"xz":                         b64("\xfd7zXZ\x00\x00\x04"),
		"gzip's bytes":               "\x1f\x8b\x08\x00\x00\x00",
		"gzip's bytes as characters": "\x1f\u008b\x08\x00",
		"gzip's bytes replaced":      "\x1f\ufffd\x08\x00",
		"zip's bytes":                "PK\x03\x04\x14\x00",
		"zstd's bytes":               "\x28\xb5\x2f\xfd\x04",
		"zstd's bytes as characters": "(\u00b5/\u00fd\x04",
		"zstd's bytes behind a line": "\n(\ufffd/\ufffd\x04",
		"a manifest":                 "---\napiVersion: v1\nkind: Secret\ndata:\n  k: b2xkIHZhbHVl\n",
		"base64 of a manifest":       b64("# a comment\nkind: Secret\nstringData:\n  k: old value\n"),
		"a manifest within a text":   `kubectl apply -f - <<< '{"apiVersion":"v1","data":{}}'`,
	} {
		for _, data := range []string{`"data":{"k":"bmV3IHZhbHVl"}`, `"data":{"k":"cmVkYWN0ZWQ="}`, `"type":"Opaque"`} {
			src := `{"kind":"Secret","metadata":{"annotations":{"a":"b","any":` + rawString(annotation) + `,"owner":"team-payments"}},` + data + `}`
			if got, _ := keep(t, o, src); !strings.Contains(got, withoutCopy) {
				t.Errorf("%s: got %s for %q", name, got, src)
			}
		}
	}
}

// rawString is quoteJSON for bytes that are no UTF-8, which stay.
func rawString(s string) string {
	w := newWriter(2)
	w.quoted(s)
	return string(w.b)
}

func TestAValueIsFoundAmongManyThatAreAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	word := func(least int) string {
		b := make([]byte, least+rng.IntN(6))
		for i := range b {
			b[i] = "ab"[rng.IntN(2)]
		}
		return string(b)
	}
	hits := 0
	for range 3000 {
		var s search
		s.reset(1000)
		var all []string
		for range rng.IntN(6) {
			v := word(5)
			all = append(all, v)
			s.add([]byte(v))
		}
		s.prepare()
		text := word(12)
		want := slices.ContainsFunc(all, func(v string) bool { return len(v) >= leastValue && strings.Contains(text, v) })
		if got := s.finds([]byte(text)); got != want {
			t.Fatalf("%q in %q: got %v", all, text, got)
		}
		if want {
			hits++
		}
	}
	if hits < 300 {
		t.Errorf("only %d of the texts had a value", hits)
	}
}

func TestATextThatIsTooTangledGoesInsteadOfBeingUnravelled(t *testing.T) {
	// Each step decodes one escape, so that there are as many forms as characters.
	tangled := `\` + strings.Repeat("u005c", 4000)
	var s search
	s.reset(len(tangled))
	s.prepare()
	if !s.finds([]byte(tangled)) {
		t.Error("the text is found to be without a value")
	}
	if most := (patience + 2) * len(tangled); cap(s.forms) > 4*most {
		t.Errorf("its forms took %d bytes, want about %d at most", cap(s.forms), most)
	}
	// What encoders do does not take as much.
	honest := "Grüße \"aus\" C:\\new"
	for range 4 {
		honest = base64.StdEncoding.EncodeToString([]byte(quoteJSON(honest)))
	}
	if s.finds([]byte("x" + honest[1:])) { // hides nothing any more
		t.Error("an honest text is taken for a tangled one")
	}
}

func TestWhatOneSecretHasIsNotLookedForInAnother(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true}
	for range 20 {
		if got, _ := keep(t, o, secretWith("hunter2", "hunter2", quoteJSON, true, false)); !strings.Contains(got, withoutCopy) {
			t.Fatalf("got %s", got)
		}
		src := secretWith("swordfish", "hunter2", quoteJSON, true, false)
		if got, _ := keep(t, o, src); !strings.Contains(got, `"hunter2"`) {
			t.Fatalf("got %s", got)
		}
	}
}

func TestEveryValueOfASecretIsLookedFor(t *testing.T) {
	o := Options{Kind: "Secret", RedactSecret: true, Drop: [][]string{{"data", "dropped"}, {"stringData"}, {"metadata", "annotations", "dropped"}}}
	for src, want := range map[string]string{
		`{"data":{"k":"aHVudGVyMg=="},"data":{"k":"c3dvcmRmaXNo"},"metadata":{"annotations":{"a":"hunter2","b":"swordfish","c":"d"}}}`:                                                  `{"c":"d"}`,
		`{"data":{"k":"aHVudGVyMg==","k":"c3dvcmRmaXNo"},"metadata":{"annotations":{"c":"d","a":"hunter2","b":"swordfish"}}}`:                                                           `{"c":"d"}`,
		`{"data":{"dropped":"aHVudGVyMg=="},"stringData":{"k":"swordfish"},"metadata":{"annotations":{"a":"hunter2","c":"d","b":"swordfish"}}}`:                                         `{"c":"d"}`,
		`{"d\u0061ta":{"k":"aHVudG\u0056yMg=="},"metadata":{"annotations":{"a":"hunter2"}}}`:                                                                                            `{}`,
		`{"data":{"k":"no base64"},"metadata":{"annotations":{"a":"is no base64","c":"d"}}}`:                                                                                            `{"c":"d"}`,
		`{"data":{"k":"aHVudGVyMg=="},"metadata":{"annotations":{"a":"hunter2"},"labels":{"a":"hunter2"}},"spec":{"annotations":{"a":"hunter2"}},"annotations":{"a":"hunter2"}}`:        `{}`,
		`{"data":{"k":"aHVudGVyMg=="},"metadata":{"annotations":{"a":"hunter2","dropped":"x"},"annotations":{"b":"hunter2"}},"metadata":{"annotations":{"c":"hunter2","d":"hunter1"}}}`: `{}`,
		// Not all values are known.
		`{"data":{"k":["hunter2"]},"metadata":{"annotations":{"c":"d"}}}`:      `{}`,
		`{"data":{"k":7},"metadata":{"annotations":{"c":"d"}}}`:                `{}`,
		`{"data":["hunter2"],"metadata":{"annotations":{"c":"d"}}}`:            `{}`,
		`{"stringData":"hunter2","metadata":{"annotations":{"c":"d"}}}`:        `{}`,
		`{"data":null,"data":{"k":null},"metadata":{"annotations":{"c":"d"}}}`: `{"c":"d"}`,
	} {
		src = `{"kind":"Secret",` + src[1:]
		got, _ := keep(t, o, src)
		if _, after, _ := strings.Cut(got, `"annotations":`); !strings.HasPrefix(after, want) {
			t.Errorf("%s: got %s, want annotations %s", src, got, want)
		}
	}
}

// copier puts values into annotations in random ways.
type copier struct {
	*rand.Rand
	steps []string // the names of encodings
}

func newCopier(seed uint64) *copier {
	c := &copier{Rand: rand.New(rand.NewPCG(seed, 0x636f7079))}
	for name := range encodings {
		c.steps = append(c.steps, name)
	}
	slices.Sort(c.steps)
	return c
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// value is long enough to be looked for.
func (c *copier) value() string {
	alphabet := pick(c.Rand,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
		"0123456789abcdef", "aA0+/=-_", "aб世🚀é", "ab\\nu041%\"'/ ", "key: - value\n\t|>#\"'", "a{}[]:,\"\\\n ", "\x00\x1f\x7fa\u2028\u00a0\ufeff\\")
	runes := []rune(alphabet)
	b := []byte{}
	for len(b) < 6+c.IntN(200) {
		if c.IntN(10) == 0 && alphabet[0] != 'k' {
			b = append(b, byte(c.IntN(256)))
			continue
		}
		b = utf8Append(b, runes[c.IntN(len(runes))])
	}
	return string(b) + "secret"
}

// asText is text as a reader has it that knows of UTF-8 only.
func asText(r *rand.Rand, text string) string {
	switch r.IntN(3) {
	case 0:
		return strings.ToValidUTF8(text, "\ufffd") // one for several
	case 1:
		return string([]rune(text)) // one for each
	}
	return text
}

func utf8Append(b []byte, r rune) []byte { return append(b, string(r)...) }

// annotation is value in up to four encodings, each with something around it, and how that was done.
func (c *copier) annotation(value string) (text, how string) {
	text = value
	for range 1 + c.IntN(4) {
		step := c.steps[c.IntN(len(c.steps))]
		text = pick(c.Rand, "", "", "", "x", "note: ", "a=b ", "\n ", "https://u:") + encodings[step](text) + pick(c.Rand, "", "", "", "x", " y", "\n", "@h/p?q#f", "==")
		how += step + ", "
	}
	return text, how
}

func checkCopies(t *testing.T, seed uint64) {
	t.Helper()
	c := newCopier(seed)
	var all []string
	w := newWriter(seed)
	data := map[string][]byte{}
	for i := range 1 + c.IntN(4) {
		all = append(all, c.value())
		data[fmt.Sprint("k", i)] = []byte(all[i])
	}
	value := pick(c.Rand, all...)
	text, how := c.annotation(value)
	metadata := func() {
		w.quoted("metadata")
		w.put(`:{"annotations":{"a":"b","any":`)
		w.quoted(asText(c.Rand, text))
		w.put(`,"c":"d"}}`)
	}
	w.put(`{"kind":"Secret",`)
	if c.IntN(2) == 0 {
		metadata()
		w.put(`,"data":` + jsonOf(data))
	} else {
		w.put(`"data":` + jsonOf(data) + `,`)
		metadata()
	}
	w.put("}")
	var m Meta
	out, err := rules(t, secretRules).Object(nil, w.b, &m)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte("any")) {
		t.Fatalf("seed %d: the value %q in %sis kept in %s", seed, value, how, out)
	}
}

func TestRandomCopiesOfRandomValuesAreFound(t *testing.T) {
	for seed := range uint64(5000) {
		checkCopies(t, seed)
	}
}
