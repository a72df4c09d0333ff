package scriptedapi

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verb is what a request asks for.
type Verb string

// The verbs. Other is everything that is neither discovery nor a read of a resource.
const (
	List      Verb = "list"
	Watch     Verb = "watch"
	Get       Verb = "get"
	Discovery Verb = "discovery"
	Other     Verb = "other"
)

// Request is one request as it arrived. Refused connections leave none.
type Request struct {
	At     time.Time
	Method string
	Path   string
	Query  url.Values
	Header http.Header

	Verb      Verb
	GVR       schema.GroupVersionResource // zero unless Verb is List, Watch or Get
	Namespace string                      // empty: all namespaces, or none
	Name      string                      // of a Get
}

// Requests returns all requests since the start or the last ResetRequests, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ResetRequests forgets the requests so far.
func (s *Server) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Count returns the number of requests recorded with a verb for a resource; the zero GVR counts all resources.
func (s *Server) Count(verb Verb, gvr schema.GroupVersionResource) int {
	n := 0
	for _, req := range s.Requests() {
		if req.Verb == verb && (gvr.Empty() || req.GVR == gvr) {
			n++
		}
	}
	return n
}

// serve answers one request: it is recorded, gets its fault, and then what that leaves of an answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	req := s.record(r)
	fault := s.faultFor(req)
	if !fault.begin(w, r, req) {
		return
	}
	b := &body{w: w, flush: http.NewResponseController(w), ctx: r.Context(), fault: fault}
	switch req.Verb {
	case List:
		s.list(b, req)
	case Watch:
		s.watch(b, req, connOf(r))
	case Get:
		s.get(b, req)
	case Discovery:
		s.discover(b, req)
	default:
		s.other(b, req)
	}
}

// record parses a request and keeps it.
func (s *Server) record(r *http.Request) *Request {
	req := Request{
		At:     time.Now(),
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  r.URL.Query(),
		Header: r.Header.Clone(),
		Verb:   Other,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.resolve(&req)
	}
	s.requests = append(s.requests, req)
	req.Query = maps.Clone(req.Query) // a hook may change its own
	return &req
}

// resolve finds what a path asks for, also of a resource that is not registered. The caller holds mu.
func (s *Server) resolve(req *Request) {
	parts := strings.Split(strings.Trim(req.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case parts[0] == "version" || parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3:
		req.Verb = Discovery
		return
	case parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		req.Namespace, parts = parts[1], parts[2:]
	}
	gvr := gv.WithResource(parts[0])
	if r := s.resources[gvr]; len(parts) > 2 || r != nil && !r.namespaced && req.Namespace != "" {
		return
	}
	req.GVR = gvr
	switch {
	case len(parts) == 2:
		req.Verb, req.Name = Get, parts[1]
	case req.Query.Get("watch") == "true" || req.Query.Get("watch") == "1":
		req.Verb = Watch
	default:
		req.Verb = List
	}
}

// other answers health checks; the rest is not served.
func (s *Server) other(b *body, req *Request) {
	switch req.Path {
	case "/livez", "/readyz", "/healthz":
		_, _ = b.w.Write([]byte("ok"))
	default:
		notServed(b.w)
	}
}
