package informer

import (
	"context"
	"sync"

	"github.com/kbridge-io/kbridge/event"
)

// tidy puts the bodies of an index aside behind the path of events: of what the state
// has, since nobody will ask for it soon, and of what stands in a file that is mostly
// waste. The zero tidy has nothing to do.
type tidy struct {
	mu     sync.Mutex
	stored map[string]*event.Object // by key, what the state has got since the last look
	wake   chan struct{}            // there is something in stored; nil: bodies stay where they are
}

// Keep implements bridge.Index.
func (v *view) Keep(o *event.Object) *event.Object { return o.PutAside(v.aside) }

// Stored implements bridge.Index.
func (v *view) Stored(objects map[string]*event.Object) {
	t := &v.tidy
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wake == nil {
		return
	}
	if t.stored == nil {
		t.stored = objects
	} else {
		for key, o := range objects {
			t.stored[key] = o
		}
	}
	select {
	case t.wake <- struct{}{}:
	default: // it has not looked yet
	}
}

// take returns what is to be put aside.
func (t *tidy) take() map[string]*event.Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	stored := t.stored
	t.stored = nil
	return stored
}

// keepTidy puts bodies aside until ctx ends.
func (v *view) keepTidy(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.tidy.wake:
		}
		for key, o := range v.tidy.take() {
			if o != nil && ctx.Err() == nil {
				v.move(key, o, o.PutAside(v.aside))
			}
		}
		if v.aside.Wasteful() {
			v.compact(ctx)
		}
	}
}

// compact puts what stands in sparse segments elsewhere, so that their place is free.
func (v *view) compact(ctx context.Context) {
	for _, key := range v.Keys() {
		if ctx.Err() != nil {
			return
		}
		var o *event.Object
		v.With(key, func(is *event.Object) { o = is })
		if o == nil || !o.Aside.Sparse() {
			continue
		}
		packed, err := o.Packed(nil)
		if err != nil {
			continue // it is counted, and stays where it is
		}
		moved := *o
		moved.Body = packed
		v.move(key, o, moved.PutAside(v.aside))
	}
}

// move makes moved the index's object where that is o still.
func (v *view) move(key string, o, moved *event.Object) {
	if moved == o {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if is := v.index[key]; is.Object == o {
		v.put(key, indexed{moved, is.round, is.pass})
	} else {
		moved.Aside.Release()
	}
}
