package informer

import (
	"errors"
	"maps"
	"math"
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

// Watches are how an informer's watches are, of which there is one for each of its
// namespaces.
type Watches struct {
	All, Up int
	Down    map[Reason]int // by what keeps them from going on, where something does
	// Heard is when something came on the watch of which nothing has been heard for longest.
	// Zero: on one of them nothing ever has, or there is none.
	Heard time.Time
}

// Watches are there once the resource is resolved; what keeps it from that is down.
func (i *Informer) Watches() Watches {
	w := Watches{Down: map[Reason]int{}}
	watches := i.watches.Load()
	if watches == nil {
		if err := *i.status.Load(); !errors.Is(err, ErrNotListed) {
			w.Down[ReasonOf(err)]++
		}
		return w
	}
	first := int64(math.MaxInt64)
	for _, one := range *watches {
		h := one.requests.health
		first = min(first, h.heard.Load())
		if w.All++; h.is() {
			w.Up++
		} else if reason := h.reason(); reason != "" {
			w.Down[reason]++
		}
	}
	if first > 0 {
		w.Heard = time.Unix(0, first)
	}
	return w
}

// phase is what the watches do, and since when one waits.
func (i *Informer) phase() (phase status.Phase, since time.Time) {
	watches := i.watches.Load()
	if watches == nil {
		return status.Starting, since
	}
	for _, w := range *watches {
		if !w.requests.health.hasBegun() {
			return status.Listing, time.Time{}
		}
		if down := w.requests.health.downSince(); !down.IsZero() && (since.IsZero() || down.Before(since)) {
			phase, since = status.Waiting, down
		}
	}
	if phase == "" {
		phase = status.Watching
	}
	return phase, since
}
