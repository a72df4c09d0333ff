//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
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

	timeResumed  = report.Metric{Name: "start to resumed", Unit: "s"}
	resyncBefore = report.Metric{Name: "RssAnon before the resync", Unit: "MiB"}
	resyncPeak   = report.Metric{Name: "peak RssAnon in the resync", Unit: "MiB"}
)

// Memory has settled when it has moved by less than a hundredth for so long. A limit is
// there for a program whose memory never does.
const (
	settleQuiet = 3 * time.Second
	settleLimit = 12 * time.Second
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
		return nil, f, sub.end(ctx, err)
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
	return f.settled, sub.end(ctx, nil)
}

// needs measures what a cluster of a size needs, before and in a burst of changes.
func (b *bench) needs(ctx context.Context, name string, s setup, changes int) (err error) {
	sub, f, err := b.list(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = sub.end(ctx, err) }()
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

// resyncing sees where the resync is: its first and its last event. Ages are those of
// changes that arrive between them.
type resyncing struct {
	arrivals

	mu    sync.Mutex
	phase phase
	began time.Time // the running phase
}

// phase is how far the resync is that is waited for. One that has begun before that, as
// the first list is one too, does not count.
type phase int

const (
	unawaited phase = iota
	awaited
	running
	completed
)

var (
	snapshotStarted   = []byte(`"type":"dev.kbridge.snapshot.started"`)
	snapshotCompleted = []byte(`"type":"dev.kbridge.snapshot.completed"`)
)

// see notes one message.
func (r *resyncing) see(message []byte) {
	head := message[:min(len(message), 512)]
	switch {
	case bytes.Contains(head, snapshotStarted):
		r.move(awaited, running)
	case bytes.Contains(head, snapshotCompleted):
		r.move(running, completed)
	case r.is(running):
		r.arrivals.see(message)
	}
}

// move goes on to the next phase, if the resync is in the one before.
func (r *resyncing) move(from, to phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase != from {
		return
	}
	r.phase = to
	if to == running {
		r.began = time.Now()
	}
}

func (r *resyncing) is(p phase) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase == p
}

// over says that the resync has ended, or has gone on for as long as it is looked at.
func (r *resyncing) over(limit time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase == completed || r.phase == running && time.Since(r.began) > limit
}

// memory measures a large cluster: what its list needs and what stays, what a start from
// the state needs, and what a resync does to memory and to changes that come meanwhile.
func (b *bench) memory(ctx context.Context) (err error) {
	s := setup{kind: objects.Pods, objects: b.plan.memory, to: devNull, state: true}
	empty, err := b.empty(ctx, s)
	if err != nil {
		return err
	}
	s.profile = b.profileName(stateOn)
	sub, f, err := b.list(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = sub.end(ctx, err) }()
	n := float64(s.objects)
	c := b.current
	c.Add(stateOn, memSettled, float64(f.settled)/mebibyte)
	c.Add(stateOn, memPerObject, float64(f.settled-empty)/n)
	c.Add(stateOn, memPeak, float64(f.peak)/mebibyte)
	c.Add(stateOn, memRatio, float64(f.peak)/float64(f.settled))
	c.Add(stateOn, timeSynced, f.synced.Seconds())
	c.Add(stateOn, timeAnnounced, f.announced.Seconds())
	c.Add(stateOn, cpuPerObject, float64(f.cpu.Microseconds())/n)
	// What a profile is wanted for here is the memory, which comes with its end.
	if err := sub.beginProfile(ctx); err != nil {
		return err
	}
	if err := sub.endProfile(ctx); err != nil {
		return err
	}
	if err := sub.Stop(); err != nil {
		return err
	}
	return b.resync(ctx, s, sub.dir)
}

// resync starts a program on the state that an earlier one has left in the folder, on the
// same cluster, and has changes come at the plan's rate while a resync goes on.
func (b *bench) resync(ctx context.Context, s setup, dir string) (err error) {
	var seen resyncing
	s.to, s.dir, s.resync, s.follow, s.profile = openPipe, dir, b.plan.resync, seen.see, ""
	sub, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = sub.end(ctx, err) }()
	synced, err := sub.awaitSynced(ctx)
	if err != nil {
		return err
	}
	settled, err := sub.Settled(ctx, time.Second, time.Until(sub.Started.Add(s.resync-2*time.Second)))
	if err != nil {
		return err
	}
	if time.Since(sub.Started) > s.resync {
		b.current.Note("a resync began before memory had settled")
	}
	seen.move(unawaited, awaited)
	peak := sub.Peak()
	for deadline := time.Now().Add(patience); err == nil && !seen.over(b.plan.resyncFor); { // a tenth of a second's changes at a time
		_, err = b.server.Pace(ctx, control.Paced{Changes: control.Changes{Count: b.perSecond / 10}, PerSecond: b.perSecond})
		if err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("no resync has begun within %s", patience)
		}
	}
	most := peak()
	if err != nil {
		return errors.Join(err, sub.Ended())
	}
	ages, err := seen.all()
	if err != nil {
		return err
	}
	c := b.current
	c.Add(resumed, timeResumed, synced.Seconds())
	c.Add(resumed, resyncBefore, float64(settled)/mebibyte)
	c.Add(resumed, resyncPeak, float64(most)/mebibyte)
	c.Add(resumed, latency50, report.Percentile(ages, 50))
	c.Add(resumed, latency99, report.Percentile(ages, 99))
	c.Add(resumed, latency999, report.Percentile(ages, 99.9))
	return nil
}
