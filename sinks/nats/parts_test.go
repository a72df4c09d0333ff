package nats

import (
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/kbridge-io/kbridge/sinks"
)

func TestHeaderValuesAreEncodedAsTheBindingSays(t *testing.T) {
	for in, want := range map[string]string{
		"shop/checkout":  "shop/checkout",
		"system:node:a":  "system:node:a",
		"Euro € 😀":       "Euro%20%E2%82%AC%20%F0%9F%98%80",
		`100% "sure"`:    "100%25%20%22sure%22",
		"line\r\nbroken": "line%0D%0Abroken",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("headerValue(%q) is %q, want %q", in, got, want)
		}
	}
}

func TestATemplateMatchesAFilterIfSomeSubjectOfItDoes(t *testing.T) {
	for _, c := range []struct {
		template, filter string
		want             bool
	}{
		{"k8s.{cluster}.{name}", "k8s.>", true},
		{"k8s.{cluster}.{name}", ">", true},
		{"k8s.{cluster}.{name}", "k8s.*.*", true},
		{"k8s.{cluster}.{name}", "k8s.prod.*", true},
		{"k8s.{cluster}.{name}", "k8s.*", false},
		{"k8s.{cluster}.{name}", "k8s.*.*.>", false},
		{"k8s.{cluster}.{name}", "k9s.>", false},
		{"k8s.fixed", "k8s.fixed", true},
		{"k8s.fixed", "k8s.other", false},
		{"k8s-{cluster}.x", "k8s-prod.x", true},
		{"k8s-{cluster}.x", "k9s-prod.x", false},
		{"a{type}z.x", "az.x", false},
	} {
		if got := mayMatch(c.template, c.filter, sometimes); got != c.want {
			t.Errorf("mayMatch(%q, %q) is %v", c.template, c.filter, got)
		}
	}
}

func TestWhatDependsOnTheObjectNeedsAWildcardInAStreamThatStoresAll(t *testing.T) {
	for _, c := range []struct {
		template string
		filters  string
		want     string
	}{
		{"k8s.{cluster}.{resource}.{name}", "k8s.>", ""},
		{"k8s.{cluster}.{resource}.{name}", "other k8s.prod.pods.*", ""},
		{"k8s.{cluster}.{resource}.{name}", "k8s.prod.pods.a", "they leave out"},
		{"k8s.{cluster}-{type}.{name}", "k8s.prod-added.*", "they leave out"},
		{"k8s.{cluster}.{name}", "k8s.*", "none of them"},
		{"k8s.{cluster}.{name}", "", "none of them"},
	} {
		notes := stored(strings.Fields(c.filters), c.template)
		if len(notes) == 0 && c.want != "" || len(notes) > 0 && (c.want == "" || !strings.HasPrefix(notes[0].text, c.want)) {
			t.Errorf("of %q in a stream of %q is said %v", c.template, c.filters, notes)
		}
	}
}

func TestOnlyTheConfiguredStreamsAcknowledgementCounts(t *testing.T) {
	prefix := []byte(`{"stream":"KBRIDGE","seq":`)
	for data, stored := range map[string]bool{
		`{"stream":"KBRIDGE","seq":17}`:                                                 true,
		`{"stream":"KBRIDGE", "seq":17}`:                                                true,
		`{"stream":"KBRIDGE","seq":17,"duplicate": true}`:                               true,
		`{"stream":"KBRIDGE","domain":"hub","seq":17}`:                                  true,
		`{"stream":"KBRIDGE","seq":0}`:                                                  false,
		`{"stream":"KBRIDGE","seq":}`:                                                   false,
		`{"stream":"KBRIDGE2","seq":17}`:                                                false,
		`{"stream":"OTHER","seq":17}`:                                                   false,
		`{"stream":"KBRIDGE","seq":17,"error":{"code":503}}`:                            false,
		`{"error":{"code":503,"err_code":10077,"description":"x"},"stream":"","seq":0}`: false,
		`+OK`: false,
		``:    false,
	} {
		err := parseAck(&client.Msg{Data: []byte(data)}, "KBRIDGE", prefix)
		if (err == nil) != stored {
			t.Errorf("%s gives %v", data, err)
		}
		if errors.Is(err, sinks.ErrPermanent) {
			t.Errorf("%s is permanent", data)
		}
	}
	none := &client.Msg{Header: client.Header{"Status": {"503"}}}
	if err := parseAck(none, "KBRIDGE", prefix); !errors.Is(err, errNoStream) {
		t.Errorf("no responders gives %v", err)
	}
}

func TestTheWindowGrowsWhileAnswersAreQuickAndShrinksWhenTheyAreSlow(t *testing.T) {
	w := newWindow(10 * time.Second) // an answer may take a second
	n := uint64(0)
	for range 20_000 {
		n++
		w.answered(n, n+uint64(w.size), time.Millisecond, w.size)
	}
	if w.size != windowEvents {
		t.Errorf("after quick answers it is %d, want %d", w.size, windowEvents)
	}
	last := n + windowEvents
	for range windowEvents {
		n++
		w.answered(n, last, 2*time.Second, w.size)
	}
	if w.size != windowEvents/2 {
		t.Errorf("after the slow answers to one window it is %d, want half of %d", w.size, windowEvents)
	}
	for range 100_000 {
		n++
		w.answered(n, n+uint64(w.size), 2*time.Second, w.size)
	}
	if w.size != leastWindow {
		t.Errorf("after slow answers only it is %d, want %d", w.size, leastWindow)
	}
}
