//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/bench/report"
)

// What is measured of memory, and of a start.
var (
	timeSynced    = report.Metric{Name: "start to synced", Unit: "s"}
	timeAnnounced = report.Metric{Name: "start to all acknowledged", Unit: "s"}
	memSettled    = report.Metric{Name: "settled RssAnon", Unit: "MiB"}
	memPeak       = report.Metric{Name: "peak RssAnon in the list", Unit: "MiB"}
	memPerObject  = report.Metric{Name: "settled RssAnon over the empty process", Unit: "B/object"}
	memRatio      = report.Metric{Name: "peak of settled", Unit: "×"}
	memChanges    = report.Metric{Name: "peak RssAnon in a burst", Unit: "MiB"}
	cpuPerObject  = report.Metric{Name: "CPU of the list", Unit: "µs/object"}

	resyncPeak   = report.Metric{Name: "peak RssAnon in the resync", Unit: "MiB"}
	resyncGrowth = report.Metric{Name: "growth", Unit: "%"}
	resyncTime   = report.Metric{Name: "took", Unit: "s"}
)

// Memory has settled when it has moved by less than a hundredth for so long. A limit is
// there for a program whose memory never does.
const (
	settleQuiet = 3 * time.Second
	settleLimit = 20 * time.Second
)

// start is what a program needed to announce all objects of a cluster.
type startFigures struct {
	synced, announced time.Duration
	cpu               time.Duration
	peak, settled     int64
}

// list starts a program and waits until its memory has settled.
func (b *bench) list(ctx context.Context, s setup) (*subject, startFigures, error) {
	var f startFigures
	sub, err := b.start(ctx, s)
	if err != nil {
		return nil, f, err
	}
	peak := sub.Peak()
	f.synced, f.announced, err = sub.awaitAnnounced(ctx)
	if err == nil {
		err = sub.rest(ctx)
	}
	f.peak = peak()
	if err == nil {
		f.cpu, err = sub.CPU()
	}
	if err == nil {
		f.settled, err = sub.Settled(ctx, settleQuiet, settleLimit)
	}
	if err != nil {
		return nil, f, errors.Join(err, sub.close(ctx))
	}
	return sub, f, nil
}

// empty is what a program needs that has nothing to do.
func (b *bench) empty(ctx context.Context, s setup) (settled int64, err error) {
	s.objects = 0
	sub, f, err := b.list(ctx, s)
	if err != nil {
		return 0, err
	}
	return f.settled, sub.close(ctx)
}

// needs measures what a cluster of a size needs, before and in a burst of changes.
func (b *bench) needs(ctx context.Context, name string, s setup, changes int) (err error) {
	sub, f, err := b.list(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.close(ctx)) }()
	r, err := sub.burst(ctx, control.Changes{Count: changes})
	if err != nil {
		return err
	}
	at := float64(s.objects)
	c := b.current
	c.AddAt(name, memSettled, at, float64(f.settled)/mebibyte)
	c.AddAt(name, memPeak, at, float64(f.peak)/mebibyte)
	c.AddAt(name, memChanges, at, r.peak)
	c.AddAt(name, timeSynced, at, f.synced.Seconds())
	c.AddAt(name, timeAnnounced, at, f.announced.Seconds())
	c.AddAt(name, cpuPerObject, at, float64(f.cpu.Microseconds())/at)
	c.AddAt(name, cpuPerEvent, at, r.cpu)
	c.AddAt(name, eventsPerSecond, at, r.perSecond)
	return nil
}

// snapshots sees where the resync is: its first and its last event.
type snapshots struct {
	arrivals
	started, completed atomic.Bool
}

var (
	snapshotStarted   = []byte(`"type":"dev.kbridge.snapshot.started"`)
	snapshotCompleted = []byte(`"type":"dev.kbridge.snapshot.completed"`)
)

// see notes the ages of changes that arrive within a resync.
func (s *snapshots) see(message []byte) {
	head := message[:min(len(message), 512)]
	switch {
	case bytes.Contains(head, snapshotStarted):
		s.started.Store(true)
	case bytes.Contains(head, snapshotCompleted):
		s.completed.Store(true)
	case s.started.Load() && !s.completed.Load():
		s.arrivals.see(message)
	}
}

// restart forgets the snapshot that the first list was.
func (s *snapshots) restart() {
	s.started.Store(false)
	s.completed.Store(false)
}

// memory measures a large cluster: what its list needs, what stays, and what a resync
// does to memory and to changes that come meanwhile.
func (b *bench) memory(ctx context.Context) (err error) {
	const name = "kbridge, state on"
	s := setup{kind: objects.Pods, objects: b.plan.memory, to: openPipe, state: true, resync: b.plan.resync, follow: func([]byte) {}}
	empty, err := b.empty(ctx, s)
	if err != nil {
		return err
	}
	var seen snapshots
	s.follow, s.profile = seen.see, "memory"
	sub, f, err := b.list(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.close(ctx)) }()
	n := float64(s.objects)
	c := b.current
	c.Add(name, memSettled, float64(f.settled)/mebibyte)
	c.Add(name, memPerObject, float64(f.settled-empty)/n)
	c.Add(name, memPeak, float64(f.peak)/mebibyte)
	c.Add(name, memRatio, float64(f.peak)/float64(f.settled))
	c.Add(name, timeSynced, f.synced.Seconds())
	c.Add(name, timeAnnounced, f.announced.Seconds())
	c.Add(name, cpuPerObject, float64(f.cpu.Microseconds())/n)
	if time.Since(sub.Started) > s.resync {
		c.Note("the list took longer than until the resync")
	}
	if err := sub.beginProfile(ctx); err != nil { // what is wanted is the memory's, which comes with its end
		return err
	}
	if err := sub.endProfile(ctx); err != nil {
		return err
	}
	return sub.resynced(ctx, name, &seen, f.settled)
}

// resynced waits for the next resync, with changes at the plan's rate.
func (s *subject) resynced(ctx context.Context, name string, seen *snapshots, settled int64) error {
	b := s.bench
	seen.restart()
	if err := until(ctx, "begin of the resync", patience, func() (bool, error) { return seen.started.Load(), s.Ended() }); err != nil {
		return err
	}
	began := time.Now()
	peak := s.Peak()
	for !seen.completed.Load() { // a tenth of a second's changes at a time
		paced := control.Paced{Changes: control.Changes{Count: b.perSecond / 10}, PerSecond: b.perSecond}
		if _, err := b.server.Pace(ctx, paced); err != nil {
			peak()
			return errors.Join(err, s.Ended())
		}
	}
	took, most := time.Since(began), peak()
	ages, err := seen.all()
	if err != nil {
		return err
	}
	c := b.current
	c.Add(name+": resync", resyncTime, took.Seconds())
	c.Add(name+": resync", resyncPeak, float64(most)/mebibyte)
	c.Add(name+": resync", resyncGrowth, 100*float64(most-settled)/float64(settled))
	c.Add(name+": resync", latency50, report.Percentile(ages, 50))
	c.Add(name+": resync", latency99, report.Percentile(ages, 99))
	c.Add(name+": resync", latency999, report.Percentile(ages, 99.9))
	return nil
}
