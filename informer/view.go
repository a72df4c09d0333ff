package informer

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"github.com/kbridge-io/kbridge/event"
)

// Handler takes what one view learns, from one goroutine, in order.
type Handler interface {
	// Delta hands over one delta. It blocks while there is no room for it, which
	// blocks the watch, and returns an error only when ctx has ended and the delta
	// has not been taken. The delta is the caller's again when it returns.
	Delta(ctx context.Context, d *event.Delta) error
	// Position says that all that the server had up to resourceVersion has been
	// handed over: after a live delta, at a bookmark, and when a list is complete.
	// The version is a label: versions need not compare. An empty one makes the
	// position void: a list is being handed over, whose items come in any order.
	Position(resourceVersion string)
}

// view is the store under one Reflector: the index of one watch, and what makes
// deltas of the differences. Only the Reflector's goroutine uses it (its resync
// period is zero), so it needs no lock.
//
// The Reflector logs what a store returns as an error and goes on past the event,
// so no method here fails: where a delta can not be handed over they block, and
// return nothing but the end of the process.
type view struct {
	resource *event.Resource
	handler  Handler
	exclude  map[string]bool // namespaces left out
	index    map[string]indexed
	round    uint32 // the number of the current list
	listed   bool   // the first list has been handed over
	// delivery ends when nobody takes deltas any more; reading ends before it, when
	// no new ones shall be made. The Reflector has no context for its store.
	delivery context.Context
	reading  context.Context
	onListed func()
	counters viewCounters
	now      func() time.Time
}

// indexed is an object and the list that saw it last.
type indexed struct {
	*event.Object
	round uint32
}

type viewCounters struct {
	deltas                         [event.Synced + 1]prometheus.Counter
	excluded, unchanged, bookmarks prometheus.Counter
	objects, bytes                 prometheus.Gauge
	size, count                    int64 // this view's share of the gauges
}

var (
	_ cache.ReflectorStore         = (*view)(nil)
	_ cache.ReflectorBookmarkStore = (*view)(nil)
)

func newViewCounters(m *Metrics, resource string) viewCounters {
	c := viewCounters{
		excluded:  m.excluded.WithLabelValues(resource),
		unchanged: m.unchanged.WithLabelValues(resource),
		bookmarks: m.bookmarks.WithLabelValues(resource),
		objects:   m.objects.WithLabelValues(resource),
		bytes:     m.bytes.WithLabelValues(resource),
	}
	for _, t := range []event.Type{event.Added, event.Updated, event.Deleted, event.Synced} {
		c.deltas[t] = m.deltas.WithLabelValues(resource, t.String())
	}
	return c
}

// Add takes an ADDED event of the watch.
func (v *view) Add(obj any) error { return v.live(obj, false) }

// Update takes a MODIFIED event of the watch.
func (v *view) Update(obj any) error { return v.live(obj, false) }

// Delete takes a DELETED event of the watch, with the object's last state.
func (v *view) Delete(obj any) error { return v.live(obj, true) }

// live handles one event of the watch.
func (v *view) live(obj any, deleted bool) error {
	o, ok := obj.(*object)
	if !ok {
		return fmt.Errorf("BUG: the watch of %s delivered a %T", v.resource.Name(), obj)
	}
	if v.exclude[o.Object.Namespace] {
		v.counters.excluded.Inc()
	} else {
		var err error
		if deleted {
			err = v.remove(&o.Object)
		} else {
			err = v.set(&o.Object, event.Delta{})
		}
		if err != nil {
			return err
		}
	}
	v.handler.Position(o.Object.ResourceVersion)
	return nil
}

// Replace takes a list: the state of the whole selection. What differs from the
// index becomes deltas; the first list finds an empty index and adds everything.
func (v *view) Replace(list []any, resourceVersion string) error {
	like := event.Delta{Inferred: true}
	if !v.listed {
		like = event.Delta{Snapshot: strconv.FormatInt(v.now().UnixNano(), 36)}
	}
	v.round++
	v.handler.Position("")
	for _, obj := range list {
		if err := v.reading.Err(); err != nil {
			return err // stopping; the rest is for the next start
		}
		o, ok := obj.(*object)
		if !ok {
			return fmt.Errorf("BUG: the list of %s has a %T", v.resource.Name(), obj)
		}
		if v.exclude[o.Object.Namespace] {
			v.counters.excluded.Inc()
			continue
		}
		if err := v.set(&o.Object, like); err != nil {
			return err
		}
	}
	for _, known := range v.index {
		if known.round == v.round {
			continue
		}
		if err := v.reading.Err(); err != nil {
			return err
		}
		if err := v.missed(known.Object); err != nil {
			return err
		}
	}
	v.handler.Position(resourceVersion)
	if !v.listed {
		v.listed = true
		v.onListed()
	}
	return nil
}

// Bookmark moves the position to a version that the server says was reached.
func (v *view) Bookmark(resourceVersion string) error {
	v.counters.bookmarks.Inc()
	v.handler.Position(resourceVersion)
	return nil
}

// Resync does nothing: the Reflector's own resync has no context and stalls relists.
func (v *view) Resync() error { return nil }

// set makes o the state of its object. like says how kbridge learnt of it.
func (v *view) set(o *event.Object, like event.Delta) error {
	key := indexKey(o)
	old, known := v.index[key]
	if known && old.UID != o.UID {
		// Deleted and made anew under the same name, unseen.
		if err := v.missed(old.Object); err != nil {
			return err
		}
		known = false
	}
	if known && old.Same(o) {
		v.index[key] = indexed{old.Object, v.round}
		v.counters.unchanged.Inc()
		return nil
	}
	v.index[key] = indexed{o, v.round}
	v.counters.resize(len(v.index), len(o.JSON))
	d := like
	d.Type, d.Object = event.Added, o
	if known {
		v.counters.resize(len(v.index), -len(old.JSON))
		d.Type, d.Old = event.Updated, old.Object
	}
	return v.deliver(&d)
}

// remove handles a deletion that the watch delivered.
func (v *view) remove(o *event.Object) error {
	old := v.index[indexKey(o)]
	d := event.Delta{Type: event.Deleted, Object: o, Old: old.Object}
	if old.Object != nil && old.UID != o.UID {
		d.Old = nil
	}
	if d.Old != nil {
		v.forget(old.Object)
	}
	return v.deliver(&d)
}

// missed handles a deletion that nobody saw: the last known state and its version
// are all there is.
func (v *view) missed(o *event.Object) error {
	v.forget(o)
	return v.deliver(&event.Delta{Type: event.Deleted, Object: o, Old: o, Inferred: true})
}

func (v *view) forget(o *event.Object) {
	delete(v.index, indexKey(o))
	v.counters.resize(len(v.index), -len(o.JSON))
}

func (v *view) deliver(d *event.Delta) error {
	d.Resource, d.Time = v.resource, v.now()
	if err := v.handler.Delta(v.delivery, d); err != nil {
		return err
	}
	v.counters.deltas[d.Type].Inc()
	return nil
}

// release takes the view's share out of the gauges.
func (v *view) release() {
	v.counters.objects.Sub(float64(v.counters.count))
	v.counters.bytes.Sub(float64(v.counters.size))
}

func indexKey(o *event.Object) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// resize follows the index's size in the gauges: objects is its length, delta the
// change in bytes.
func (c *viewCounters) resize(objects, delta int) {
	c.bytes.Add(float64(delta))
	c.objects.Add(float64(int64(objects) - c.count))
	c.size, c.count = c.size+int64(delta), int64(objects)
}
