// Package scriptedapi is a Kubernetes API server for tests that does on demand what a real one does rarely:
// it forgets its history, cuts a watch inside a frame, goes back in time, answers 500 to the list after a 410.
//
// It owns the protocol: paths, lists, watches, versions, discovery, statuses, and the faults. What a client makes
// of them is left to the tests that use it, and how a healthy cluster behaves to a real server.
//
// It speaks HTTP/1.1 over net.Pipe, so that it works inside a [testing/synctest] bubble: a goroutine that waits on a
// real socket would stop virtual time. Create and close the Server in the bubble that uses it.
package scriptedapi

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	// firstVersion is where the counter of a new cluster starts; a low number would be taken for an index.
	firstVersion = 100
	// defaultHistory is the number of events that a resource keeps for watches from an older version.
	defaultHistory = 1024
	// defaultWatchBuffer is the number of events that may wait for the client of one watch.
	defaultWatchBuffer = 100
)

// Server is the scripted API server. Its methods may be called from any goroutine, also from an OnRequest hook.
type Server struct {
	listener *pipeListener
	http     *http.Server
	served   chan struct{}  // closed when the accept loop has ended
	conns    sync.WaitGroup // one for each connection that http serves
	ctx      context.Context
	cancel   context.CancelFunc

	// mu guards everything below and is never held while a connection is read or written.
	mu        sync.Mutex
	version   int64 // of the last change to any resource, as an etcd revision
	uids      int64 // objects created so far; unlike version it never goes back
	cluster   int64 // generation of the cluster behind the address, part of each UID
	opaque    bool
	resources map[schema.GroupVersionResource]*resource
	order     []schema.GroupVersionResource // in order of registration
	open      map[net.Conn]struct{}

	watchList     bool
	expiredHTTP   bool
	history       int
	watchBuffer   int
	bookmarkEvery time.Duration
	zeroAt        int64 // the version that a list at "0" is served from; 0 is the current one

	refusals int // dials still to refuse; negative: all
	hook     func(*Request) *Fault
	faults   []queuedFault
	requests []Request
}

// New starts a server that has the namespaces default and kube-system, and no other resource than namespaces.
func New() *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		listener:    newPipeListener(),
		served:      make(chan struct{}),
		ctx:         ctx,
		cancel:      cancel,
		version:     firstVersion,
		resources:   make(map[schema.GroupVersionResource]*resource),
		open:        make(map[net.Conn]struct{}),
		watchList:   true,
		history:     defaultHistory,
		watchBuffer: defaultWatchBuffer,
	}
	s.http = &http.Server{
		Handler:     http.HandlerFunc(s.serve),
		ErrorLog:    log.New(io.Discard, "", 0), // a cut connection is no news here
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: s.track,
	}
	// One request a connection: then a refused dial is a refused request, and an idle client holds no goroutine.
	s.http.SetKeepAlivesEnabled(false)

	s.Register(Namespaces, "Namespace", false)
	s.mu.Lock()
	s.bootstrap()
	s.mu.Unlock()

	go func() {
		defer close(s.served)
		_ = s.http.Serve(s.listener) // always fails in the end, with the listener's net.ErrClosed
	}()
	return s
}

// Config is how client-go reaches the server: by Dial alone, past proxies and without a rate limit. Every call
// returns a new one, and clients made from it share no transport with any other.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host:  "http://kubernetes.test",
		QPS:   -1,
		Dial:  s.dial,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}
}

// Close cuts all connections and returns when every goroutine of the server has ended. Later dials are refused.
// Stop the clients first if their last requests matter.
func (s *Server) Close() {
	s.cancel()
	_ = s.listener.Close()
	<-s.served // from here on no connection is added
	_ = s.http.Close()
	s.conns.Wait()
}

// Refuse has the next n connections refused, as where nothing listens on the port; each request makes its own
// connection. A negative n refuses all until Refuse(0). Requests and watches under way go on: see Down.
func (s *Server) Refuse(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = n
}

// Down is a server that has stopped: every connection is cut, and new ones are refused until Up.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals = -1
	s.cutAll()
}

// Up ends Down. History is kept, as with a network that was away; for a server that was, Compact first.
func (s *Server) Up() { s.Refuse(0) }

// Restart cuts every connection and forgets the history: a server knows nothing older than its own start.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAll()
	s.compact()
}

// cutAll closes every connection. The caller holds mu.
func (s *Server) cutAll() {
	for c := range s.open {
		_ = c.Close()
	}
}

func (s *Server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	refused := s.refusals != 0
	if s.refusals > 0 {
		s.refusals--
	}
	s.mu.Unlock()
	if refused {
		return nil, errRefused()
	}
	return s.listener.dial(ctx)
}

// track follows http's connections, so that they can be cut and waited for. http calls it with StateNew in the
// accept loop, which is what lets Close wait for served and then for conns.
func (s *Server) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns.Add(1)
		s.open[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		if _, ok := s.open[c]; ok {
			delete(s.open, c)
			s.conns.Done()
		}
	}
}

type connKey struct{}

// connOf returns the connection that a request came on.
func connOf(r *http.Request) net.Conn { return r.Context().Value(connKey{}).(net.Conn) }
