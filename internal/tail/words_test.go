package tail

import (
	"slices"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/event"
)

func TestAFilterInWordsPicksTheEventsThatFitAll(t *testing.T) {
	var all []*Event
	for _, d := range []*event.Delta{
		delta(event.Added, deployments, object("shop/web", "1", "")),
		delta(event.Deleted, deployments, object("shop/web", "2", "")),
		delta(event.Added, secrets, object("shop/db", "3", "")),
		delta(event.Added, secrets, object("billing/db", "4", "")),
		delta(event.Added, nodes, object("node-1", "5", "")),
	} {
		all = append(all, decoded(t, d, event.Structured))
	}
	var started event.Event
	(&event.Marker{Type: event.SnapshotStarted, Resource: deployments, Snapshot: "s", Time: noon}).Encode(&started, event.Structured)
	marker, err := Decode(map[string][]string{"Content-Type": {structuredType}}, started.Value)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, marker)
	for filter, want := range map[string]string{
		"kind=deployment":             "1 2 -",
		"kind=Deployment type=added":  "1",
		"type=deleted,started":        "2 -",
		"namespace=shop":              "1 2 3",
		"namespace=billing,shop":      "1 2 3 4",
		"namespace=_ kind=Node":       "5",
		"group=core":                  "3 4 5",
		"group=apps resource=secrets": "",
		"name=db namespace=billing":   "4",
		"cluster=elsewhere":           "",
	} {
		match, err := Match(filter)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		var got []string
		for _, e := range all {
			if match(e) {
				got = append(got, strings.TrimSpace(e.Attribute("resourceversion")+map[bool]string{true: "-"}[e.marker() != ""]))
			}
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: got %q, want %q", filter, got, want)
		}
	}
	for filter, want := range map[string]string{
		"kind=Pod shop":     `"shop" is none of cluster,`,
		"knid=Pod":          `"knid=Pod" is none of`,
		"kind=Pod kind=Job": "kind is there twice",
	} {
		if _, err := Match(filter); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", filter, err, want)
		}
	}
}
