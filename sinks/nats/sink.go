// Package nats owns the way of events into a NATS JetStream stream: the
// connection, the stream's presence and settings, the messages, and the
// stream's acknowledgements. Retries of events are left to the lanes of package
// bridge; the settings are package config's.
//
// One connection is one session. When it ends, everything under way gets an
// error, and a new session begins; nothing is carried over, so nothing is resent
// behind the lane's back. The client library's own reconnecting, buffering and
// publishing with retries are not used: each of them can reorder, or keep what
// the lane has already given up.
package nats

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/cause"
	"github.com/kbridge-io/kbridge/sinks"
)

// Sink publishes events to one JetStream stream.
type Sink struct {
	name    string
	cfg     config.NATS
	urls    []server
	subject *event.Template
	log     *slog.Logger
	// ackPrefix is what a plain acknowledgement of the stream begins with.
	ackPrefix []byte

	stop context.CancelFunc // ends run

	mu         sync.Mutex    // guards what follows, and the sessions' state
	session    *session      // the one that takes events; nil: Publish waits
	discovered []server      // of the server's cluster, beside urls
	changed    chan struct{} // closed and replaced when session is set
	held       sinks.Held
	cause      error         // why session is nil
	refused    sinks.Refused // by subject
	logged     string        // the failure that was logged last; empty when there is none
	notes      []note        // what was logged about the stream
	window     window
	largest    int // size of the largest event that was acknowledged
	stats      Stats
}

var (
	_ sinks.Sink    = (*Sink)(nil)
	_ sinks.Failing = (*Sink)(nil)
)

// Stats are a sink's numbers since it was opened.
type Stats struct {
	Connects uint64 // connections that were established
	Failures sinks.Failures
	InFlight int // events handed to the server and not acknowledged
	Bytes    int // their size
	Window   int // how many may be
}

// Open checks the settings and begins to connect in the background: an
// unreachable server is not an error here but one of Err, and Publish waits
// until it can be reached. The context bounds the sink's life as Close does.
func Open(ctx context.Context, name string, cfg config.NATS, log *slog.Logger) (*Sink, error) {
	subject, err := event.NATSSubject(cfg.Subject)
	if err != nil {
		return nil, fmt.Errorf("sink %s: subject: %w", name, err)
	}
	if cfg.Stream.Name == "" || strings.ContainsAny(cfg.Stream.Name, ".*> \t\r\n/\\") {
		return nil, fmt.Errorf("sink %s: stream: %q is no name of a stream", name, cfg.Stream.Name)
	}
	urls, err := parseURLs(cfg.URLs)
	if err != nil {
		return nil, fmt.Errorf("sink %s: urls: %w", name, err)
	}
	if cfg.AckTimeout <= 0 {
		cfg.AckTimeout = config.DefaultNATS().AckTimeout
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Sink{
		name: name, cfg: cfg, urls: urls, subject: subject, log: log.With("sink", name),
		ackPrefix: []byte(`{"stream":"` + cfg.Stream.Name + `","seq":`),
		stop:      stop, changed: make(chan struct{}),
		cause: fmt.Errorf("not connected to %s yet", urls[0]), logged: "not connected yet",
		window: newWindow(cfg.AckTimeout), refused: sinks.NewRefused(cfg.AckTimeout),
	}
	s.held = sinks.NewHeld(&s.mu)
	go func() {
		defer s.held.End()
		s.run(ctx)
	}()
	return s, nil
}

// Name returns the sink's name in the configuration.
func (s *Sink) Name() string { return s.name }

// Publish hands the event to the session's sender. It waits while there is no
// connection or no stream, and while the window is full. An event that the
// server cannot take gets its error from the sender.
func (s *Sink) Publish(ctx context.Context, e *event.Event, done func(error)) {
	size := len(e.Value)
	err := s.held.Enter(ctx, func() (again <-chan struct{}) {
		switch {
		case s.session == nil:
			return s.changed
		case !s.held.Fits(size, s.window.size, windowBytes):
			return s.held.Room()
		}
		s.held.Add(size)
		s.session.queue <- item{e, done, size} // has room: as long as the window
		return nil
	})
	if err != nil {
		done(sinks.GivenUp(err, s.Err()))
	}
}

// Err returns nil when events can be delivered now, else the cause: there is no
// connection, no stream, or the stream refuses what it gets.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		return s.cause
	}
	return s.refused.Err(time.Now())
}

// Stats returns the sink's numbers.
func (s *Sink) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.InFlight, st.Bytes, st.Window = s.held.Events, s.held.Bytes, s.window.size
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

// Close waits for the acknowledgements that are still to come, until ctx ends,
// then ends the connection. What is not acknowledged by then gets sinks.ErrClosed.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.held.Shut()
	s.mu.Unlock()
	if err := s.held.Drain(ctx, s.stop); err != nil {
		return fmt.Errorf("close sink %s: %w", s.name, err)
	}
	return nil
}

// run keeps a session alive until ctx ends.
func (s *Sink) run(ctx context.Context) {
	var pause sinks.Backoff
	for {
		ses, err := s.connect(ctx)
		if err == nil {
			err = ses.serve(ctx, &pause)
			if ctx.Err() == nil {
				s.count(&s.stats.Failures.Connect)
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.failed(err)
		if !pause.Wait(ctx, nil) {
			return
		}
	}
}

// release lets Publish use the session.
func (s *Sink) release(ses *session) {
	s.mu.Lock()
	if ses.err != nil {
		s.mu.Unlock()
		return
	}
	s.session, s.cause = ses, nil
	close(s.changed)
	s.changed = make(chan struct{})
	news := s.logged != ""
	s.logged = ""
	s.mu.Unlock()
	if news {
		s.log.Info("connected", "server", ses.server.String(), "stream", s.cfg.Stream.Name, "maxPayload", maxPayload(ses.nc, s.cfg))
	}
}

// failed notes why nothing can be published. A cause that repeats is logged once.
func (s *Sink) failed(err error) {
	key := cause.Of(err)
	s.mu.Lock()
	s.cause = err
	news := s.logged != key
	s.logged = key
	s.mu.Unlock()
	if news {
		s.log.Warn("cannot publish, trying again", "error", err)
	}
}
