package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/state"
)

// entry is one of configmaps for the sinks of these names.
func entry(sinks ...string) config.Resource {
	r := config.DefaultResource()
	r.Resource, r.Sinks = "configmaps", sinks
	return r
}

// keeps is what is stored of these, each written as watch=sink,sink.
func keeps(watches ...string) state.Contents {
	var c state.Contents
	for _, w := range watches {
		id, sinks, _ := strings.Cut(w, "=")
		c.Views = append(c.Views, state.ViewID(id))
		for _, s := range strings.Split(sinks, ",") {
			c.Lanes = append(c.Lanes, state.LaneID{Sink: s, View: state.ViewID(id)})
		}
	}
	return c
}

func TestEachWatchFindsWhatIsStoredForItsSinks(t *testing.T) {
	const all = "configmaps||||"
	shop := entry("audit")
	shop.Namespaces = []string{"shop", "billing"}
	for _, c := range []struct {
		name    string
		entries []config.Resource
		stored  state.Contents
		want    []string // in the order of the entries and their namespaces
	}{
		{"nothing is stored", []config.Resource{entry("audit"), entry("live")}, keeps(), []string{all, "1:" + all}},
		{"as they were", []config.Resource{entry("audit"), entry("live")}, keeps(all+"=audit", "1:"+all+"=live"), []string{all, "1:" + all}},
		{"in another order", []config.Resource{entry("live"), entry("audit")}, keeps(all+"=audit", "1:"+all+"=live"), []string{"1:" + all, all}},
		{"the first one is gone", []config.Resource{entry("live")}, keeps(all+"=audit", "1:"+all+"=live"), []string{"1:" + all}},
		{"one that is new comes first", []config.Resource{entry("new"), entry("live")}, keeps(all + "=live"), []string{"1:" + all, all}},
		{"a sink is added", []config.Resource{entry("audit", "new"), entry("live")}, keeps(all+"=audit", "1:"+all+"=live"), []string{all, "1:" + all}},
		{"its sink has another name", []config.Resource{entry("renamed")}, keeps(all + "=audit"), []string{all}},
		{"an entry of two sinks becomes two", []config.Resource{entry("live"), entry("audit")}, keeps(all + "=audit,live"), []string{all, "1:" + all}},
		{"two become one", []config.Resource{entry("live", "audit")}, keeps(all+"=audit", "1:"+all+"=live"), []string{all}},
		{"more than ten", []config.Resource{entry("a")}, keeps("10:"+all+"=a", "9:"+all+"=b"), []string{"10:" + all}},
		{"another selection", []config.Resource{shop, entry("live")}, keeps(all + "=audit"), []string{"configmaps|shop|||", "configmaps|billing|||", all}},
	} {
		v := assignViews(c.entries, []config.Sink{{Name: "audit"}, {Name: "live"}, {Name: "new"}}, c.stored)
		var got []string
		for _, k := range viewKeys(c.entries) {
			got = append(got, string(v.names[k]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if names := slices.Compact(slices.Sorted(maps.Values(v.names))); len(names) != len(c.want) {
			t.Errorf("%s: %d names of %d watches", c.name, len(names), len(c.want))
		}
		for _, l := range v.lanes {
			if !slices.Contains(slices.Collect(maps.Values(v.names)), l.View) || !strings.Contains(fmt.Sprint(c.entries), l.Sink) {
				t.Errorf("%s: %+v is kept", c.name, l)
			}
		}
	}
}

func TestEachWatchIsToldTheRulesOfItsEntry(t *testing.T) {
	whole, part := entry("audit"), entry("live")
	part.Drop, part.Namespaces = []string{"data.password"}, []string{"shop", "billing"}
	entries := []config.Resource{whole, part}
	v := assignViews(entries, []config.Sink{{Name: "audit"}, {Name: "live"}}, keeps("configmaps||||=audit"))
	rules, err := v.rules(entries)
	if err != nil || len(rules) != 3 {
		t.Fatal(rules, err)
	}
	of := func(id state.ViewID) string { return rules[id] }
	if of("configmaps|shop|||") != of("configmaps|billing|||") || of("configmaps|shop|||") == of("configmaps||||") {
		t.Errorf("the rules are %q", rules)
	}
}
