// Package monitor owns the HTTP server that says how the process is: metrics,
// health and readiness.
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

// Start listens on address and serves until Close. ready returns what keeps the
// process from doing its work, nothing if nothing does; it is called for each
// request to /readyz and must not block.
func Start(address string, metrics prometheus.Gatherer, ready func() []error, log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics and health: %w (server.address in the configuration)", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
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
	s := &Server{
		http: &http.Server{
			Handler:           mux,
			ReadHeaderTimeout: 5 * time.Second,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		},
		listener: listener,
		done:     make(chan error, 1),
	}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// Address is where the server listens, with the port that the kernel picked.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close ends the server and waits for it.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
