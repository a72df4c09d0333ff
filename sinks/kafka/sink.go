// Package kafka owns the way of events into a Kafka cluster: connections and logins,
// topics and their settings, partitions, batches, and the brokers' acknowledgements.
// Retries of events are left to the lanes of package bridge; the settings are package
// config's.
//
// Of the client library it uses the protocol and the login mechanisms, one connection
// at a time. The library's own pool of connections is not used: it can be read from
// after its caller has gone, knows a new leader only when its cached metadata is old,
// and has no deadline for logins. Nor is its writer: it cannot tell the errors of a
// batch's records apart, and goes on behind a batch that it has given up.
//
// What runs: one goroutine that knows the cluster (run), up to three workers for each
// broker that leads a partition (broker.work), and one that gives up what waits for
// too long (sweep). A partition has one batch under way at a time.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

const (
	// windowEvents and windowBytes bound what the sink holds. The lane's own window
	// bounds what waits; this one is enough for full batches to all partitions.
	windowEvents = 16384
	windowBytes  = 32 << 20
)

// Sink publishes events to the topics of one Kafka cluster.
type Sink struct {
	name   string
	cfg    config.Kafka
	topic  *event.Template
	log    *slog.Logger
	dialer *dialer

	stop    context.CancelFunc // ends run
	ask     chan struct{}      // has a token when run should look at the cluster
	workers sync.WaitGroup

	mu       sync.Mutex // guards what follows, and all topics, partitions and brokers
	known    bool       // the cluster's brokers are known; false: Publish waits
	changed  chan struct{}
	held     sinks.Held
	brokers  map[int32]*broker
	topics   map[string]*topic
	scratch  []byte   // a topic's name
	producer producer // who we are to the brokers
	problems problems
	free     *item
	stats    Stats
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Failing = (*Sink)(nil)
)

// Stats are a sink's numbers since it was opened.
type Stats struct {
	Connects uint64 // connections that were established
	Failures sinks.Failures
	Batches  uint64 // batches that were acknowledged
	Records  uint64 // records in them, tombstones and markers included
	Sent     uint64 // their bytes, compressed
	InFlight int    // events that the sink holds
	Bytes    int    // about how large they are
}

// Open checks the settings and begins to connect in the background: an unreachable
// cluster is not an error here but one of Err, and Publish waits until it can be
// reached. The context bounds the sink's life as Close does.
func Open(ctx context.Context, name string, cfg config.Kafka, log *slog.Logger) (*Sink, error) {
	template, err := event.KafkaTopic(cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("sink %s: topic: %w", name, err)
	}
	if len(cfg.Brokers) == 0 {
		return nil, fmt.Errorf("sink %s: brokers: none is given", name)
	}
	if _, err := newEncoder(cfg.Compression); err != nil {
		return nil, fmt.Errorf("sink %s: compression: %w", name, err)
	}
	fill := config.DefaultKafka()
	if cfg.AckTimeout <= 0 {
		cfg.AckTimeout = fill.AckTimeout
	}
	if cfg.BatchBytes <= 0 {
		cfg.BatchBytes = fill.BatchBytes
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Sink{
		name: name, cfg: cfg, topic: template, log: log.With("sink", name),
		dialer: newDialer(cfg, "kbridge/"+name),
		stop:   stop, ask: make(chan struct{}, 1), changed: make(chan struct{}),
		brokers: make(map[int32]*broker), topics: make(map[string]*topic),
		producer: producer{id: noProducer, wanted: cfg.Acks == config.AcksAll},
	}
	s.held = sinks.NewHeld(&s.mu)
	s.problems.init()
	s.problems.note(problemCluster, fmt.Errorf("not connected to %s yet", cfg.Brokers[0]))
	s.warnAcks()
	s.workers.Go(func() { s.sweep(ctx) })
	go func() {
		defer s.held.End()
		s.run(ctx)
		stop() // ends the workers, if it was not that
		s.workers.Wait()
		s.abandon()
	}()
	return s, nil
}

func (s *Sink) warnAcks() {
	switch s.cfg.Acks {
	case config.AcksOne:
		s.log.Warn("acks: what only the leader has is lost, though acknowledged, when that broker fails", "acks", s.cfg.Acks)
	case config.AcksNone:
		s.log.Warn("acks: without acknowledgements events are lost unnoticed", "acks", s.cfg.Acks)
	}
}

// Name returns the sink's name in the configuration.
func (s *Sink) Name() string { return s.name }

// Publish puts the event into the batch of its partition. It waits while the cluster
// is not known and while the window is full. An event for a partition that has been
// without a leader, or for a topic that is absent, is held for a moment and then gets
// its error, so that the events of other topics pass it.
func (s *Sink) Publish(ctx context.Context, e *event.Event, done func(error)) {
	var ends []ended
	err := s.held.Enter(ctx, func() (again <-chan struct{}) {
		switch {
		case !s.known:
			return s.changed
		case !s.held.Fits(len(e.Value), windowEvents, windowBytes):
			return s.held.Room()
		}
		ends = s.accept(e, done)
		return nil
	})
	if err != nil {
		done(sinks.GivenUp(err, s.Err()))
	}
	for _, end := range ends {
		end.call()
	}
}

// Err returns nil when events can be delivered now, else the cause: no broker answers,
// a topic is absent, a partition refuses what it gets.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems.err()
}

// Stats returns the sink's numbers.
func (s *Sink) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.InFlight, st.Bytes = s.held.Events, s.held.Bytes
	return st
}

// Failures implements sinks.Failing.
func (s *Sink) Failures() sinks.Failures {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Failures
}

// count counts a failure.
func (s *Sink) count(kind *uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*kind++
}

// dial connects to a broker, and counts where that fails.
func (s *Sink) dial(ctx context.Context, address string) (*conn, error) {
	c, err := s.dialer.dial(ctx, address)
	if err != nil && ctx.Err() == nil {
		s.count(&s.stats.Failures.Connect)
	}
	return c, err
}

// Close sends what is held and waits for the acknowledgements that are still to come,
// until ctx ends, then ends the connections. What is not acknowledged by then gets
// sinks.ErrClosed.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.held.Shut()
	for _, b := range s.brokers {
		b.nudge() // nothing lingers any more
	}
	s.mu.Unlock()
	if err := s.held.Drain(ctx, s.stop); err != nil {
		return fmt.Errorf("close sink %s: %w", s.name, err)
	}
	return nil
}

// abandon ends everything that is held. Nothing else of the sink runs any more.
func (s *Sink) abandon() {
	s.mu.Lock()
	s.held.Shut()
	var ends []ended
	for _, t := range s.topics {
		for _, q := range t.queues() {
			ends = s.drop(ends, q, sinks.ErrClosed)
		}
	}
	s.problems.note(problemCluster, sinks.ErrClosed)
	s.mu.Unlock()
	for _, end := range ends {
		end.call()
	}
}

// report notes a problem. One that is there already is not logged again.
func (s *Sink) report(key string, err error) {
	s.mu.Lock()
	news := s.problems.note(key, err)
	s.mu.Unlock()
	if news {
		s.log.Warn("cannot publish, trying again", "error", err)
	}
}

// mended notes that a problem is over.
func (s *Sink) mended(key string) {
	s.mu.Lock()
	err := s.problems.over(key)
	s.mu.Unlock()
	if err != nil {
		s.log.Info("resolved, publishing again", "was", err)
	}
}

// wantCluster makes run look at the cluster soon.
func (s *Sink) wantCluster() {
	select {
	case s.ask <- struct{}{}:
	default:
	}
}

var errGone = errors.New("the broker is not part of the cluster any more")
