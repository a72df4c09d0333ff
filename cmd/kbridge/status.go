package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/bridge"
	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/monitor"
	"github.com/kbridge-io/kbridge/internal/status"
)

// selected is one entry of `resources`: its informer, and the feeds of its watches, which
// know what the sinks have of it.
type selected struct {
	informer *informer.Informer

	mu    sync.Mutex
	feeds []*bridge.Feed
}

func (s *selected) add(f *bridge.Feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeds = append(s.feeds, f)
}

func (s *selected) status(now time.Time) status.Resource {
	r := s.informer.Status()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds {
		r.LagSeconds = max(r.LagSeconds, f.Lag(now).Seconds())
	}
	return r
}

// serve starts the HTTP server, if the configuration has one. The function that it
// returns ends it.
func (d *daemon) serve(reg *prometheus.Registry, log *slog.Logger) (stop func() error, err error) {
	if d.cfg.Server.Address == "" {
		return func() error { return nil }, nil
	}
	access, err := monitor.NewAccess(d.cfg.Server, log)
	if err != nil {
		return nil, err
	}
	d.access = access
	sampler := status.NewSampler(d.status)
	server, err := monitor.Start(monitor.Options{
		Address: d.cfg.Server.Address, Access: access, Registry: reg,
		Problems: d.problems, Status: sampler.Status, Tail: d.tail, Log: log,
	})
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics and health", "address", server.Address())
	if debug := server.DebugAddress(); debug != "" {
		log.Info("serving profiles at /debug/pprof/", "address", debug)
		d.mu.Lock()
		d.debug = debug
		d.mu.Unlock()
	}
	ctx, end := context.WithCancel(context.Background())
	var sampling sync.WaitGroup
	sampling.Go(func() { sampler.Run(ctx) })
	return func() error {
		end()
		sampling.Wait()
		closing, cancel := context.WithTimeout(context.Background(), 2*leastWait)
		defer cancel()
		return server.Close(closing)
	}, nil
}

// status is how everything is now. It does not wait for anything.
func (d *daemon) status() status.Status {
	problems := d.problems()
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	doc := status.Status{
		Time: now.UTC(), Version: version, Started: d.started, Cluster: d.name, Server: d.server, Debug: d.debug,
		Ready: unready(problems) == 0, Problems: append([]status.Problem{}, problems...),
		Resources: []status.Resource{}, Sinks: []status.Sink{},
	}
	for i, r := range d.cfg.Resources {
		if i < len(d.selected) {
			doc.Resources = append(doc.Resources, d.selected[i].status(now))
		} else {
			doc.Resources = append(doc.Resources, status.Resource{Entry: d.names[i], Resource: r.GroupResource(), Namespaces: r.Namespaces, Phase: status.Starting})
		}
	}
	for i, entry := range d.sinks {
		sink := status.Sink{Name: entry.Name}
		if i < len(d.outputs) {
			sink = d.outputs[i].status(now)
		}
		sink.Kind, sink.Target = target(entry)
		doc.Sinks = append(doc.Sinks, sink)
	}
	if d.cfg.State != nil {
		doc.State = &status.State{}
		if d.keeper != nil {
			doc.State = d.keeper.Status()
		}
		doc.State.Dir = d.cfg.State.File.Dir
	}
	return doc
}

func (o *output) status(now time.Time) status.Sink {
	s := o.lane.Status(now)
	s.DeadLetters.Target = o.deadLetterTarget
	if err := errors.Join(o.sink.Err(), o.dead.Err()); err != nil {
		s.Error = oneLine(err)
	}
	return s
}

// target says of which kind a sink is, and where its events go.
func target(s config.Sink) (kind, target string) {
	switch {
	case s.NATS != nil:
		return "nats", strings.Join(s.NATS.URLs, ", ") + ", stream " + s.NATS.Stream.Name
	case s.Kafka != nil:
		return "kafka", strings.Join(s.Kafka.Brokers, ", ") + ", topic " + s.Kafka.Topic
	default:
		return "stdout", ""
	}
}
