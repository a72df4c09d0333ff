// Package monitor owns the HTTP server that says how the process is: metrics,
// health and readiness. Whatever reaches its port, it takes a bounded part of the
// process's memory and file descriptors, and answers the kubelet.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Server answers /metrics, /healthz and /readyz.
type Server struct {
	http     *http.Server
	listener net.Listener
	done     chan error
}

// limits are what clients can take of the server.
type limits struct {
	connections int
	header      int // bytes
	// Scrapes in flight: of all clients, and of each. Probes need no limit: they take no
	// time, and their answer fits into a socket's buffer, so that nobody can hold them up.
	scrapes, scrapesEach int
	// readHeader, read and write are from a request's beginning, idle is between two.
	readHeader, read, write, idle time.Duration
}

// defaultLimits leave room for the replicas of a few scrapers, which keep a connection
// each.
var defaultLimits = limits{
	connections: 128, header: 8 << 10,
	scrapes: 8, scrapesEach: 2,
	readHeader: 5 * time.Second, read: 10 * time.Second, write: 30 * time.Second, idle: 2 * time.Minute,
}

// Start listens on address and serves until Close. ready returns what keeps the
// process from doing its work, nothing if nothing does; it is called for each
// request to /readyz and must not block.
func Start(address string, reg *prometheus.Registry, ready func() []error, log *slog.Logger) (*Server, error) {
	return start(address, defaultLimits, reg, ready, log)
}

func start(address string, most limits, reg *prometheus.Registry, ready func() []error, log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics and health: %w (server.address in the configuration)", err)
	}
	turnedAway := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kbridge_http_turned_away_total",
		Help: "Connections of this HTTP server that were closed to make room for others, and requests beyond those that may be in flight.",
	}, []string{"reason"})
	reg.MustRegister(turnedAway)
	conns := limitConnections(listener, most.connections, turnedAway.WithLabelValues("connections"))
	refused := turnedAway.WithLabelValues("requests")
	s := &Server{
		http: &http.Server{
			Handler:           busy(newMux(most, reg, ready, refused)),
			ConnContext:       conns.remember,
			ReadHeaderTimeout: most.readHeader,
			ReadTimeout:       most.read,
			WriteTimeout:      most.write,
			IdleTimeout:       most.idle,
			MaxHeaderBytes:    most.header,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		listener: conns,
		done:     make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(conns) }()
	return s, nil
}

func newMux(most limits, metrics prometheus.Gatherer, ready func() []error, refused prometheus.Counter) *http.ServeMux {
	mux := http.NewServeMux()
	scrape := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	mux.Handle("GET /metrics", limitInFlight(scrape, most.scrapes, most.scrapesEach, refused))
	// Alive means that the process answers: a broker or an API server that is away is
	// waited for, and a restart would mend neither.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		problems := ready()
		if len(problems) == 0 {
			fmt.Fprintln(w, "ok")
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		for _, err := range problems {
			fmt.Fprintln(w, err)
		}
	})
	return mux
}

// Address is where the server listens, with the port that the kernel picked.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close ends the server and waits for it. Requests in flight have until ctx ends. That a
// client does not let go of its connection is no error of ours.
func (s *Server) Close(ctx context.Context) error {
	var err error
	if s.http.Shutdown(ctx) != nil {
		err = s.http.Close()
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
