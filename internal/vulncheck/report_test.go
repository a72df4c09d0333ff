package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	config  = `{"config":{"scan_level":"symbol"}}`
	reached = `{"osv":{"id":"GO-1","summary":"bad bytes"}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"example.com/m","version":"v1.1.0"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"example.com/m","version":"v1.1.0","package":"example.com/m","function":"Parse"},{"module":"github.com/kbridge-io/kbridge","package":"github.com/kbridge-io/kbridge/sinks/nats","function":"dial"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"example.com/m","version":"v1.1.0","package":"example.com/m","function":"ParseAll"},{"module":"github.com/kbridge-io/kbridge","package":"github.com/kbridge-io/kbridge/sinks/nats","function":"open"}]}}`
	imported = `{"finding":{"osv":"GO-2","trace":[{"module":"example.com/n","version":"v1.0.0","package":"example.com/n"}]}}`
	library  = `{"finding":{"osv":"GO-3","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Get"},{"module":"github.com/kbridge-io/kbridge","package":"github.com/kbridge-io/kbridge/cmd/kbridge","function":"main"}]}}`
)

func TestAFindingFailsWhereKbridgesCodeReachesIt(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		std  bool
		want string // of the error, and "" for none
		said []string
	}{
		"nothing":                           {config, true, "", []string{"reaches 0 vulnerabilities of modules and 0 of the standard library; 0 more"}},
		"imported and not called":           {config + imported, true, "", []string{"reaches 0", "1 more are in required modules"}},
		"called":                            {config + reached + imported, false, "1 vulnerabilities of modules are reached", []string{"GO-1 bad bytes\n    example.com/m v1.1.0, fixed in v1.2.0; reached from sinks/nats.dial\n", "reaches 1 vul"}},
		"of the standard library":           {config + library, false, "", []string{"stdlib v1.26.8, fixed in v1.26.9; reached from cmd/kbridge.main", "0 vulnerabilities of modules and 1 of"}},
		"of the standard library, strictly": {config + library, true, "1 vulnerabilities of the standard library", nil},
		"both":                              {config + library + reached, false, "1 vulnerabilities of modules", nil},
	} {
		found, err := read(strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var out bytes.Buffer
		err = found.judge(&out, c.std)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		for _, said := range c.said {
			if !strings.Contains(out.String(), said) {
				t.Errorf("%s: it said\n%swant %q", name, out.String(), said)
			}
		}
	}
}

func TestAReportThatIsNotOfAWholeScanIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"none": "", "cut": config + reached[:40], "of packages": `{"config":{"scan_level":"package"}}`, "no JSON": "oh no",
	} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

func TestTheDatabaseIsTheServiceOrTheModulesCopyOrNone(t *testing.T) {
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json" {
			http.NotFound(w, r)
		}
	}))
	defer there.Close()
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	copied := func() (string, string, error) { return "/copy/osv", "v0.0.0-20261105", nil }
	none := func() (string, string, error) { return "", "", errors.New("no proxy") }

	var out bytes.Buffer
	if db, err := database(t.Context(), &out, there.URL, none); err != nil || db != there.URL {
		t.Errorf("with the service: %q, %v", db, err)
	}
	if db, err := database(t.Context(), &out, broken.URL, copied); err != nil || db != "file:///copy/osv" {
		t.Errorf("with the copy: %q, %v", db, err)
	}
	if said := out.String(); !strings.Contains(said, "404 Not Found") || !strings.Contains(said, "as of its version v0.0.0-20261105") {
		t.Errorf("it said %q, want why the copy, and how old", said)
	}
	if _, err := database(t.Context(), io.Discard, broken.URL, none); err == nil || !strings.Contains(err.Error(), "no proxy") {
		t.Errorf("with neither: %v", err)
	}
}
