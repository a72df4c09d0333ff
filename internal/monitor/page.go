package monitor

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/status"
)

// page is the whole of it: its style and its script are inside, and it asks for nothing
// but /events.
//
//go:embed page.html
var page []byte

// pagePolicy lets a browser run and show what is in the page, by its hash, and nothing
// that somebody's text could add.
var pagePolicy = fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	hashOf("script"), hashOf("style"))

// hashOf is the hash of what stands in the page's only element of that name.
func hashOf(element string) string {
	_, rest, opened := bytes.Cut(page, []byte("<"+element+">"))
	content, _, closed := bytes.Cut(rest, []byte("</"+element+">"))
	if !opened || !closed {
		panic("BUG: the page has no " + element)
	}
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// discreet keeps an answer out of caches, and out of other sites' pages.
func discreet(h http.Header, contentType string) {
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func servePage(w http.ResponseWriter, _ *http.Request) {
	discreet(w.Header(), "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	_, _ = w.Write(page) // who went away need not be told
}

func (s *Server) serveStatus(w http.ResponseWriter, _ *http.Request) {
	doc, err := json.MarshalIndent(s.options.Status(), "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	discreet(w.Header(), "application/json")
	_, _ = w.Write(append(doc, '\n'))
}

// tail is what a stream tells of the last events.
type tail struct {
	Events []status.Event `json:"events"`
	// Lost is how many more there were.
	Lost uint64 `json:"lost"`
	// Hidden says that events are not told, since everybody may read this.
	Hidden bool `json:"hidden"`
}

// serveEvents sends the status and the last events, again and again, as server-sent
// events. Where everybody may read, only who is on this machine is told of events: names
// of objects are for those who may list them.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) {
	send := &stream{w: w, control: http.NewResponseController(w), within: s.limits.streamWrite}
	discreet(w.Header(), "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would wait for more
	hidden := !s.options.Access.protected() && !isLoopback(r.RemoteAddr)
	follow := s.options.Tail.Follow()
	defer follow.Close()
	ticker := time.NewTicker(s.limits.streamTick)
	defer ticker.Stop()
	over := time.NewTimer(s.limits.streamLife)
	defer over.Stop()
	for {
		last := tail{Hidden: hidden, Events: []status.Event{}}
		if events, lost := follow.Events(); !hidden && len(events) > 0 {
			last.Events, last.Lost = events, lost
		}
		if send.event("status", s.options.Status()) != nil || send.event("tail", last) != nil {
			return // the client is gone, or does not read
		}
		select {
		case <-ticker.C:
		case <-over.C:
			return
		case <-s.stopping:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// stream writes server-sent events. A client that does not read ends it.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

func (s *stream) event(name string, data any) error {
	body, err := json.Marshal(data) // one line, as a field of an event has to be
	if err != nil {
		return err
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(s.within)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(s.w, "event: %s\ndata: %s\n\n", name, body); err != nil {
		return err
	}
	return s.control.Flush()
}

// isLoopback says of a client's address that it is on this machine.
func isLoopback(address string) bool {
	ip := net.ParseIP(strings.Trim(clientOf(address), "[]"))
	return ip != nil && ip.IsLoopback()
}
