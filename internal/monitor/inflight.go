package monitor

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// inFlight bounds the requests that a handler has at once, of all clients and of each
// by itself; one more is told to come back later.
type inFlight struct {
	next      http.Handler
	max, each int
	refused   prometheus.Counter

	mu      sync.Mutex
	count   int
	clients map[string]int
}

func limitInFlight(next http.Handler, most, each int, refused prometheus.Counter) *inFlight {
	return &inFlight{next: next, max: most, each: each, refused: refused, clients: map[string]int{}}
}

func (f *inFlight) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client := clientOf(r.RemoteAddr)
	if !f.begin(client) {
		f.refused.Inc()
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests are being answered", http.StatusServiceUnavailable)
		return
	}
	defer f.end(client)
	f.next.ServeHTTP(w, r)
}

func (f *inFlight) begin(client string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count >= f.max || f.clients[client] >= f.each {
		return false
	}
	f.count++
	f.clients[client]++
	return true
}

func (f *inFlight) end(client string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	if f.clients[client]--; f.clients[client] == 0 {
		delete(f.clients, client)
	}
}
