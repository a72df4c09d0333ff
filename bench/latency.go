//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/bench/report"
)

// What is measured of changes at a steady rate.
var (
	latency50  = report.Metric{Name: "p50", Unit: "ms"}
	latency99  = report.Metric{Name: "p99", Unit: "ms"}
	latency999 = report.Metric{Name: "p99.9", Unit: "ms"}
)

// arrivals are the ages of changes when they arrive: the time is in the frame that the
// API server wrote, and both clocks are this machine's.
type arrivals struct {
	mu   sync.Mutex
	ages []float64 // milliseconds
	err  error     // of the first message that does not say when it was sent
}

// see notes one message. What no paced change made has no age: objects of the first
// list, and the two ends of a snapshot.
func (a *arrivals) see(message []byte) {
	now := time.Now().UnixNano()
	sent, err := objects.SentAt(message)
	if errors.Is(err, objects.ErrNoTime) || err == nil && sent == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && a.err == nil {
		a.err = err
	}
	a.ages = append(a.ages, float64(now-sent)/1e6)
}

// all returns the ages so far.
func (a *arrivals) all() ([]float64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ages[:len(a.ages):len(a.ages)], a.err
}

// await waits until so many have arrived.
func (a *arrivals) await(ctx context.Context, n int) ([]float64, error) {
	var ages []float64
	err := until(ctx, fmt.Sprintf("arrival of %d changes", n), time.Minute, func() (ok bool, err error) {
		ages, err = a.all()
		return len(ages) >= n, err
	})
	if err != nil {
		return nil, fmt.Errorf("%w; %d arrived", err, len(ages))
	}
	return ages, nil
}

// latency measures how old changes are when they arrive at the place, at the plan's rate.
func (b *bench) latency(ctx context.Context, name string, s setup) (err error) {
	var seen arrivals
	s.follow = seen.see
	sub, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = sub.end(ctx, err) }()
	if _, _, err := sub.awaitAnnounced(ctx); err != nil {
		return err
	}
	if err := sub.rest(ctx); err != nil {
		return err
	}
	count := int(b.plan.latency.Seconds() * float64(b.perSecond))
	if err := sub.beginProfile(ctx); err != nil {
		return err
	}
	if _, err := b.server.Pace(ctx, control.Paced{Changes: control.Changes{Count: count}, PerSecond: b.perSecond}); err != nil {
		return errors.Join(err, sub.Ended())
	}
	ages, err := seen.await(ctx, count)
	if err != nil {
		return errors.Join(err, sub.Ended())
	}
	if err := sub.endProfile(ctx); err != nil {
		return err
	}
	b.current.Add(name, latency50, report.Percentile(ages, 50))
	b.current.Add(name, latency99, report.Percentile(ages, 99))
	b.current.Add(name, latency999, report.Percentile(ages, 99.9))
	return nil
}
