package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/status"
)

func TestReadyzTellsWhatKeepsItFromBeingReadyAndNothingElse(t *testing.T) {
	o := optionsOf(t, config.Server{})
	var problems []status.Problem
	o.Problems = func() []status.Problem { return problems }
	c := client{t: t, base: "http://" + serveWith(t, o, defaultLimits).Address()}
	notice := status.Problem{About: "sink audit", Text: "behind on 7 objects"}
	problems = []status.Problem{notice}
	if code, _, body := c.get("/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("%d %s", code, body)
	}
	problems = []status.Problem{{Text: "starting", Unready: true}, notice, {About: "sink live", Text: "refused", Unready: true}}
	if code, _, body := c.get("/readyz"); code != http.StatusServiceUnavailable || body != "starting\nsink live: refused\n" {
		t.Errorf("%d %s", code, body)
	}
}

func TestStatuszIsTheDocument(t *testing.T) {
	o := optionsOf(t, config.Server{})
	want := status.Status{Cluster: "<prod>", Problems: []status.Problem{{About: "sink audit"}}, Resources: []status.Resource{{Entry: "pods"}}, Sinks: []status.Sink{}}
	o.Status = func() status.Status { return want }
	s := serveWith(t, o, defaultLimits)
	resp, err := http.Get("http://" + s.Address() + "/statusz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got status.Status
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("it is %s", kind)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestThePageRunsNothingButItself(t *testing.T) {
	s := serve(t, defaultLimits)
	c := client{t: t, base: "http://" + s.Address()}
	for _, path := range []string{"/", "/statusz", "/events"} {
		_, header, _ := c.get(path)
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer"} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
	_, header, body := c.get("/")
	if kind := header.Get("Content-Type"); kind != "text/html; charset=utf-8" || !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("the page is %s: %.60s", kind, body)
	}
	policy := header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("%s is not in %s", part, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Count(policy, "sha256-") != 2 {
		t.Errorf("the policy is %s", policy)
	}
	text := string(page)
	if strings.Contains(text, "://") || strings.Contains(text, "innerHTML =") || strings.Contains(text, "insertAdjacent") || strings.Contains(text, "document.write") {
		t.Error("the page names another place, or makes markup of text")
	}
	if len(page) > 32<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// follower reads a stream.
type follower struct {
	t    *testing.T
	conn net.Conn
	body *bufio.Scanner
}

// follow begins to follow, from an address of this machine.
func (s *served) follow(from string) *follower {
	s.t.Helper()
	conn := s.dial(from)
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: kbridge\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		s.t.Fatalf("the stream begins with %d, %s", resp.StatusCode, kind)
	}
	s.t.Cleanup(func() { conn.Close(); resp.Body.Close() }) // in this order: the body would be read to its end
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	return &follower{s.t, conn, lines}
}

// next reads the next event of that name into v, and returns false at the stream's end.
func (f *follower) next(name string, v any) bool {
	f.t.Helper()
	for f.body.Scan() {
		if f.body.Text() != "event: "+name {
			continue
		}
		if !f.body.Scan() {
			f.t.Fatal("an event has no data")
		}
		data, ok := strings.CutPrefix(f.body.Text(), "data: ")
		if !ok {
			f.t.Fatalf("an event's data is %q", f.body.Text())
		}
		if err := json.Unmarshal([]byte(data), v); err != nil {
			f.t.Fatal(err)
		}
		return true
	}
	return false
}

// quick are limits with streams that say something every few milliseconds.
func quick() limits {
	most := defaultLimits
	most.streamTick = 5 * time.Millisecond
	return most
}

func TestAStreamTellsTheStatusAndTheLastEventsForLongerThanARequestMayTake(t *testing.T) {
	o := optionsOf(t, config.Server{})
	looks := 0
	o.Status = func() status.Status {
		looks++
		return status.Status{Cluster: fmt.Sprint("look ", looks), Version: "two\nlines"}
	}
	most := quick()
	most.read, most.write, most.readHeader = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	began := time.Now()
	f := serveWith(t, o, most).follow("127.0.0.1")
	var doc status.Status
	var got tail
	if !f.next("status", &doc) || !f.next("tail", &got) || doc.Cluster != "look 1" || doc.Version != "two\nlines" || got.Hidden || got.Lost != 0 {
		t.Errorf("it begins with %+v and %+v", doc, got)
	}
	o.Tail.Add(status.Event{Name: "checkout"})
	for len(got.Events) == 0 && f.next("tail", &got) {
	}
	if len(got.Events) != 1 || got.Events[0].Name != "checkout" {
		t.Errorf("of an event it tells %+v", got)
	}
	for time.Since(began) < 4*most.write {
		if !f.next("status", &doc) {
			t.Fatalf("the stream has ended after %s", time.Since(began))
		}
	}
}

func TestStreamsAreBoundedAndNobodyIsHeldUpByOneThatIsNotRead(t *testing.T) {
	o := optionsOf(t, config.Server{})
	long := strings.Repeat("x", 256<<10) // so that the sockets' buffers are soon full
	o.Status = func() status.Status { return status.Status{Cluster: long} }
	most := defaultLimits
	most.streams, most.streamTick, most.streamWrite = share{3, 2}, 50*time.Millisecond, 2*time.Second
	s := serveWith(t, o, most)
	lazy := s.dial("127.0.0.1")
	fmt.Fprint(lazy, "GET /events HTTP/1.1\r\nHost: kbridge\r\n\r\n") // and reads no more than the beginning
	if _, err := lazy.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	f := s.follow("127.0.0.1")
	if third := s.ask(s.dial("127.0.0.1"), "/events"); third.status != http.StatusServiceUnavailable || third.header.Get("Retry-After") == "" {
		t.Errorf("a client's third stream: %d", third.status)
	}
	other := s.follow("127.0.0.2")
	if fourth := s.ask(s.dial("127.0.0.3"), "/events"); fourth.status != http.StatusServiceUnavailable {
		t.Errorf("one more stream than there may be: %d", fourth.status)
	}
	for _, path := range []string{"/", "/statusz", "/metrics", "/healthz", "/readyz"} {
		if got := s.ask(s.dial("127.0.0.1"), path).status; got != http.StatusOK {
			t.Errorf("%s beside them: %d", path, got)
		}
	}
	var doc status.Status
	for range 5 {
		for range 500 {
			o.Tail.Add(status.Event{}) // as a lane does, which is not held up
		}
		if !f.next("status", &doc) || !other.next("status", &doc) {
			t.Fatal("a stream that is read has ended")
		}
	}
	// What the lazy one had is free in the end.
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		conn := s.dial("127.0.0.1")
		fmt.Fprint(conn, "GET /events HTTP/1.1\r\nHost: kbridge\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("who does not read keeps others out")
		}
	}
}

func TestAStreamEndsWhenItsTimeIsOverAndWhenItsClientGoes(t *testing.T) {
	o := optionsOf(t, config.Server{})
	most := quick()
	most.streamLife, most.streams = 50*time.Millisecond, share{1, 1}
	s := serveWith(t, o, most)
	f := s.follow("127.0.0.1")
	for f.next("status", &status.Status{}) {
	}
	if f.body.Err() != nil {
		t.Errorf("it ends with %v", f.body.Err())
	}
	unfollowed := func() {
		t.Helper()
		for end := time.Now().Add(patience); o.Tail.Followed(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("events are kept for who is gone")
			}
		}
	}
	unfollowed()
	most.streamLife = patience
	s = serveWith(t, optionsWith(t, o.Tail), most)
	s.follow("127.0.0.1").conn.Close()
	unfollowed()
}

// optionsWith are options with that tail.
func optionsWith(t *testing.T, events *status.Tail) Options {
	o := optionsOf(t, config.Server{})
	o.Tail = events
	return o
}

func TestAStreamEndsAtOnceWhenTheServerDoes(t *testing.T) {
	s, err := Start(optionsOf(t, config.Server{}))
	if err != nil {
		t.Fatal(err)
	}
	f := (&served{s, t, nil}).follow("127.0.0.1")
	f.next("status", &status.Status{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("Close returned %v, %v", err, ctx.Err())
	}
	for f.next("status", &status.Status{}) {
	}
	if f.body.Err() != nil {
		t.Errorf("the stream ends with %v", f.body.Err())
	}
}

// far is an answer to somebody on another machine.
type far struct{ *httptest.ResponseRecorder }

func (far) SetWriteDeadline(time.Time) error { return nil }

func TestWhoIsNotKnownAndElsewhereSeesNoNamesOfObjects(t *testing.T) {
	clients := newAuthority(t)
	encrypted := serveEncrypted(t, clients, false).options
	token := optionsOf(t, config.Server{Auth: &config.Auth{TokenFile: write(t, t.TempDir(), "token", []byte(goodToken))}})
	for name, c := range map[string]struct {
		o      Options
		from   string
		hidden bool
	}{
		"elsewhere":                    {optionsOf(t, config.Server{}), "10.1.2.3:4567", true},
		"elsewhere, by IPv6":           {optionsOf(t, config.Server{}), "[fd00::1]:4567", true},
		"here":                         {optionsOf(t, config.Server{}), "127.0.0.1:4567", false},
		"here, by IPv6":                {optionsOf(t, config.Server{}), "[::1]:4567", false},
		"elsewhere, with the token":    {token, "10.1.2.3:4567", false},
		"elsewhere, with certificates": {encrypted, "10.1.2.3:4567", false},
	} {
		s := &Server{options: c.o, limits: quick(), stopping: make(chan struct{})}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil)
		r.RemoteAddr = c.from
		w := far{httptest.NewRecorder()}
		ended := make(chan struct{})
		go func() { s.serveEvents(w, r); close(ended) }()
		for !c.o.Tail.Followed() {
			time.Sleep(time.Millisecond)
		}
		for range 20 {
			c.o.Tail.Add(status.Event{Name: "checkout"})
			time.Sleep(s.limits.streamTick)
		}
		close(s.stopping)
		<-ended
		body := w.Body.String()
		if strings.Contains(body, "checkout") == c.hidden || !strings.Contains(body, fmt.Sprintf(`"hidden":%t`, c.hidden)) || !strings.Contains(body, "event: status") {
			t.Errorf("%s: %.300s", name, body)
		}
	}
}
