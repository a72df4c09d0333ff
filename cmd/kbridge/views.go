package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/state"
)

// views are the watches of a configuration, by their names in the state.
//
// A watch is named by its selection, since what another selection knows must not be
// compared with this one's list. Entries with one selection and different sinks have an
// index and a position each: one sink may be far ahead of another, and the bodies of one
// may have been redacted where those of another are whole. They are told apart by a
// number, and find what is theirs by the sinks that it was stored for.
type views struct {
	names map[viewKey]state.ViewID
	lanes []state.LaneID
}

// viewKey is an entry's place in the configuration, and one of its namespaces.
type viewKey struct {
	entry     int
	namespace string
}

// assignViews names the watches of the resources, given what the state has. No two have
// one name.
func assignViews(resources []config.Resource, sinks []config.Sink, stored state.Contents) views {
	v := views{names: map[viewKey]state.ViewID{}}
	taken := map[state.ViewID]bool{}
	assign := func(accept func(k viewKey, candidate state.ViewID) bool, candidates func(k viewKey, selection string) []state.ViewID) {
		for _, k := range viewKeys(resources) {
			if _, named := v.names[k]; named {
				continue
			}
			for _, id := range candidates(k, selection(resources[k.entry], k.namespace)) {
				if !taken[id] && accept(k, id) {
					v.names[k], taken[id] = id, true
					break
				}
			}
		}
	}
	known := func(_ viewKey, selection string) []state.ViewID { return numbered(stored.Views, selection) }
	// First those that were stored for the entry's sinks; then what is left of the
	// selection, whose sinks have been replaced; then new ones.
	assign(func(k viewKey, id state.ViewID) bool {
		return slices.ContainsFunc(stored.Lanes, func(l state.LaneID) bool { return l.View == id && resources[k.entry].SendsTo(l.Sink) })
	}, known)
	always := func(viewKey, state.ViewID) bool { return true }
	assign(always, known)
	assign(always, func(_ viewKey, selection string) []state.ViewID {
		var fresh []state.ViewID
		for n := range len(taken) + 1 {
			fresh = append(fresh, numberedID(selection, n))
		}
		return fresh
	})
	for k, id := range v.names {
		for _, s := range sinks {
			if resources[k.entry].SendsTo(s.Name) {
				v.lanes = append(v.lanes, state.LaneID{Sink: s.Name, View: id})
			}
		}
	}
	return v
}

// rules are those of each watch's bodies.
func (v views) rules(resources []config.Resource) (map[state.ViewID]string, error) {
	all := map[state.ViewID]string{}
	for k, id := range v.names {
		var err error
		if all[id], err = informer.RulesOf(resources[k.entry]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// viewKeys are the watches of the resources, in order.
func viewKeys(resources []config.Resource) []viewKey {
	var keys []viewKey
	for i, r := range resources {
		for _, ns := range r.Watches() {
			keys = append(keys, viewKey{i, ns})
		}
	}
	return keys
}

// selection says what a watch selects: whatever narrows it is part of it.
func selection(r config.Resource, namespace string) string {
	if r.OneWatch {
		namespace = "*" // of the list, which may grow and shrink
	}
	excluded := slices.Sorted(slices.Values(r.ExcludeNamespaces))
	return strings.Join([]string{r.GroupResource(), namespace, strings.Join(excluded, ","), r.LabelSelector, r.FieldSelector}, "|")
}

// numberedID is the name of the nth watch of a selection, from zero. A selection begins
// with a resource, and so with a letter.
func numberedID(selection string, n int) state.ViewID {
	if n == 0 {
		return state.ViewID(selection)
	}
	return state.ViewID(fmt.Sprintf("%d:%s", n, selection))
}

// numbered are the stored watches of a selection, in order.
func numbered(stored []state.ViewID, selection string) []state.ViewID {
	var ids []state.ViewID
	for _, id := range stored {
		number, rest, found := strings.Cut(string(id), ":")
		if _, err := strconv.Atoi(number); string(id) == selection || found && err == nil && rest == selection {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b state.ViewID) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return ids
}
