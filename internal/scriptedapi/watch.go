package scriptedapi

import (
	"net"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// SetWatchList says whether a watch may begin with the objects that there are (sendInitialEvents). Without it the
// server answers 422, as older ones do. It is on by default.
func (s *Server) SetWatchList(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchList = on
}

// SetExpiredAsHTTP has a watch from a forgotten version answered with status 410. By default the 410 is an ERROR
// event behind status 200, which is what current servers do.
func (s *Server) SetExpiredAsHTTP(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expiredHTTP = on
}

// watch streams a resource's events until the watch's timeout, a fault, or the end of its connection.
func (s *Server) watch(b *body, req *Request, conn net.Conn) {
	s.mu.Lock()
	r := s.resources[req.GVR]
	if r == nil {
		s.mu.Unlock()
		notServed(b.w)
		return
	}
	w, backlog, st := s.openWatch(r, req, conn, b.fault)
	period := s.bookmarkEvery
	s.mu.Unlock()
	if st != nil {
		writeStatus(b.w, st)
		return
	}
	defer func() {
		s.mu.Lock()
		delete(r.watchers, w)
		s.mu.Unlock()
	}()

	b.w.Header().Set("Content-Type", "application/json")
	b.w.WriteHeader(http.StatusOK)
	_ = b.flush.Flush() // clients wait for the header, not for the first event

	var timeout, tick <-chan time.Time // nil ones never fire
	if n, _ := strconv.Atoi(req.Query.Get("timeoutSeconds")); n > 0 {
		t := time.NewTimer(time.Duration(n) * time.Second)
		defer t.Stop()
		timeout = t.C
	}
	if period > 0 {
		t := time.NewTicker(period)
		defer t.Stop()
		tick = t.C
	}
	for _, f := range backlog {
		if !b.frame(f) {
			return
		}
	}
	for {
		select {
		case f := <-w.queue:
			if !b.frame(f) {
				return
			}
		case <-tick:
			s.mu.Lock()
			if _, open := r.watchers[w]; open {
				s.bookmark(r, w)
			}
			s.mu.Unlock()
		case <-timeout:
			return
		case <-b.ctx.Done():
			return
		}
	}
}

// openWatch checks a watch's options and registers it, in one step with taking what it begins with, so that no event
// falls between the two. The caller holds mu.
func (s *Server) openWatch(r *resource, req *Request, conn net.Conn, fault Fault) (*watcher, []frame, *metav1.Status) {
	sel, st := r.selection(req.Namespace, req.Query)
	if st == nil {
		st = s.checkWatch(req)
	}
	if st != nil {
		return nil, nil, st
	}
	w := &watcher{
		conn:      conn,
		sel:       sel,
		bookmarks: isTrue(req.Query.Get("allowWatchBookmarks")),
		silent:    fault.Silent,
		queue:     make(chan frame, s.watchBuffer),
	}
	backlog, st, inStream := s.backlog(r, w, req)
	if fault.Event != nil {
		st, inStream = fault.Event, true
	}
	switch {
	case st != nil && inStream:
		return w, []frame{{data: r.document(watch.Error, encode(st))}, {last: true}}, nil
	case st != nil:
		return nil, nil, st
	case fault.Silent:
		backlog = nil
	}
	r.watchers[w] = struct{}{}
	return w, backlog, nil
}

// checkWatch refuses the combinations of options that a server refuses. The caller holds mu.
func (s *Server) checkWatch(req *Request) *metav1.Status {
	match := req.Query.Get("resourceVersionMatch")
	switch {
	case req.Query.Get("sendInitialEvents") == "":
		if match != "" {
			return invalidOption(field.Forbidden(field.NewPath("resourceVersionMatch"), "needs sendInitialEvents"))
		}
	case !s.watchList:
		return invalidOption(field.Forbidden(field.NewPath("sendInitialEvents"), "the feature WatchList is off"))
	case match != string(metav1.ResourceVersionMatchNotOlderThan):
		return invalidOption(field.Forbidden(field.NewPath("resourceVersionMatch"), "must be NotOlderThan with sendInitialEvents"))
	}
	return nil
}

// backlog returns what a watch begins with, and sets from which version it goes on; or the error that it ends with,
// and whether that comes inside the stream. The caller holds mu.
func (s *Server) backlog(r *resource, w *watcher, req *Request) (frames []frame, st *metav1.Status, inStream bool) {
	initial := req.Query.Get("sendInitialEvents")
	label := req.Query.Get("resourceVersion")
	version := int64(0)
	if label != "" && label != "0" {
		v, err := s.parse(label)
		if err != nil {
			return nil, invalidVersion(label, err), false
		}
		version = v
	}
	w.from = s.version
	switch {
	case isTrue(initial):
		if version > s.version {
			return nil, tooLarge(version, s.version), true
		}
		frames = s.initialEvents(r, w)
		if w.bookmarks {
			frames = append(frames, frame{data: r.document(watch.Bookmark, r.bookmark(s.label(s.version), true))})
		}
	case version == 0 && initial == "":
		frames = s.initialEvents(r, w)
	case version == 0:
	case version < r.compacted:
		return nil, r.tooOld(version), !s.expiredHTTP
	default: // also a version from the future: nothing is newer than that, and nobody minds
		w.from = version
		for _, e := range r.events {
			if e.version > version {
				if data := s.encodeEvent(r, w.sel, e); data != nil {
					frames = append(frames, frame{data: data})
				}
			}
		}
	}
	return frames, nil, false
}

// initialEvents shows the objects that there are as if they were being added. The caller holds mu.
func (s *Server) initialEvents(r *resource, w *watcher) []frame {
	var frames []frame
	for _, o := range r.sorted(r.objects) {
		if w.sel.matches(o) {
			frames = append(frames, frame{data: r.document(watch.Added, o.raw)})
		}
	}
	return frames
}

func isTrue(value string) bool { return value == "true" || value == "1" }
