package main

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/state"
)

// entries are what the configuration has of a resource: one entry or two, of all sinks or
// some, whole or parted by namespaces.
func (w *world) entries(gvr schema.GroupVersionResource, sinks []config.Sink) []config.Resource {
	one := w.entry(gvr)
	switch n := w.rng.IntN(10); {
	case n < 3 && len(sinks) > 1: // one selection for different sinks
		other := w.entry(gvr)
		other.OneWatch = one.OneWatch
		other.Namespaces, other.ExcludeNamespaces, other.LabelSelector = one.Namespaces, one.ExcludeNamespaces, one.LabelSelector
		at := 1 + w.rng.IntN(len(sinks)-1)
		one.Sinks, other.Sinks = namesOfSinks(sinks[:at]), namesOfSinks(sinks[at:])
		return []config.Resource{one, other}
	case n < 5 && gvr != modelWidgets: // parted by namespaces
		other := w.entry(gvr)
		one.Namespaces, one.ExcludeNamespaces, one.OneWatch = []string{"a"}, nil, false
		other.Namespaces, other.ExcludeNamespaces, other.OneWatch = nil, []string{"a"}, false
		return []config.Resource{one, other}
	case n < 6:
		one.Sinks = namesOfSinks(sinks[:1+w.rng.IntN(len(sinks))])
	}
	return []config.Resource{one}
}

// entry is one entry of a resource.
func (w *world) entry(gvr schema.GroupVersionResource) config.Resource {
	r := config.DefaultResource()
	r.Group, r.Resource = gvr.Group, gvr.Resource
	switch {
	case gvr == modelConfigMaps && w.chance(0.3):
		r.Namespaces = []string{"a", "b"}
		r.OneWatch = w.chance(0.5)
	case gvr == modelConfigMaps && w.chance(0.3):
		r.ExcludeNamespaces = []string{"a"}
	case gvr == modelSecrets && w.chance(0.7):
		r.LabelSelector = "app=x"
	}
	if w.chance(0.2) {
		r.Data = config.DataChange
	}
	if w.chance(0.3) {
		r.Secrets = config.SecretsInclude
	}
	if w.chance(0.3) {
		r.Types = pick(w.rng, []config.EventType{config.Deleted}, []config.EventType{config.Added, config.Deleted}, []config.EventType{config.Added, config.Updated, config.Deleted})
	}
	if w.chance(0.2) {
		r.Verify = time.Minute
	}
	return r
}

func namesOfSinks(sinks []config.Sink) (names []string) {
	for _, s := range sinks {
		names = append(names, s.Name)
	}
	return names
}

// withoutSink takes a sink out of the configuration, with the entries that have no other.
func withoutSink(cfg *config.Config, name string) {
	cfg.Sinks = slices.DeleteFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == name })
	cfg.Resources = slices.DeleteFunc(cfg.Resources, func(r config.Resource) bool { return slices.Equal(r.Sinks, []string{name}) })
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		r.Sinks = slices.DeleteFunc(slices.Clone(r.Sinks), func(s string) bool { return s == name })
	}
}

// reselect changes the selection of an entry. What a sink had of it before is not
// mentioned any more: its consumers are right only if they sweep. Of a namespace that is
// left nothing is said at all: they would have to begin anew.
func (w *world) reselect(r *config.Resource) {
	had := r.Namespaces
	switch {
	case r.OneWatch && len(r.Namespaces) > 1:
		r.Namespaces = []string{"a"}
	case r.OneWatch && r.LabelSelector == "" && w.chance(0.5):
		r.Namespaces = []string{"a", "b"}
	case r.LabelSelector == "":
		r.LabelSelector = "app=x"
	default:
		r.LabelSelector = ""
	}
	w.say("select %s of %q by %q", r.Resource, r.Namespaces, r.LabelSelector)
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, b := range w.brokers {
		if r.SendsTo(name) {
			b.reselected[r.Resource] = true
			for _, ns := range had {
				if !slices.Contains(r.Namespaces, ns) {
					b.left[r.Resource+"/"+ns] = true
				}
			}
		}
	}
}

// tellsAll says that the sink is told of each change of the entry's objects.
func tellsAll(r *config.Resource) bool {
	return r.SendsType(config.Added) && r.SendsType(config.Updated) && r.SendsType(config.Deleted)
}

// isToldAll says that the sink is told of each change of the resource's objects.
func (w *world) isToldAll(sink, resource string) bool {
	for i := range w.cfg.Resources {
		if r := &w.cfg.Resources[i]; r.Resource == resource && r.SendsTo(sink) && !tellsAll(r) {
			return false
		}
	}
	return !w.brokers[sink].partial[resource]
}

// entryOf is the entry that the sink's part in a watch is of, or nil.
func (w *world) entryOf(id state.LaneID) *config.Resource {
	for i := range w.cfg.Resources {
		r := &w.cfg.Resources[i]
		for _, k := range viewKeys([]config.Resource{*r}) {
			if slices.Contains(numbered([]state.ViewID{id.View}, selection(*r, k.namespace)), id.View) && r.SendsTo(id.Sink) {
				return r
			}
		}
	}
	return nil
}

// includes says that the sink may have the values of Secrets.
func includes(cfg *config.Config, sink string) bool {
	return slices.ContainsFunc(cfg.Resources, func(r config.Resource) bool { return r.IncludesSecrets() && r.SendsTo(sink) })
}
