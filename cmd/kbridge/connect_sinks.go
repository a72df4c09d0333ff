package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kbridge-io/kbridge/bridge"
	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/tracing"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/file"
)

// sinks tries each sink, and the place of its dead letters.
func (a *attempt) sinks(ctx context.Context) []check.Finding {
	entries := a.cfg.Sinks
	data := a.place.data(a.cfg)
	if a.place.isEmbedded(a.cfg) {
		s := config.DefaultSink()
		s.Name = embeddedSink
		entries = []config.Sink{s}
	}
	return check.Each(len(entries), func(i int) []check.Finding {
		entry := entries[i]
		return check.Run(ctx, a.limit, check.Sinks, entry.Name, func(ctx context.Context, found *check.Subject) {
			if entry.Name == embeddedSink && a.place.isEmbedded(a.cfg) {
				checkEmbedded(embeddedDir(data), found)
			} else {
				checkSink(ctx, entry, a.samples(entry.Name), found)
			}
			if entry.DeadLetter.Subject == "" {
				path := deadLetterFile(entry, data)
				if err := bridge.CheckDeadLetters(path); err != nil {
					found.Gap("dead letters: %v (set deadLetter.file to a place that can be written)", err)
				} else {
					found.OK("dead letters go to %s", path)
				}
			}
		})
	})
}

func checkEmbedded(dir string, found *check.Subject) {
	switch process, err := embedded.Check(dir); {
	case err != nil:
		found.Gap("the in-process nats-server: %v", err)
	case process != 0:
		found.OK("an in-process nats-server is in %s already, of process %d", dir, process)
	default:
		found.OK("a start would run a nats-server in %s, on 127.0.0.1, which keeps %s", dir, config.Size(embeddedStream))
	}
}

// samples stand for the events that come to a sink.
func (a *attempt) samples(sink string) (samples []sinks.Sample) {
	for i := range a.cfg.Resources {
		r := &a.cfg.Resources[i]
		if !r.SendsTo(sink) {
			continue
		}
		info := event.ResourceInfo{Cluster: a.name(), Group: r.APIGroup(), Version: r.Version, Resource: r.Resource}
		unknown, namespaces := []string{"name"}, r.Namespaces
		if info.Cluster == "" {
			unknown = append(unknown, "cluster")
		}
		served := a.served[i].Load()
		if served != nil {
			info.Version, info.Kind = served.Version, served.Kind
		} else {
			unknown = append(unknown, "kind")
		}
		if info.Version == "" {
			unknown = append(unknown, "version")
		}
		if len(namespaces) == 0 {
			namespaces = []string{""}
			if served == nil || served.Namespaced {
				unknown = append(unknown, "namespace")
			}
		}
		resource := event.NewResource(info)
		for _, ns := range namespaces {
			for _, t := range typesOf(r) {
				e := &event.Event{Type: t, Resource: resource, Key: event.Key{Group: info.Group, Resource: info.Resource, Namespace: ns}}
				samples = append(samples, sinks.Sample{Event: e, Unknown: unknown})
			}
		}
	}
	return samples
}

// typesOf are the types of an entry's events, those of its markers included.
func typesOf(r *config.Resource) []event.Type {
	types := []event.Type{event.SnapshotStarted, event.SnapshotCompleted}
	if r.Verify > 0 {
		types = append(types, event.Verified)
	}
	for _, name := range r.Types {
		if t, ok := event.ParseType(string(name)); ok {
			types = append(types, t)
		}
	}
	return types
}

// state looks at what a start would go on from.
func (a *attempt) state(ctx context.Context) []check.Finding {
	if a.cfg.State == nil {
		return nil // which the configuration is warned of
	}
	dir := a.cfg.State.File.Dir
	return check.Run(ctx, a.limit, check.State, dir, func(_ context.Context, found *check.Subject) {
		x, err := file.Examine(dir)
		switch {
		case err != nil:
			found.Gap("%v", err)
		case x.InUse && x.Process != 0:
			found.OK("in use by process %d", x.Process)
		case x.InUse:
			found.OK("in use by another process")
		case x.NoFolder:
			found.OK("it is not there: a start would make it, and begin with a snapshot of everything")
		case x.Absent:
			found.OK("nothing is stored: a start would begin with a snapshot of everything")
		case x.Unread:
			found.Warn("too large to be read here: whether it is damaged is not known")
		default:
			found.OK("format %d, opened %d times, watches: %d, epoch %d", x.Format, x.Starts, len(x.Contents.Views), x.Contents.Epoch)
			a.stored(x, found)
		}
	})
}

// stored says what a start would do with what is stored, beside going on from there.
func (a *attempt) stored(x file.Examined, found *check.Subject) {
	if uid := a.uid.Load(); uid != nil {
		for _, other := range x.Clusters {
			if other != *uid && other != "" { // empty: it was not known
				found.Warn("it is of the cluster %s, and %s answers: a start would tell of the differences, what is not there as deleted", other, *uid)
			}
		}
	}
	entries := a.cfg.Sinks
	if a.place.isEmbedded(a.cfg) {
		entries = []config.Sink{{Name: embeddedSink}}
	}
	assigned := slices.Collect(maps.Values(assignViews(a.cfg.Resources, entries, x.Contents).names))
	if gone := without(x.Contents.Views, assigned); len(gone) > 0 {
		found.Warn("a start would forget what the configuration does not select any more: %s", gone)
	}
	if fresh := without(assigned, x.Contents.Views); len(fresh) > 0 {
		found.OK("a start would begin with a snapshot of %s", fresh)
	}
}

// tracing asks the collector of spans. Events do not wait for it.
func (a *attempt) tracing(ctx context.Context) []check.Finding {
	if a.cfg.Tracing == nil {
		return nil
	}
	endpoint := a.cfg.Tracing.OTLPEndpoint
	return check.Run(ctx, a.limit, check.Tracing, endpoint, func(ctx context.Context, found *check.Subject) {
		if err := tracing.Check(ctx, endpoint, version); err != nil {
			found.Warn("spans would be dropped: %v", check.Reason(ctx, err))
		} else {
			found.OK("the collector takes spans; of all events %g %% have one", 100*a.cfg.Tracing.SampleRatio)
		}
	})
}

// watches are names of watches.
type watches []state.ViewID

// String names them in order. Their names end with separators where nothing narrows them.
func (w watches) String() string {
	var names []string
	for _, id := range w {
		names = append(names, strings.TrimRight(string(id), "|"))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// without are the first ones that are not among the second ones.
func without(all, others []state.ViewID) watches {
	return slices.DeleteFunc(slices.Clone(all), func(id state.ViewID) bool { return slices.Contains(others, id) })
}
