package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/bridge"
	"github.com/kbridge-io/kbridge/internal/tracing"
)

const (
	// closeWithin is how long the process may take beyond its grace period, whatever
	// hangs: a signal that nothing survives may follow.
	closeWithin = 2 * time.Second
	// leastWait is what each step of a stop gets where there is no time left.
	leastWait = 250 * time.Millisecond
	// lastWords is what is left to those who say what hangs.
	lastWords = time.Second
)

// errHangs is the error of a step that takes longer than there is time for.
var errHangs = errors.New("hangs and is left behind")

// await returns what do returns, or an error that names it where it has not ended by
// then. It is left behind in that case: the process ends without it.
func await(name string, by time.Time, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(max(time.Until(by), leastWait)):
		return fmt.Errorf("stop: %s %w", name, errHangs)
	}
}

// within returns what do returns, or an error where it has not ended so long after ctx.
// It is for what hangs before there is anything to stop: a lock, a disk.
func within(ctx context.Context, after time.Duration, do func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(after):
		return fmt.Errorf("stop: something that has no name here %w, %s after the signal", errHangs, after)
	}
}

// stopping makes a step of what returns nothing.
func stopping(stop func()) func() error {
	return func() error {
		stop()
		return nil
	}
}

// end is when what is left to put away should be.
func (d *daemon) end() time.Time {
	if d.until.IsZero() {
		return time.Now().Add(closeWithin)
	}
	return d.until
}

// stop ends what runs, in order: the watches, which were told to stop reading; the lanes,
// when they are empty or there is no more time for it; the state, which does not wait for
// what hangs; and the sinks. By closeWithin after the grace period all is over. cause is the
// error for which it stops, or nil.
func (d *daemon) stop(cause error, stopPublishing func(), watches, lanes, keeping *sync.WaitGroup) error {
	over := time.Now().Add(d.grace)
	d.until = over.Add(closeWithin)
	d.log.Info("stopping: publishing what was read", "within", d.grace)
	ctx, cancel := context.WithDeadlineCause(context.Background(), over.Add(-d.reserve()), fmt.Errorf("of the grace period of %s there is no more left for it", d.grace))
	defer cancel()
	// A watch may wait for room to hand over the last delta it read. The lanes still
	// publish, so it gets it, or the end of ctx ends the wait.
	defer context.AfterFunc(ctx, stopPublishing)()
	errs := []error{await("a watch", over.Add(leastWait), stopping(watches.Wait))}
	errs = append(errs, d.eachOutput("draining", over.Add(leastWait), func(o *output) error { return o.drain(ctx, d.keeper != nil) })...)
	left := d.left(errs)
	stopPublishing()
	rested := make(chan struct{})
	go func() { lanes.Wait(); close(rested) }()
	select {
	case <-rested:
	case <-time.After(leastWait):
	}
	if d.keeper != nil {
		errs = append(errs, await("storing the state", d.until.Add(-2*leastWait), func() error {
			keeping.Wait()
			return d.keeper.Store()
		}))
	}
	errs = append(errs, await("a lane", d.until.Add(-leastWait), func() error { <-rested; return nil }))
	errs = append(errs, d.eachOutput("closing", d.until, (*output).close)...)
	err := errors.Join(errs...)
	switch {
	case err != nil, cause != nil: // that is the last word
	case left.events+left.objects > 0:
		d.log.Info("stopped: the next start goes on with what is not delivered", "events", left.events, "objects", left.objects)
	default:
		d.log.Info("stopped: all that was read is dealt with")
	}
	return err
}

// reserve is what of the grace period is kept for the state: the slower the disk, the
// more would come again after the next start.
func (d *daemon) reserve() time.Duration {
	if d.keeper == nil {
		return 0
	}
	return d.grace / 5
}

// endTracing exports the spans that are left. That it can not is no error of a stop: all
// that was read is dealt with.
func (d *daemon) endTracing(tracer *tracing.Tracer) {
	err := await("exporting spans", time.Now().Add(2*leastWait), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), leastWait)
		defer cancel()
		return tracer.Close(ctx)
	})
	if err != nil {
		d.log.Warn("the last spans are not exported", "err", err)
	}
}

// close ends the sink, and the dead letters' connection where they have one. Nothing is
// under way that is worth waiting for.
func (o *output) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), leastWait)
	defer cancel()
	err := o.sink.Close(ctx)
	if dead, ok := o.dead.(interface{ Close() }); ok {
		dead.Close()
	}
	return err
}

// eachOutput does something with all outputs at once.
func (d *daemon) eachOutput(what string, by time.Time, do func(*output) error) []error {
	errs := make([]error, len(d.outputs))
	var all sync.WaitGroup
	for i, o := range d.outputs {
		all.Go(func() {
			errs[i] = await(what+" sink "+o.entry.Name, by, func() error { return do(o) })
		})
	}
	all.Wait()
	return errs
}

// undelivered is what the sinks have not received when a daemon ends.
type undelivered struct{ events, objects int }

// left counts what the lanes have left. Where there is state that is in it, or will come
// again from the API server: it is told, and is no error.
func (d *daemon) left(errs []error) (all undelivered) {
	if d.keeper == nil {
		return all
	}
	for i, err := range errs {
		var left *bridge.LeftError
		if errors.As(err, &left) {
			d.log.Warn("not all that was read is delivered", "sink", left.Sink, "events", left.Events, "objects", left.Behind, "cause", left.Cause)
			all.events += left.Events
			errs[i] = nil
		}
	}
	for _, o := range d.outputs {
		all.objects += o.lane.Behind()
	}
	return all
}
