// Package monitor owns the HTTP server that says how the process is: metrics, health,
// readiness, the status and the page that shows it. Whatever reaches its port, it takes a
// bounded part of the process's memory and file descriptors, and answers the kubelet; who
// may see more than the probes is up to the configuration.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kbridge-io/kbridge/internal/status"
)

// Options say where the server listens, and what it tells.
type Options struct {
	Address  string
	Access   *Access
	Registry *prometheus.Registry
	// Problems says what is wrong now; for /readyz, which tells what of it makes the
	// process unready. It is called for each request, by any goroutine, and must not block.
	Problems func() []status.Problem
	// Status is the whole document; the same holds for it.
	Status func() status.Status
	// Tail has the last events while pages are open.
	Tail *status.Tail
	Log  *slog.Logger
}

// Server answers /, /statusz, /events, /metrics, /healthz and /readyz.
type Server struct {
	options    Options
	limits     limits
	turnedAway *prometheus.CounterVec
	endpoints  []*endpoint
	stopping   chan struct{} // closed when streams are to end
	stop       sync.Once
}

// endpoint is a port with what answers there.
type endpoint struct {
	http     *http.Server
	listener net.Listener
	done     chan error
}

// limits are what clients can take of the server.
type limits struct {
	connections int
	header      int // bytes
	// Requests in flight: of all clients, and of each. Probes need no limit: they take no
	// time, and their answer fits into a socket's buffer, so that nobody can hold them up.
	scrapes, pages, streams share
	// readHeader, read and write are from a request's beginning, idle is between two.
	readHeader, read, write, idle time.Duration
	// A stream sends every streamTick, and each time has streamWrite for it. After streamLife
	// a browser has to ask again, and who may not any more is not let in.
	streamTick, streamWrite, streamLife time.Duration
}

// share bounds the requests of a kind that are in flight: of all clients, and of each.
type share struct{ all, each int }

// defaultLimits leave room for the replicas of a few scrapers, which keep a connection
// each, and for a few people who look.
var defaultLimits = limits{
	connections: 128, header: 8 << 10,
	scrapes: share{8, 2}, pages: share{8, 4}, streams: share{8, 4},
	readHeader: 5 * time.Second, read: 10 * time.Second, write: 30 * time.Second, idle: 2 * time.Minute,
	streamTick: time.Second, streamWrite: 10 * time.Second, streamLife: 5 * time.Minute,
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) { return start(o, defaultLimits) }

func start(o Options, most limits) (*Server, error) {
	s := &Server{options: o, limits: most, stopping: make(chan struct{}), turnedAway: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kbridge_http_turned_away_total",
		Help: "Of this HTTP server: connections that were closed to make room for others, requests beyond those that may be in flight, and requests of who may not read.",
	}, []string{"reason"})}
	o.Registry.MustRegister(s.turnedAway)
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics and health: %w (server.address in the configuration)", err)
	}
	s.serve(listener, s.newMux(), most)
	if o.Access.debug {
		if err := s.startDebug(); err != nil {
			return nil, errors.Join(err, s.Close(context.Background()))
		}
	}
	return s, nil
}

// serve answers what comes to the listener, within limits, for those who may read.
func (s *Server) serve(listener net.Listener, handler http.Handler, most limits) {
	conns := limitConnections(listener, most.connections, s.turnedAway.WithLabelValues("connections"))
	e := &endpoint{
		http: &http.Server{
			Handler:           busy(s.options.Access.guard(handler, s.turnedAway.WithLabelValues("unauthorized"))),
			ConnContext:       remember,
			ReadHeaderTimeout: most.readHeader,
			ReadTimeout:       most.read,
			WriteTimeout:      most.write,
			IdleTimeout:       most.idle,
			MaxHeaderBytes:    most.header,
			ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelWarn),
		},
		listener: listener,
		done:     make(chan error, 1),
	}
	s.endpoints = append(s.endpoints, e)
	go func() { e.done <- e.http.Serve(s.options.Access.listen(conns)) }()
}

func (s *Server) newMux() *http.ServeMux {
	mux, most := http.NewServeMux(), s.limits
	bounded := func(next http.Handler, in share) http.Handler {
		return limitInFlight(next, in.all, in.each, s.turnedAway.WithLabelValues("requests"))
	}
	scrape := promhttp.HandlerFor(s.options.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	mux.Handle("GET /metrics", bounded(scrape, most.scrapes))
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", servePage)
	pages.HandleFunc("GET /statusz", s.serveStatus)
	boundedPages := bounded(pages, most.pages)
	mux.Handle("GET /{$}", boundedPages)
	mux.Handle("GET /statusz", boundedPages)
	mux.Handle("GET /events", bounded(http.HandlerFunc(s.serveEvents), most.streams))
	// Alive means that the process answers: a broker or an API server that is away is
	// waited for, and a restart would mend neither.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.serveReady)
	return mux
}

// isProbe says of a path that everybody may read it.
func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" }

func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	ready := true
	for _, p := range s.options.Problems() {
		if !p.Unready {
			continue
		}
		if ready {
			ready = false
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, p)
	}
	if ready {
		fmt.Fprintln(w, "ok")
	}
}

// Address is where the server listens, with the port that the kernel picked.
func (s *Server) Address() string { return s.endpoints[0].listener.Addr().String() }

// DebugAddress is where the profiles are served, or empty.
func (s *Server) DebugAddress() string {
	if len(s.endpoints) < 2 {
		return ""
	}
	return s.endpoints[1].listener.Addr().String()
}

// Close ends the server and waits for it. Streams end at once, other requests in flight
// have until ctx ends. That a client does not let go of its connection is no error of ours.
func (s *Server) Close(ctx context.Context) error {
	s.stop.Do(func() { close(s.stopping) })
	var errs []error
	for _, e := range s.endpoints {
		if e.http.Shutdown(ctx) != nil {
			errs = append(errs, e.http.Close())
		}
		if served := <-e.done; !errors.Is(served, http.ErrServerClosed) {
			errs = append(errs, served)
		}
	}
	return errors.Join(errs...)
}
