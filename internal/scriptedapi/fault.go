package scriptedapi

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fault is what goes wrong with one request. Its parts combine; the zero Fault is none. Faults of connections and of
// watches that are open already are methods of Server.
type Fault struct {
	// Delay passes before anything is answered.
	Delay time.Duration
	// Hang: no answer comes, until the client or the connection goes.
	Hang bool
	// Drop closes the connection in place of an answer.
	Drop bool
	// Answer gives the Status that is sent in place of an answer.
	Answer func(*Request) *metav1.Status
	// Handler answers in place of the server.
	Handler http.Handler

	// CutAfter closes the connection after so many bytes of the body, if it has as many. 0 is off.
	CutAfter int
	// Pace passes before each frame of a watch, or before each KiB of another answer.
	Pace time.Duration

	// Event ends a watch, after status 200, with this in an ERROR event, before anything is delivered.
	Event *metav1.Status
	// Silent: the watch opens and delivers nothing, neither events nor bookmarks, until its timeout.
	Silent bool
	// CutInFrame closes the connection in the middle of the watch's frame of this number, from 1. 0 is off.
	CutInFrame int
}

// Pass is no fault: in a queue it lets one request through.
var Pass = Fault{}

// Fail answers with the Status that a server sends with an HTTP code: 401, 403, 404, 410 (Expired), 500, 503, ….
func Fail(code int) Fault {
	return Fault{Answer: func(req *Request) *metav1.Status { return failure(code, req) }}
}

// FailWith answers with a Status.
func FailWith(st *metav1.Status) Fault {
	return Fault{Answer: func(*Request) *metav1.Status { return st }}
}

// Expired answers 410 as an HTTP error, to a list, a page or a watch.
func Expired() Fault { return Fail(http.StatusGone) }

// ExpiredEvent answers a watch with 410 as an ERROR event inside the stream.
func ExpiredEvent() Fault { return Fault{Event: expired("too old resource version")} }

// Throttle answers 429. With a Retry-After of at least a second client-go waits and asks again by itself, ten times
// at most; with 0 there is no such header and the error reaches the caller.
func Throttle(retryAfter time.Duration) Fault {
	return FailWith(statusOf(apierrors.NewTooManyRequests("too many requests, please try again later", int(retryAfter/time.Second))))
}

// OnRequest has f asked for the fault of every request, before the faults of FailNext, which apply where f returns
// nil. f runs in the request's goroutine, before the answer is made, and may call the server.
func (s *Server) OnRequest(f func(*Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = f
}

type queuedFault struct {
	verb  Verb
	gvr   schema.GroupVersionResource
	fault Fault
}

// FailNext gives the next requests with a verb for a resource one fault each, in order. An empty verb or GVR stands
// for any.
func (s *Server) FailNext(verb Verb, gvr schema.GroupVersionResource, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		s.faults = append(s.faults, queuedFault{verb, gvr, f})
	}
}

func (s *Server) faultFor(req *Request) Fault {
	s.mu.Lock()
	hook := s.hook
	s.mu.Unlock()
	if hook != nil {
		if f := hook(req); f != nil {
			return *f
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.faults {
		if (q.verb == "" || q.verb == req.Verb) && (q.gvr.Empty() || q.gvr == req.GVR) {
			s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			return q.fault
		}
	}
	return Pass
}

// begin does the part of a fault that comes before the answer; false: there is to be no other answer.
func (f Fault) begin(w http.ResponseWriter, r *http.Request, req *Request) bool {
	if !sleep(r.Context(), f.Delay) {
		return false
	}
	switch {
	case f.Hang:
		<-r.Context().Done()
		return false
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Answer != nil:
		writeStatus(w, f.Answer(req))
		return false
	case f.Handler != nil:
		f.Handler.ServeHTTP(w, r)
		return false
	}
	return true
}
