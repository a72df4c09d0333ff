package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
)

// server is the cluster and its clients.
type server struct {
	lists atomic.Int64

	mu       sync.Mutex // guards what follows
	kind     *objects.Kind
	versions []atomic.Uint64 // of each object; their number is that of the objects
	newest   uint64          // the newest of them
	prepared *burst          // nil: there is none
	watches  []*watcher      // that have got their initial events
	ended    chan struct{}
}

// firstVersion is as long as the versions of a cluster that has lived for a while.
const firstVersion = 100_000_000

func newServer() *server {
	s := &server{newest: firstVersion}
	s.reset(objects.Pods, 0)
	return s
}

// reset makes another cluster. Versions go on, as they do in one that lives.
func (s *server) reset(kind *objects.Kind, count int) {
	if s.ended != nil {
		close(s.ended)
	}
	s.ended = make(chan struct{})
	s.kind, s.prepared, s.watches = kind, nil, nil
	s.versions = make([]atomic.Uint64, count)
	for i := range s.versions {
		s.newest++
		s.versions[i].Store(s.newest)
	}
}

// state is one state of the cluster.
type state struct {
	kind     *objects.Kind
	versions []atomic.Uint64
	newest   uint64
	ended    chan struct{} // closed when the cluster is replaced
}

// state returns the current one. A list that is being sent may have objects that change
// meanwhile, at either version; the bench changes nothing while it waits for one.
func (s *server) state() state {
	s.mu.Lock()
	defer s.mu.Unlock()
	return state{s.kind, s.versions, s.newest, s.ended}
}

// control answers the bench.
func (s *server) control() http.Handler {
	mux := http.NewServeMux()
	control.Serve(mux, control.PathCluster, func(_ context.Context, c control.Cluster) (struct{}, error) {
		kind, err := objects.ByResource(c.Resource)
		if err != nil {
			return struct{}{}, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reset(kind, c.Objects)
		return struct{}{}, nil
	})
	control.Serve(mux, control.PathPrepare, func(_ context.Context, c control.Changes) (struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.versions) == 0 {
			return struct{}{}, errors.New("the cluster is empty")
		}
		s.prepared = newBurst(s, c)
		return struct{}{}, nil
	})
	control.Serve(mux, control.PathSend, func(ctx context.Context, _ struct{}) (control.Sent, error) {
		s.mu.Lock()
		b := s.prepared
		s.prepared = nil
		s.mu.Unlock()
		if b == nil {
			return control.Sent{}, errors.New("nothing is prepared")
		}
		return s.stream(ctx, b)
	})
	control.Serve(mux, control.PathPace, func(ctx context.Context, p control.Paced) (control.Sent, error) {
		if p.PerSecond <= 0 {
			return control.Sent{}, fmt.Errorf("%d changes a second", p.PerSecond)
		}
		return s.stream(ctx, &pace{server: s, paced: p})
	})
	control.Serve(mux, control.PathStatus, func(context.Context, struct{}) (control.Status, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return control.Status{Watches: len(s.watches), Lists: s.lists.Load()}, nil
	})
	return mux
}

// stream hands the changes to the one watch that is open.
func (s *server) stream(ctx context.Context, changes source) (control.Sent, error) {
	s.mu.Lock()
	watches := s.watches
	s.mu.Unlock()
	if len(watches) != 1 {
		return control.Sent{}, fmt.Errorf("%d watches are open, there has to be one", len(watches))
	}
	w := watches[0]
	order := order{changes, make(chan outcome, 1)}
	select {
	case w.orders <- order:
	case <-w.gone:
		return control.Sent{}, errors.New("the watch has ended")
	case <-ctx.Done():
		return control.Sent{}, ctx.Err()
	}
	o := <-order.done // the watch ends with its client, and a stuck one with the bench
	return o.sent, o.err
}

// next picks the object of change k, among n: consecutive changes are of objects far
// from each other, and each object has its turn before one has a second.
func next(k, n int) int {
	const stride = 7_919 // a prime
	if n%stride == 0 {
		return k % n
	}
	return int(uint64(k) * stride % uint64(n))
}
