package informer

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbridge-io/kbridge/internal/status"
)

// tally counts what an informer did, for its Status: the metrics are of a resource, of
// which there may be several informers. Any goroutine may use it.
type tally struct {
	objects atomic.Int64
	changes atomic.Uint64
	changed atomic.Int64 // when the last change was handed over, in nanoseconds; 0: none was
	errors  atomic.Uint64
	last    atomic.Pointer[status.Error]

	mu    sync.Mutex
	lists map[string]uint64 // by reason
}

func (t *tally) failed(err error) {
	t.errors.Add(1)
	t.last.Store(&status.Error{Time: time.Now().UTC(), Text: err.Error()})
}

func (t *tally) listed(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lists == nil {
		t.lists = map[string]uint64{}
	}
	t.lists[reason]++
}

// failed counts a list, a watch or a document that failed.
func (i *Informer) failed(err error) {
	i.metrics.errors.Inc()
	i.tally.failed(err)
}

// Status is how the informer is. What its sinks have of it it does not know.
func (i *Informer) Status() status.Resource {
	t := &i.tally
	s := status.Resource{
		Entry: i.opts.Entry, Resource: i.Name(), Namespaces: i.opts.Resource.Namespaces,
		Objects: t.objects.Load(), Changes: t.changes.Load(), Errors: t.errors.Load(), LastError: t.last.Load(),
	}
	if at := t.changed.Load(); at != 0 {
		s.LastChange = time.Unix(0, at).UTC()
	}
	t.mu.Lock()
	s.Lists = maps.Clone(t.lists)
	t.mu.Unlock()
	s.Phase, s.Since = i.phase()
	return s
}

// phase is what the watches do, and since when one waits.
func (i *Informer) phase() (phase status.Phase, since time.Time) {
	watches := i.watches.Load()
	if watches == nil {
		return status.Starting, since
	}
	if *i.status.Load() != nil {
		return status.Listing, since
	}
	for _, w := range *watches {
		if down := w.requests.up.downSince(); !down.IsZero() && (since.IsZero() || down.Before(since)) {
			phase, since = status.Waiting, down
		}
	}
	if phase == "" {
		phase = status.Watching
	}
	return phase, since
}

// uptime says whether a watch goes on, and if not since when. Any goroutine may read it.
type uptime struct {
	down atomic.Pointer[time.Time] // since when; nil: it is up
}

func newUptime() *uptime {
	u := &uptime{}
	u.set(false)
	return u
}

// set notes whether it is up. The Reflector's goroutine calls it.
func (u *uptime) set(up bool) {
	switch {
	case up:
		u.down.Store(nil)
	case u.down.Load() == nil:
		now := time.Now().UTC()
		u.down.Store(&now)
	}
}

// wait says that it is waited for from now on, unless it is up.
func (u *uptime) wait() {
	now := time.Now().UTC()
	if since := u.down.Load(); since != nil {
		u.down.CompareAndSwap(since, &now)
	}
}

func (u *uptime) is() bool { return u.down.Load() == nil }

// downSince is zero while it is up.
func (u *uptime) downSince() time.Time {
	if since := u.down.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
