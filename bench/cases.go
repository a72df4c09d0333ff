//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/bench/report"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
)

// benchCase is a set of figures that are measured together.
type benchCase struct {
	name, what string
	// alone cases run only when they are named.
	alone bool
	run   func(context.Context, *bench) error
}

var cases = []benchCase{
	{name: "ceiling", what: "what the API server can send to a client that discards it", run: measureCeiling},
	{name: "stdout", what: "pods to /dev/null, and client-go's informer doing the same", run: measureStdout},
	{name: "kinds", what: "other kinds to /dev/null", run: measureKinds},
	{name: "jetstream", what: "pods to JetStream, file storage", run: measureJetStream},
	{name: "kafka", what: "pods to Kafka, acks all, one broker", run: measureKafka},
	{name: "latency", what: "the age of changes on arrival, at a steady rate", run: measureLatency},
	{name: "memory", what: "a large cluster, and its resync", run: measureMemory},
	{name: "growth-objects", what: "how start and memory grow with the objects", alone: true, run: measureGrowthObjects},
	{name: "growth-changes", what: "how the cost of a burst grows with its changes", alone: true, run: measureGrowthChanges},
	{name: "growth-limits", what: "what clusters of three sizes need, and what GOGC and GOMEMLIMIT change", alone: true, run: measureLimits},
}

// plots are drawn of the figures of these cases.
var plots = map[string][]report.Panel{
	"growth-objects": {
		{Title: "Start", X: "objects", Y: "seconds", Metrics: []string{timeSynced.Name, timeAnnounced.Name}},
		{Title: "Memory", X: "objects", Y: "RssAnon, MiB", Metrics: []string{memSettled.Name, memPeak.Name, memChanges.Name}},
		{Title: "CPU", X: "objects", Y: "µs", Metrics: []string{cpuPerObject.Name, cpuPerEvent.Name}},
	},
	"growth-changes": {
		{Title: "Throughput", X: "changes", Y: "events/s", Metrics: []string{eventsPerSecond.Name}},
		{Title: "CPU", X: "changes", Y: "µs/event", Metrics: []string{cpuPerEvent.Name}},
		{Title: "Memory", X: "changes", Y: "RssAnon, MiB", Metrics: []string{burstPeak.Name}},
	},
}

var (
	ceilingEvents = report.Metric{Name: "sent", Unit: "events/s"}
	ceilingBytes  = report.Metric{Name: "bytes", Unit: "MiB/s"}
)

func measureCeiling(ctx context.Context, b *bench) error {
	subject := func(name, url string) measurement {
		return measurement{name, func(ctx context.Context) error { return b.ceiling(ctx, name, url) }}
	}
	return b.each(ctx, []measurement{subject("HTTP/2 over TLS", b.cluster.HTTPS), subject("HTTP/1.1, plain", b.cluster.HTTP)})
}

// The names of subjects, which targets refer to.
const (
	stateOff    = "kbridge, state off"
	stateOn     = "kbridge, state on"
	stateSpread = "kbridge, state on, all objects change"
	plainHTTP   = "kbridge, state on, plain HTTP/1.1"
	baseline    = "dynamic informer and json.Marshal"
	resumed     = "kbridge, resumed from its state"
	bareClient  = "bare client"
	bareBridge  = "bare client that also reads the watch"
)

// bursting measures kbridge with a burst.
func (b *bench) bursting(name string, s setup, changes control.Changes, then func(burst)) measurement {
	s.profile = b.profileName(name)
	return measurement{name, func(ctx context.Context) error {
		r, err := b.burst(ctx, s, changes)
		if err != nil {
			return err
		}
		r.record(b, name)
		if then != nil {
			then(r)
		}
		return nil
	}}
}

// pods is how kbridge runs on the cluster of a burst.
func (b *bench) pods(to opener, state bool) setup {
	return setup{kind: objects.Pods, objects: b.objects, to: to, state: state, block: true}
}

// informing measures the baseline.
func (b *bench) informing(to opener, then func(burst)) measurement {
	s := setup{baseline: true, kind: objects.Pods, objects: b.baseObjects, to: to}
	return b.bursting(baseline, s, control.Changes{Count: b.baseChanges}, then)
}

func measureStdout(ctx context.Context, b *bench) error {
	few := control.Changes{Count: b.changes, Objects: b.few}
	spread := b.pods(devNull, true)
	spread.objects = b.many
	plain := b.pods(devNull, true)
	plain.plain = true
	var on burst
	return b.each(ctx, []measurement{
		b.bursting(stateOff, b.pods(devNull, false), few, nil),
		b.bursting(stateOn, b.pods(devNull, true), few, func(r burst) { on = r }),
		b.bursting(stateSpread, spread, control.Changes{Count: b.changes}, nil),
		b.bursting(plainHTTP, plain, few, nil),
		b.informing(devNull, func(r burst) { b.current.Add(baseline, ratioCPU, r.cpu/on.cpu) }),
	})
}

func measureKinds(ctx context.Context, b *bench) error {
	var subjects []measurement
	for _, c := range []struct {
		kind    *objects.Kind
		what    string
		changes int
	}{
		{objects.ConfigMaps, "ConfigMaps, 1 KB", b.queued},
		{objects.Events, "Events, 1.2 KB", b.queued},
		{objects.Widgets, "custom resources, 20 KB", b.large},
	} {
		s := b.pods(devNull, true)
		s.kind, s.objects = c.kind, b.few
		subjects = append(subjects, b.bursting(c.what, s, control.Changes{Count: c.changes}, nil))
	}
	return b.each(ctx, subjects)
}

func measureJetStream(ctx context.Context, b *bench) error {
	events, err := b.sample(ctx, b.queued)
	if err != nil {
		return err
	}
	return b.each(ctx, append(b.brokerSubjects(openStream, events, ""), b.informing(openStream, nil)))
}

func measureKafka(ctx context.Context, b *bench) error {
	if err := kafkabroker.Available(); err != nil {
		b.current.Note("not measured, as there is no Kafka broker: %v", err)
		return nil
	}
	events, err := b.sample(ctx, b.queued)
	if err != nil {
		return err
	}
	// A Java process is slow at first; nobody restarts a broker for each burst.
	for range 2 {
		if _, err := b.bareSend(ctx, openTopic("zstd"), events, false, "-compression", "zstd"); err != nil {
			return err
		}
	}
	return b.each(ctx, append(
		b.brokerSubjects(openTopic("zstd"), events, "zstd"),
		b.brokerSubjects(openTopic("lz4"), events, "lz4")...))
}

// brokerSubjects are the bare clients, and kbridge without and with state, each measured
// by what the bare clients reached just before.
func (b *bench) brokerSubjects(to opener, events, compression string) []measurement {
	var bare, bridge float64 // events a second
	suffix := ""
	var extra []string
	if compression != "" {
		suffix = ", " + compression
		extra = []string{"-compression", compression}
	}
	changes := control.Changes{Count: b.queued, Objects: b.few}
	sending := func(name string, watching bool, reached *float64) measurement {
		name += suffix
		return measurement{name, func(ctx context.Context) error {
			r, err := b.bareSend(ctx, to, events, watching, extra...)
			if err != nil {
				return err
			}
			*reached = r.perSecond()
			b.current.Add(name, eventsPerSecond, r.perSecond())
			b.current.Add(name, cpuPerEvent, float64(r.CPU.Microseconds())/float64(r.Events))
			return nil
		}}
	}
	bursting := func(name string, state bool) measurement {
		name += suffix
		return b.bursting(name, b.pods(to, state), changes, func(r burst) {
			b.current.Add(name, ratioBare, 100*r.perSecond/bare)
			b.current.Add(name, ratioBridge, 100*r.perSecond/bridge)
		})
	}
	return []measurement{
		sending(bareClient, false, &bare), sending(bareBridge, true, &bridge),
		bursting(stateOff, false), bursting(stateOn, true),
	}
}

func measureLatency(ctx context.Context, b *bench) error {
	subject := func(name string, to opener, state, baseline bool) measurement {
		s := setup{kind: objects.Pods, objects: b.objects, to: to, state: state, baseline: baseline, profile: b.profileName(name)}
		if baseline {
			s.objects = b.baseObjects
		}
		return measurement{name, func(ctx context.Context) error { return b.latency(ctx, name, s) }}
	}
	subjects := []measurement{
		subject("stdout, state off", openPipe, false, false),
		subject("stdout, state on", openPipe, true, false),
		subject("JetStream, state off", openStream, false, false),
		subject("JetStream, state on", openStream, true, false),
	}
	if err := kafkabroker.Available(); err != nil {
		b.current.Note("Kafka is not measured, as there is no broker: %v", err)
	} else {
		subjects = append(subjects,
			subject("Kafka, state off", openTopic("zstd"), false, false),
			subject("Kafka, state on", openTopic("zstd"), true, false))
	}
	return b.each(ctx, append(subjects, subject("stdout, "+baseline, openPipe, false, true)))
}

func measureMemory(ctx context.Context, b *bench) error {
	return b.each(ctx, []measurement{{fmt.Sprintf("%d pods", b.plan.memory), b.memory}})
}

// sized is how kbridge runs on a cluster of a size.
func sized(count int, env ...string) setup {
	return setup{kind: objects.Pods, objects: count, to: devNull, state: true, block: true, env: env}
}

func measureGrowthObjects(ctx context.Context, b *bench) error {
	var subjects []measurement
	for _, n := range b.growthObjects {
		subjects = append(subjects, measurement{fmt.Sprintf("%d pods", n), func(ctx context.Context) error {
			return b.needs(ctx, "pods", sized(n), b.changes)
		}})
	}
	return b.each(ctx, subjects)
}

func measureGrowthChanges(ctx context.Context, b *bench) error {
	var subjects []measurement
	for _, state := range []bool{false, true} {
		name := stateOff
		if state {
			name = stateOn
		}
		for _, n := range b.growthChanges {
			subjects = append(subjects, measurement{fmt.Sprintf("%s, %d changes", name, n), func(ctx context.Context) error {
				r, err := b.burst(ctx, b.pods(devNull, state), control.Changes{Count: n})
				if err != nil {
					return err
				}
				b.current.AddAt(name, eventsPerSecond, float64(n), r.perSecond)
				b.current.AddAt(name, cpuPerEvent, float64(n), r.cpu)
				b.current.AddAt(name, burstPeak, float64(n), r.peak)
				return nil
			}})
		}
	}
	return b.each(ctx, subjects)
}

// measureLimits sets what the Go runtime can be told: to collect garbage sooner, and to
// stay below a limit. The limit is half as much again as what stays under the defaults: with a quarter the collector has no rest.
func measureLimits(ctx context.Context, b *bench) error {
	var subjects []measurement
	for _, n := range b.sizes {
		for _, env := range []string{"", "GOGC=50", "GOGC=200", "GOMEMLIMIT"} {
			name := env
			if env == "" {
				name = "defaults"
			}
			subjects = append(subjects, measurement{fmt.Sprintf("%d pods, %s", n, name), func(ctx context.Context) error {
				s := sized(n)
				switch env {
				case "":
				case "GOMEMLIMIT":
					settled := b.current.Find("defaults", memSettled.Name, float64(n))
					s.env = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", int(settled.Median*1.5))}
				default:
					s.env = []string{env}
				}
				return b.needs(ctx, name, s, b.changes)
			}})
		}
	}
	return b.each(ctx, subjects)
}
