package monitor

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// startDebug serves Go's profiles on a port of its own, on the loopback interface. The
// address from which a request comes would not do: behind a proxy in the same pod all of
// them come from there.
func (s *Server) startDebug() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		var err6 error
		if listener, err6 = net.Listen("tcp", "[::1]:0"); err6 != nil {
			return fmt.Errorf("serve profiles: %w (server.debug in the configuration)", errors.Join(err, err6))
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	most := s.limits
	most.connections, most.write = 16, 5*time.Minute // a profile takes as long as it is asked for
	s.serve(listener, mux, most)
	return nil
}
