package scriptedapi

import (
	"bytes"
	"encoding/json"
	"net"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// frame is one document of a watch stream.
type frame struct {
	data []byte
	cut  bool // half of it is sent, then the connection is closed
	last bool // it is not sent: the watch ends as after its timeout
}

// watcher is an open watch. Server.mu guards it, but for queue, which its handler reads.
type watcher struct {
	conn      net.Conn
	sel       selection
	bookmarks bool
	from      int64 // only what is newer is delivered
	silent    bool
	queue     chan frame
}

// push hands a frame to the watch's handler. A client that has let the buffer fill up is cut off, as real servers
// do, because the events behind it must not wait in memory. The caller holds Server.mu.
func (w *watcher) push(f frame) {
	select {
	case w.queue <- f:
	default:
		_ = w.conn.Close()
	}
}

// SetWatchBuffer sets how many events may wait for the client of each watch that opens from now on. One more and the
// connection is closed. What a watch begins with, history or initial events, does not count.
func (s *Server) SetWatchBuffer(events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchBuffer = events
}

// Watches returns the number of open watches of the resources named, or of all.
func (s *Server) Watches(gvrs ...schema.GroupVersionResource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.chosen(gvrs) {
		n += len(r.watchers)
	}
	return n
}

// CutWatches closes the connections of the watches of the resources named, or of all, wherever they are.
func (s *Server) CutWatches(gvrs ...schema.GroupVersionResource) {
	s.eachWatcher(gvrs, func(r *resource, w *watcher) {
		_ = w.conn.Close()
		delete(r.watchers, w) // nothing that happens from here on is for it
	})
}

// EndWatches ends the watches of the resources named, or of all, as their timeout does: after what is queued.
func (s *Server) EndWatches(gvrs ...schema.GroupVersionResource) {
	s.eachWatcher(gvrs, func(r *resource, w *watcher) {
		w.push(frame{last: true})
		delete(r.watchers, w)
	})
}

// CutInFrame closes the connections of a resource's watches in the middle of the next event that is sent on them.
func (s *Server) CutInFrame(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resource(gvr).cutNext = true
}

// Silence has the open watches of the resources named, or of all, deliver nothing more, while their connections
// stay: a peer that is gone without a word.
func (s *Server) Silence(gvrs ...schema.GroupVersionResource) {
	s.eachWatcher(gvrs, func(_ *resource, w *watcher) { w.silent = true })
}

// SendError sends an ERROR event on the open watches of a resource and ends them. A nil Status is 410 Expired.
func (s *Server) SendError(gvr schema.GroupVersionResource, st *metav1.Status) {
	if st == nil {
		st = expired("too old resource version")
	}
	s.eachWatcher([]schema.GroupVersionResource{gvr}, func(r *resource, w *watcher) {
		w.push(frame{data: r.document(watch.Error, encode(st))})
		w.push(frame{last: true})
		delete(r.watchers, w)
	})
}

// SendRaw sends bytes on the open watches of a resource, as they are: a frame that is no JSON, half of one, two.
func (s *Server) SendRaw(gvr schema.GroupVersionResource, data []byte) {
	s.eachWatcher([]schema.GroupVersionResource{gvr}, func(_ *resource, w *watcher) { w.push(frame{data: data}) })
}

// MangleFrames passes every frame of a resource's watches through f, which returns what is sent in its place; nil
// ends that. f gets a copy, must not call the server, and is not asked for what SendRaw sends.
func (s *Server) MangleFrames(gvr schema.GroupVersionResource, f func(frame []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resource(gvr).mangle = f
}

// MangleLists passes every page of a resource's lists through f, as MangleFrames does with frames.
func (s *Server) MangleLists(gvr schema.GroupVersionResource, f func(body []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resource(gvr).lists = f
}

var resourceVersions = regexp.MustCompile(`"resourceVersion":"[^"]*",?`)

// Unversioned is for MangleFrames and MangleLists: no resourceVersion anywhere, as from servers that have none.
func Unversioned(document []byte) []byte {
	return bytes.ReplaceAll(resourceVersions.ReplaceAll(document, nil), []byte(",}"), []byte("}"))
}

// Pretty is for MangleFrames: one frame over several lines, as aggregated servers may send.
func Pretty(frame []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, frame, "", "  "); err != nil {
		return frame
	}
	return b.Bytes()
}

// Bookmark sends a bookmark with the current version on the open watches of a resource that allow it, and returns
// that version.
func (s *Server) Bookmark(gvr schema.GroupVersionResource) string {
	s.eachWatcher([]schema.GroupVersionResource{gvr}, s.bookmark)
	return s.Version()
}

// SetBookmarks has every watch that opens from now on and allows it get a bookmark each period. 0, the default, is
// off.
func (s *Server) SetBookmarks(period time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bookmarkEvery = period
}

// bookmark queues a bookmark behind the events that it covers. The caller holds mu.
func (s *Server) bookmark(r *resource, w *watcher) {
	if w.bookmarks && !w.silent && s.version >= w.from {
		w.push(frame{data: r.document(watch.Bookmark, r.bookmark(s.label(s.version), false))})
	}
}

func (s *Server) eachWatcher(gvrs []schema.GroupVersionResource, f func(*resource, *watcher)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.chosen(gvrs) {
		for w := range r.watchers {
			f(r, w)
		}
	}
}

// deliver hands an event to the watches that it concerns. The caller holds mu.
func (s *Server) deliver(r *resource, e event) {
	cut := r.cutNext
	for w := range r.watchers {
		if e.version <= w.from || w.silent {
			continue
		}
		if data := s.encodeEvent(r, w.sel, e); data != nil {
			w.push(frame{data: data, cut: cut})
			r.cutNext = false
		}
	}
}

// encodeEvent says how an event looks in a selection: an object that comes into it is added, one that leaves it is
// deleted, with the state that was last in it and the version of the change. Nil: not at all. The caller holds mu.
func (s *Server) encodeEvent(r *resource, sel selection, e event) []byte {
	was, is := sel.matches(e.old), sel.matches(e.new)
	switch {
	case was && is:
		return r.document(watch.Modified, e.new.raw)
	case is:
		return r.document(watch.Added, e.new.raw)
	case was:
		return r.document(watch.Deleted, e.old.at(e.version, s).raw)
	}
	return nil
}

// document makes the frame of a watch event.
func (r *resource) document(t watch.EventType, object []byte) []byte {
	data := []byte(`{"type":"` + string(t) + `","object":`)
	data = append(append(data, object...), "}\n"...)
	if r.mangle != nil {
		data = r.mangle(data)
	}
	return data
}

// bookmark is the object of a bookmark: a type, a version, and the mark of the end of the initial events.
func (r *resource) bookmark(version string, initialEnd bool) []byte {
	meta := map[string]any{"resourceVersion": version, "creationTimestamp": nil}
	if initialEnd {
		meta["annotations"] = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return encode(map[string]any{"kind": r.kind, "apiVersion": r.apiVersion(), "metadata": meta})
}
