package monitor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything that must come may take, on a slow machine.
const patience = time.Minute

// served is a server with its registry.
type served struct {
	*Server
	t   *testing.T
	reg *prometheus.Registry
}

func serve(t *testing.T, most limits, collectors ...prometheus.Collector) *served {
	t.Helper()
	return serveWith(t, optionsOf(t, config.Server{}), most, collectors...)
}

// optionsOf are those of a server with nothing to tell.
func optionsOf(t *testing.T, cfg config.Server) Options {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	access, err := NewAccess(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Address: "127.0.0.1:0", Access: access, Registry: prometheus.NewRegistry(), Log: log, Tail: &status.Tail{},
		Problems: func() []status.Problem { return nil }, Status: func() status.Status { return status.Status{} },
	}
}

func serveWith(t *testing.T, o Options, most limits, collectors ...prometheus.Collector) *served {
	t.Helper()
	o.Registry.MustRegister(collectors...)
	s, err := start(o, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &served{s, t, o.Registry}
}

// dial connects from an address of this machine.
func (s *served) dial(from string) net.Conn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp", s.Address())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request over the connection and returns the status, and the answer's
// header.
func (s *served) ask(c net.Conn, path string, header ...string) answer {
	s.t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: kbridge\r\n%s\r\n", path, strings.Join(header, ""))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return answer{response.StatusCode, response.Header}
}

// answer is a response whose body has been read.
type answer struct {
	status int
	header http.Header
}

// isOpen says whether the server has the connection still.
func isOpen(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// closed waits until the server has closed all of the connections but so many, and
// returns those.
func closed(t *testing.T, conns []net.Conn, but int) []net.Conn {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		var open []net.Conn
		for _, c := range conns {
			if isOpen(c) {
				open = append(open, c)
			}
		}
		if conns = open; len(conns) <= but {
			return conns
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are open, want %d at most", len(conns), but)
		}
	}
}

func (s *served) turnedAway(reason string) float64 {
	s.t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kbridge_http_turned_away_total" {
			for _, m := range f.Metric {
				if m.Label[0].GetValue() == reason {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

func TestThousandsOfIdleConnectionsAreBoundedAndProbesAnswered(t *testing.T) {
	const count = 3000
	most := defaultLimits
	most.readHeader, most.read, most.idle = patience, patience, patience // the limit alone has to do
	s := serve(t, most)
	scraper := s.dial("127.0.0.2")
	s.ask(scraper, "/metrics")
	hog := make([]net.Conn, 0, count)
	for i := range count {
		hog = append(hog, s.dial("127.0.0.3"))
		if i%2 == 0 {
			fmt.Fprintf(hog[i], "GET /metrics HTTP/1.1\r\n") // and no more
		}
		if i%100 == 0 {
			for _, path := range []string{"/healthz", "/readyz"} {
				if got := s.ask(s.dial("127.0.0.4"), path).status; got != http.StatusOK {
					t.Fatalf("%s while %d connections are open: %d", path, i+1, got)
				}
			}
		}
	}
	open := closed(t, hog, defaultLimits.connections)
	if len(open) == 0 {
		t.Error("none of the connections was kept")
	}
	if got := s.turnedAway("connections"); got < count-float64(defaultLimits.connections) {
		t.Errorf("%v connections are counted as closed, of %d", got, count)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if got := s.ask(s.dial("127.0.0.4"), path).status; got != http.StatusOK {
			t.Errorf("%s answers %d", path, got)
		}
	}
	// Who has one connection keeps it while another client has too many.
	if got := s.ask(scraper, "/metrics").status; got != http.StatusOK {
		t.Errorf("the scraper's connection answers %d", got)
	}
}

func TestAClientThatHasAllConnectionsDoesNotKeepItselfFromProbing(t *testing.T) {
	most := defaultLimits
	most.readHeader, most.read, most.idle = patience, patience, patience
	s := serve(t, most)
	for range 1000 {
		s.dial("127.0.0.1") // where a kubelet may be too
	}
	for range 20 {
		if got := s.ask(s.dial("127.0.0.1"), "/healthz").status; got != http.StatusOK {
			t.Fatalf("/healthz answers %d", got)
		}
	}
}

func TestConnectionsOnWhichNothingComesAreClosed(t *testing.T) {
	most := defaultLimits
	most.readHeader, most.read, most.idle = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	s := serve(t, most)
	silent, slow, idle := s.dial("127.0.0.1"), s.dial("127.0.0.1"), s.dial("127.0.0.1")
	fmt.Fprint(slow, "GET /healthz HTTP/1.1\r\nHost: k")
	s.ask(idle, "/healthz")
	closed(t, []net.Conn{silent, idle}, 0)
	slow.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(slow); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection whose header does not end is kept")
	}
}

func TestAServerEndsThoughAClientKeepsItsConnection(t *testing.T) {
	s, err := Start(optionsOf(t, config.Server{}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /healthz HTTP/1.1\r\n")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close returned %v", err)
	}
}

// slowMetric is gathered when it is let.
type slowMetric struct {
	gathering chan struct{}
	go_       chan struct{}
}

func (m slowMetric) Describe(d chan<- *prometheus.Desc) { d <- slowDesc }
func (m slowMetric) Collect(c chan<- prometheus.Metric) {
	m.gathering <- struct{}{}
	<-m.go_
	c <- prometheus.MustNewConstMetric(slowDesc, prometheus.GaugeValue, 1)
}

var slowDesc = prometheus.NewDesc("slow", "", nil, nil)

func TestScrapesBeyondTheLimitAreToldToComeLaterAndProbesAreNot(t *testing.T) {
	m := slowMetric{make(chan struct{}), make(chan struct{})}
	s := serve(t, defaultLimits, m)
	status := make(chan int)
	scrape := func(from string) {
		c := s.dial(from)
		go func() { status <- s.ask(c, "/metrics").status }()
	}
	wait := func() {
		t.Helper()
		select {
		case <-m.gathering:
		case got := <-status:
			t.Fatalf("a scrape is answered with %d", got)
		case <-time.After(patience):
			t.Fatal("a scrape does not begin")
		}
	}
	refused := func(from, what string) {
		t.Helper()
		response := s.ask(s.dial(from), "/metrics")
		if response.status != http.StatusServiceUnavailable || response.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d, Retry-After %q", what, response.status, response.header.Get("Retry-After"))
		}
	}
	for client := range defaultLimits.scrapes.all / defaultLimits.scrapes.each {
		from := fmt.Sprintf("127.0.0.%d", 10+client)
		for range defaultLimits.scrapes.each {
			scrape(from)
			wait()
		}
		refused(from, "one client's third scrape")
	}
	refused("127.0.0.9", "one more scrape than there may be")
	for _, path := range []string{"/healthz", "/readyz"} {
		if got := s.ask(s.dial("127.0.0.10"), path).status; got != http.StatusOK {
			t.Errorf("%s answers %d", path, got)
		}
	}
	for range defaultLimits.scrapes.all {
		m.go_ <- struct{}{}
		if got := <-status; got != http.StatusOK {
			t.Errorf("a scrape that was let in is answered with %d", got)
		}
	}
	scrape("127.0.0.9") // there is room again
	wait()
	m.go_ <- struct{}{}
	if got := <-status; got != http.StatusOK {
		t.Errorf("a scrape when there is room again is answered with %d", got)
	}
}

// hugeMetric is more than sockets' buffers take.
type hugeMetric struct{ desc *prometheus.Desc }

func (m hugeMetric) Describe(d chan<- *prometheus.Desc) { d <- m.desc }
func (m hugeMetric) Collect(c chan<- prometheus.Metric) {
	for i := range 2000 {
		c <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, 1, fmt.Sprint(i, strings.Repeat("x", 10_000)))
	}
}

func TestAScrapeThatIsNotReadEnds(t *testing.T) {
	most := defaultLimits
	most.write, most.scrapes.each = time.Second, 1
	s := serve(t, most, hugeMetric{prometheus.NewDesc("huge", "", []string{"label"}, nil)})
	lazy := s.dial("127.0.0.1")
	fmt.Fprint(lazy, "GET /metrics HTTP/1.1\r\nHost: kbridge\r\n\r\n")
	if _, err := lazy.Read(make([]byte, 1)); err != nil {
		t.Fatal(err) // it is being answered, and reads no more
	}
	for end := time.Now().Add(patience); ; {
		c := s.dial("127.0.0.1")
		fmt.Fprint(c, "GET /metrics HTTP/1.1\r\nHost: kbridge\r\nConnection: close\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			break // what the other held is free
		}
		if time.Now().After(end) {
			t.Fatal("a client that does not read its scrape keeps others out")
		}
	}
}

func TestALargeHeaderIsRefused(t *testing.T) {
	s := serve(t, defaultLimits)
	c := s.dial("127.0.0.1")
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: kbridge\r\nX: %s\r\n\r\n", strings.Repeat("x", 20<<10))
	// The server may be gone before it is heard.
	if response, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("20 KiB of header: %d", response.StatusCode)
		}
	}
}
