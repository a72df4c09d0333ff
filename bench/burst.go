//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/process"
	"github.com/kbridge-io/kbridge/bench/report"
)

// What is measured of a burst.
var (
	eventsPerSecond = report.Metric{Name: "acknowledged", Unit: "events/s"}
	cpuPerEvent     = report.Metric{Name: "CPU", Unit: "µs/event"}
	allocsPerEvent  = report.Metric{Name: "allocations", Unit: "/event"}
	bytesPerEvent   = report.Metric{Name: "allocated", Unit: "B/event"}
	burstPeak       = report.Metric{Name: "peak RssAnon", Unit: "MiB"}
	cpuOfServer     = report.Metric{Name: "API server's CPU", Unit: "µs/event"}
	cpuOfBroker     = report.Metric{Name: "broker's CPU", Unit: "µs/event"}
	ratioCPU        = report.Metric{Name: "CPU of the baseline", Unit: "×"}
	ratioBare       = report.Metric{Name: "of the bare client", Unit: "%"}
	ratioBridge     = report.Metric{Name: "of the one that also reads", Unit: "%"}
)

const mebibyte = 1 << 20

// burst is what a program did with changes that came as fast as it read.
type burst struct {
	perSecond float64 // from the first byte's writing to the last acknowledgement
	cpu       float64 // µs an event, until the program was quiet again
	allocs    float64 // an event
	allocated float64 // bytes an event
	peak      float64 // MiB
	server    float64 // µs an event of the API server's
	broker    float64 // likewise, where it is known
}

// record adds the figures.
func (r burst) record(b *bench, name string) {
	c := b.current
	c.Add(name, eventsPerSecond, r.perSecond)
	c.Add(name, cpuPerEvent, r.cpu)
	c.Add(name, allocsPerEvent, r.allocs)
	c.Add(name, bytesPerEvent, r.allocated)
	c.Add(name, burstPeak, r.peak)
	c.Add(name, cpuOfServer, r.server)
	if r.broker > 0 {
		c.Add(name, cpuOfBroker, r.broker)
	}
}

// storing is a little more than the time in which kbridge stores what was acknowledged.
const storing = 1200 * time.Millisecond

// rest waits until the program has done all that it still does after its last event.
func (s *subject) rest(ctx context.Context) error {
	if s.state {
		select {
		case <-time.After(storing):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.Quiet(ctx, time.Minute)
}

// burst starts a program, waits until it has announced all objects, sends changes and
// measures.
func (b *bench) burst(ctx context.Context, s setup, changes control.Changes) (r burst, err error) {
	sub, err := b.start(ctx, s)
	if err != nil {
		return burst{}, err
	}
	defer func() { err = sub.end(ctx, err) }()
	if _, _, err := sub.awaitAnnounced(ctx); err != nil {
		return burst{}, err
	}
	return sub.burst(ctx, changes)
}

// burst sends changes to a program that has announced all objects.
func (s *subject) burst(ctx context.Context, changes control.Changes) (r burst, err error) {
	b := s.bench
	if err := b.server.Prepare(ctx, changes); err != nil {
		return r, err
	}
	if err := s.rest(ctx); err != nil {
		return r, err
	}
	// What asking costs is taken out of the allocations.
	asked, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	before, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	question := counts{mallocs: before.mallocs - asked.mallocs, allocated: before.allocated - asked.allocated}
	questions := 0.0
	stored, err := s.place.stored(ctx)
	if err != nil {
		return r, err
	}
	used, err := s.usage()
	if err != nil {
		return r, err
	}
	peak := s.Peak()
	defer peak()
	if err := s.beginProfile(ctx); err != nil {
		return r, err
	}

	sent, err := b.server.Send(ctx)
	if err != nil {
		return r, errors.Join(err, s.Ended())
	}
	var ended time.Time
	err = until(ctx, "acknowledgements", patience, func() (bool, error) {
		questions++
		c, err := s.counts(ctx)
		ended = time.Now()
		return c.acknowledged >= before.acknowledged+float64(changes.Count), err
	})
	if err != nil {
		return r, err
	}
	if err := s.rest(ctx); err != nil {
		return r, err
	}
	usedAfter, err := s.usage()
	if err != nil {
		return r, err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	questions++
	if err := s.endProfile(ctx); err != nil {
		return r, err
	}
	if err := s.crossCheck(ctx, stored, changes.Count, after.folded-before.folded); err != nil {
		return r, err
	}
	n := float64(changes.Count)
	return burst{
		perSecond: n / ended.Sub(sent.Began).Seconds(),
		cpu:       (usedAfter.program - used.program) / n,
		allocs:    (after.mallocs - before.mallocs - questions*question.mallocs) / n,
		allocated: (after.allocated - before.allocated - questions*question.allocated) / n,
		peak:      float64(peak()) / mebibyte,
		server:    (usedAfter.server - used.server) / n,
		broker:    (usedAfter.broker - used.broker) / n,
	}, nil
}

// usage is what the processes have used so far, in µs.
type usage struct{ program, server, broker float64 }

func (s *subject) usage() (u usage, err error) {
	read := func(pid int) float64 {
		used, problem := process.CPU(pid)
		err = errors.Join(err, problem)
		return float64(used.Nanoseconds()) / 1000
	}
	u.program, u.server = read(s.PID()), read(s.bench.cluster.child.PID())
	if broker := s.place.broker(); broker != 0 {
		u.broker = read(broker)
	}
	return u, err
}

// crossCheck compares what the program says with what the broker has.
func (s *subject) crossCheck(ctx context.Context, before int64, changes int, folded float64) error {
	if folded > 0 {
		s.bench.current.Note("%s: changes were folded, which makes events fewer than changes", s.place.settings())
	}
	if before < 0 {
		return nil
	}
	after, err := s.place.stored(ctx)
	if err != nil {
		return err
	}
	if got := after - before; got != int64(changes)-int64(folded) {
		return fmt.Errorf("the program says that %v of %d changes were acknowledged, and the broker has %d", changes-int(folded), changes, got)
	}
	return nil
}
