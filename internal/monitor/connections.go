package monitor

import (
	"cmp"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// connections bounds how many there are. A limit that lets new ones wait, as
// netutil.LimitListener's does, would let whoever opens that many and says nothing keep
// the kubelet out, which then kills the process. So a new one is always taken, and the
// one that has been idle for longest goes, of the client that has the most.
type connections struct {
	net.Listener
	max    int
	closed prometheus.Counter

	mu   sync.Mutex
	open map[*connection]struct{}
}

// connection is one of a client. The lock of connections guards its fields.
type connection struct {
	net.Conn
	of     *connections
	client string // the address without the port
	busy   int    // requests that a handler has
	last   time.Time
}

func limitConnections(l net.Listener, most int, closed prometheus.Counter) *connections {
	return &connections{Listener: l, max: most, closed: closed, open: map[*connection]struct{}{}}
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, of: l, client: clientOf(raw.RemoteAddr().String()), last: time.Now()}
	l.mu.Lock()
	l.open[c] = struct{}{}
	var victim *connection
	if len(l.open) > l.max {
		victim = l.dispensable()
		delete(l.open, victim)
	}
	l.mu.Unlock()
	if victim != nil {
		l.closed.Inc()
		victim.Conn.Close() // its goroutine in net/http ends with it
	}
	return c, nil
}

// dispensable is the connection to close when there are too many: one without a request
// where there is one, of the client that has the most, the one that was used least
// recently. The lock is held.
func (l *connections) dispensable() *connection {
	count := map[string]int{}
	for c := range l.open {
		count[c.client]++
	}
	return slices.MinFunc(slices.Collect(maps.Keys(l.open)), func(a, b *connection) int {
		return cmp.Or(cmp.Compare(a.busy, b.busy), cmp.Compare(count[b.client], count[a.client]), a.last.Compare(b.last))
	})
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// use counts requests that a handler has.
func (c *connection) use(n int) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.busy += n
	c.last = time.Now()
}

type connectionKey struct{}

// remember is the server's ConnContext.
func remember(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// busy keeps a request's connection while the handler has it.
func busy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connectionKey{}).(*connection)
		c.use(1)
		defer c.use(-1)
		next.ServeHTTP(w, r)
	})
}

// clientOf is an address without its port: all processes of a pod are one client.
func clientOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
