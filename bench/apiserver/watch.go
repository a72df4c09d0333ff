package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
)

// bookmarkPeriod is that of a real API server.
const bookmarkPeriod = time.Minute

// watcher is an open watch.
type watcher struct {
	orders chan order
	gone   chan struct{} // closed when the watch has ended
}

// order is a stream of changes to send.
type order struct {
	changes source
	done    chan outcome // has room for the one there is
}

type outcome struct {
	sent control.Sent
	err  error
}

// watch serves a watch until its client, or the cluster, goes. Its timeout is left out:
// no bench takes as long.
func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	st := s.state()
	query := r.URL.Query()
	flush := http.NewResponseController(w).Flush
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if flush() != nil { // clients wait for the header
		return
	}
	if query.Get("sendInitialEvents") == "true" {
		s.lists.Add(1)
		if sendInitialEvents(w, st) != nil {
			return
		}
	} else if version, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64); err != nil || version < st.newest {
		// There is no history.
		_, _ = fmt.Fprintf(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: %s (%d)","reason":"Expired","code":410}}`+"\n",
			query.Get("resourceVersion"), st.newest)
		return
	}
	if flush() != nil {
		return
	}
	watch := &watcher{orders: make(chan order), gone: make(chan struct{})}
	if !s.open(watch, st) {
		return
	}
	defer s.close(watch)
	ticker := time.NewTicker(bookmarkPeriod)
	defer ticker.Stop()
	for {
		var err error
		select {
		case o := <-watch.orders:
			err = o.run(r.Context(), w, flush)
		case <-ticker.C:
			s.mu.Lock()
			frame := st.kind.AppendBookmark(nil, s.newest, false)
			s.mu.Unlock()
			if _, err = w.Write(frame); err == nil {
				err = flush()
			}
		case <-st.ended:
			return
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// open lets changes be sent to the watch, unless its cluster is gone.
func (s *server) open(w *watcher, st state) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != st.ended {
		return false
	}
	s.watches = append(slices.Clone(s.watches), w)
	return true
}

func (s *server) close(w *watcher) {
	close(w.gone)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches = slices.DeleteFunc(slices.Clone(s.watches), func(other *watcher) bool { return other == w })
}

// run sends the changes. The error is one of the watch's connection, which ends it.
func (o order) run(ctx context.Context, w http.ResponseWriter, flush func() error) error {
	began := time.Now()
	n, err := o.changes.write(ctx, w, flush)
	o.done <- outcome{control.Sent{Began: began, Ended: time.Now(), Bytes: n}, err}
	return err
}

// sendInitialEvents sends the objects as if each were added, and says when that is over.
func sendInitialEvents(w http.ResponseWriter, st state) error {
	buf := make([]byte, 0, chunk)
	for i := range st.versions {
		if cap(buf)-len(buf) < chunk/8 {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		buf = st.kind.AppendFrame(buf, "ADDED", objects.State{Index: i, Version: st.versions[i].Load()})
	}
	_, err := w.Write(st.kind.AppendBookmark(buf, st.newest, true))
	return err
}
