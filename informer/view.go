package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/spill"
)

// Handler takes what one view learns, from one goroutine, in order.
type Handler interface {
	// Delta hands over one delta. It blocks while there is no room for it, which
	// blocks the watch, and returns an error only when ctx has ended and the delta
	// has not been taken. The delta is the caller's again when it returns.
	Delta(ctx context.Context, d *event.Delta) error
	// Position says that all that the server had up to resourceVersion has been
	// handed over: after a live delta, and at a bookmark. The version is a label:
	// versions need not compare.
	Position(resourceVersion string)
	// ListBegins says that a list is being handed over, whose items come in any order:
	// until ListEnds says its version no position holds. snapshot is the id of the
	// first snapshot where this is the watch's first list, else empty.
	ListBegins(snapshot string)
	ListEnds(resourceVersion string)
	// Moves says that what comes is of another version of the resource, until a list has
	// ended with bodies of the version before.
	Moves(r *event.Resource)
	// Resumes says that the watch goes on from Known.Position, and which version the
	// server has reached: what comes up to there may have been handed over by the
	// earlier run.
	Resumes(resourceVersion string)
	// Verified says that the objects were compared with those that the server had at
	// resourceVersion, and that what differed was mended. It does not block.
	Verified(id string, compared, differed int, resourceVersion string)
	// Restated says that the index has another body for a state that it had.
	Restated(o *event.Object)
	// Sinks are the names of those that take snapshots. Each has them by itself, so that
	// none waits for another one that is slow or away.
	Sinks() []string
	// Snapshot says again to a sink what is there, at its pace, and returns when it has
	// it. An error says that it has not: ctx has ended, or another one is under way. One
	// goroutine calls it for each sink.
	Snapshot(ctx context.Context, sink, id string) error
}

// Known is what a handler remembers of a view from an earlier run.
type Known struct {
	Objects []*event.Object
	// Position is the version at which the objects are what was there; empty: at none.
	Position string
	// Listed says that a first list was handed over whole.
	Listed bool
	// Snapshot is the id of a first snapshot that was not completed, or empty.
	Snapshot string
	// Again are the ids of later snapshots that were not completed, by sink.
	Again map[string]string
}

// view is the store under one Reflector: the index of one watch, and what makes
// deltas of the differences. Only the Reflector's goroutine changes what is there (its
// resync period is zero). Snapshots read the index from another one, and a third puts
// bodies aside: mu is held from a change until the delta has been handed over, so that
// nobody sees a state before the lanes do, and is not held between the objects of a list.
//
// The Reflector logs what a store returns as an error and goes on past the event,
// so no method here fails: where a delta can not be handed over they block, and
// return nothing but the end of the process.
type view struct {
	resource *event.Resource
	handler  Handler
	narrowed narrowed
	packer   *packer
	aside    *spill.File // where bodies go that are not needed soon; nil: they stay in memory
	tidy     tidy
	mu       turn
	index    map[string]indexed // by event.Object's key
	// at is the version at which the index is what was there. Empty: a list is being
	// compared with it, or has not come to its end.
	at string
	// lost says that the watch can not go on from at, so that a list is necessary;
	// otherHistory that this is because the server tells another history. They are set
	// from several goroutines.
	lost, otherHistory atomic.Bool
	// resume is the version with which the next list is answered: it is the index itself.
	// Empty: the server is asked.
	resume   string
	resumes  bool                // the handler is to be told when the watch begins
	snapshot string              // the id of a first snapshot to go on with, or empty
	round    uint32              // the number of the current list
	pass     uint32              // the number of the current comparison; see verifier
	removed  map[string]struct{} // the uids of what the watch has deleted since it began; nil: there is none
	// epoch is that of the history which the server is known to tell: what comes is of it.
	epoch uint32
	// restored says that the current list is the first one of a history: equal versions
	// may be of different states.
	restored bool
	changed  time.Time // when a delta was handed over last
	stamp    int64     // the last one of an object without a version; see tellApart
	// outrun says that an earlier run may have told sinks of later states than the index has,
	// and that the server's history is not proven since: where it is another one, the watch
	// does not tell these again, and what sinks have of an object is not known.
	outrun bool
	// foreign says that the index has bodies of another version or another cluster,
	// until the first list has been compared.
	foreign bool
	begun   bool        // this run has listed or resumed
	listed  atomic.Bool // the first list has been handed over, now or in an earlier run
	// delivery ends when nobody takes deltas any more; reading ends before it, when
	// no new ones shall be made. The Reflector has no context for its store.
	delivery context.Context
	reading  context.Context
	onBegun  func(resumed bool)
	doubt    *doubt
	health   *health
	log      *slog.Logger
	counters viewCounters
	now      func() time.Time
}

// indexed is an object, and the list and the comparison that saw it last.
type indexed struct {
	*event.Object
	round, pass uint32
}

type viewCounters struct {
	deltas                         [event.Deleted + 1]prometheus.Counter
	excluded, unchanged, bookmarks prometheus.Counter
	objects, bytes                 prometheus.Gauge
	size, count                    int64 // this view's share of the gauges
	tally                          *tally
}

var (
	_ cache.ReflectorStore         = (*view)(nil)
	_ cache.ReflectorBookmarkStore = (*view)(nil)
)

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
	defer o.release()
	v.mu.Lock()
	defer v.mu.Unlock()
	o.Object.Epoch = v.epoch
	if v.narrowed.leavesOut(o.Object.Namespace) {
		v.counters.excluded.Inc()
	} else if err := v.change(o, deleted); err != nil {
		return err
	}
	v.moveTo(o.GetResourceVersion())
	return nil
}

// moveTo says that the index is what was there at that version.
func (v *view) moveTo(resourceVersion string) {
	v.at = resourceVersion
	v.handler.Position(resourceVersion)
	v.health.progress()
}

// goOn prepares the next attempt: the watch goes on from where it was, if it can.
func (v *view) goOn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.lost.Load() && v.at != "" && v.at != "0" { // 0 is any version: a watch from there tells of no delete
		v.resume = v.at
	}
}

// becomes has what comes be of another version of the resource.
func (v *view) becomes(r *event.Resource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.resource, v.foreign = r, true
	v.handler.Moves(r)
}

// change makes o the state of its object, or its last one.
func (v *view) change(o *object, deleted bool) error {
	var plain []byte
	if o.plain != nil {
		plain = *o.plain
		v.packer.keep(&o.Object, plain, nil)
	}
	if deleted {
		return v.remove(&o.Object, plain)
	}
	return v.set(&o.Object, event.Delta{Plain: plain})
}

// Replace takes a list: the state of the whole selection. What differs from the
// index becomes deltas; the first list finds an empty index and adds everything.
func (v *view) Replace(list []any, resourceVersion string) error {
	if v.resume != "" {
		v.resume = "" // the list is the index
		v.begin(true)
		return nil
	}
	like := event.Delta{Inferred: true}
	if !v.listed.Load() {
		if v.snapshot == "" {
			v.snapshot = event.NewSnapshotID(v.now())
		}
		like = event.Delta{Snapshot: v.snapshot}
	}
	v.health.handsOver(true)
	defer v.health.handsOver(false)
	v.beginList(list)
	v.handler.ListBegins(like.Snapshot)
	if err := v.compare(list, like); err != nil {
		return err
	}
	v.handler.ListEnds(resourceVersion)
	v.endList(resourceVersion)
	v.begin(false)
	return nil
}

// beginList makes the index wait for a list, and ends the history that it is of where the
// list tells another one.
func (v *view) beginList(list []any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.restored = v.otherHistory.Swap(false) || v.isOfAnotherHistory(list)
	if v.restored {
		v.epoch = v.resource.History.End(v.epoch)
		v.log.Warn("the server tells another history than before, as after a restored backup: what differs is mended", "epoch", v.epoch)
	}
	v.at = ""
	v.lost.Store(false)
	v.doubt.settle()
	v.round++
}

func (v *view) endList(resourceVersion string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at, v.epoch = resourceVersion, v.resource.History.Epoch()
	v.foreign, v.restored, v.outrun = false, false, false
	v.listed.Store(true)
}

// begin tells, once, that the index is what was there when this run began.
func (v *view) begin(resumed bool) {
	if !v.begun {
		v.begun = true
		v.onBegun(resumed)
		v.health.begins()
	}
}

// compare makes deltas of what differs between the list and the index.
func (v *view) compare(list []any, like event.Delta) error {
	for i, obj := range list {
		if _, ok := obj.(*object); !ok {
			return fmt.Errorf("BUG: item %d of the list of %s is a %T", i, v.resource.Name(), obj)
		}
	}
	// Neighbours share pages of the state: what is stored together is to be together.
	// client-go gathers a watch list in a map.
	slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(*object).Key(), b.(*object).Key()) })
	for _, obj := range list {
		if err := v.reading.Err(); err != nil {
			return err // stopping; the rest is for the next start
		}
		o := obj.(*object)
		if v.narrowed.leavesOut(o.Object.Namespace) {
			v.counters.excluded.Inc()
			continue
		}
		o.Object.Epoch = v.epoch
		if err := v.locked(func() error { return v.set(&o.Object, like) }); err != nil {
			return err
		}
	}
	for _, key := range v.unseen() {
		if err := v.reading.Err(); err != nil {
			return err
		}
		// Only its body may have been put aside meanwhile.
		if err := v.locked(func() error { return v.missed(v.index[key].Object) }); err != nil {
			return err
		}
	}
	return nil
}

// unseen are the keys of what the current list did not have.
func (v *view) unseen() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var keys []string
	for key, known := range v.index {
		if known.round != v.round {
			keys = append(keys, key)
		}
	}
	return keys
}

func (v *view) locked(do func() error) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return do()
}

// Keys implements bridge.Index.
func (v *view) Keys() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	keys := make([]string, 0, len(v.index))
	for key := range v.index {
		keys = append(keys, key)
	}
	return keys
}

// With implements bridge.Index. It waits while a delta waits for room.
func (v *view) With(key string, do func(*event.Object)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	do(v.index[key].Object)
}

// load makes the index what an earlier run knew.
func (v *view) load(known *Known) {
	for _, o := range known.Objects {
		if o.Dictionary != nil {
			v.packer.adopt(o.Dictionary)
		}
		v.put(o.Key(), indexed{Object: o, round: v.round})
	}
	v.listed.Store(known.Listed)
	v.snapshot = known.Snapshot
	v.foreign = known.Position == ""
	v.outrun = len(known.Objects) > 0
	if known.Listed {
		v.at = known.Position
	}
	v.goOn()
	v.resumes = v.resume != ""
}

// Bookmark moves the position to a version that the server says was reached.
func (v *view) Bookmark(resourceVersion string) error {
	v.counters.bookmarks.Inc()
	if resourceVersion == "" {
		return nil // it says nothing
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.moveTo(resourceVersion)
	return nil
}

// Resync does nothing: the Reflector's own resync has no context and stalls relists.
func (v *view) Resync() error { return nil }

// put makes an object the one of its key in the index.
func (v *view) put(key string, o indexed) {
	kept := o.Kept()
	if old := v.index[key].Object; old != nil {
		kept -= old.Kept()
		old.Aside.Release()
	}
	v.index[key] = o
	v.counters.resize(len(v.index), kept)
}

// set makes o the state of its object. like says how kbridge learnt of it.
func (v *view) set(o *event.Object, like event.Delta) error {
	key := o.Key()
	old, known := v.index[key]
	if isUnversioned(o) {
		v.tellApart(o, old.Object)
	}
	if known && old.UID != o.UID {
		// Deleted and made anew under the same name, unseen.
		if err := v.missed(old.Object); err != nil {
			return err
		}
		known = false
	}
	if known && old.Same(o) && !(v.restored && (v.outrun || !sameState(old.Object, o))) {
		// Another body for the same state: under other rules, of another API version, or
		// with other defaults. Lists and watches order the members differently, so equal
		// lengths are looked into only where there is a reason.
		o.Epoch = old.Epoch // it has been told so
		if old.Size() != o.Size() || v.foreign && !sameJSON(old.Object, o) {
			v.handler.Restated(o)
		}
		v.put(key, indexed{Object: o, round: v.round})
		v.counters.unchanged.Inc()
		return nil
	}
	v.put(key, indexed{Object: o, round: v.round})
	d := like
	d.Type, d.Object = event.Added, o
	if known {
		d.Type, d.Old = event.Updated, old.Object
		if d.Snapshot != "" {
			// An earlier run announced it before its first list was cut short.
			d.Snapshot, d.Inferred = "", true
		}
	}
	return v.deliver(&d)
}

// sameJSON says that two bodies are the same; one that can not be read is not.
func sameJSON(a, b *event.Object) bool {
	one, err := a.JSON()
	if err != nil {
		return false
	}
	other, err := b.JSON()
	return err == nil && bytes.Equal(one, other)
}

// sameState says that two bodies mean the same: lists and watches order the members
// differently. Where one can not be read they are taken for different.
func sameState(a, b *event.Object) bool {
	if sameJSON(a, b) {
		return true
	}
	var states [2]any
	for i, o := range []*event.Object{a, b} {
		body, err := o.JSON()
		if err != nil || json.Unmarshal(body, &states[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(states[0], states[1])
}

// remove handles a deletion that the watch delivered.
func (v *view) remove(o *event.Object, plain []byte) error {
	d := event.Delta{Type: event.Deleted, Object: o, Plain: plain}
	switch old := v.index[o.Key()].Object; {
	case old == nil:
	case old.UID == o.UID:
		d.Old = old
		v.forget(old)
	default:
		// Another history tells of another object of the name: the one that is known went before
		// it. A sink that is behind would take this one for what it has.
		if err := v.missed(old); err != nil {
			return err
		}
	}
	if v.removed != nil {
		v.removed[o.UID] = struct{}{}
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
	delete(v.index, o.Key())
	o.Aside.Release()
	v.counters.resize(len(v.index), -o.Kept())
}

func (v *view) deliver(d *event.Delta) error {
	d.Resource, d.Time = v.resource, v.now()
	if err := v.handler.Delta(v.delivery, d); err != nil {
		return err
	}
	v.counters.deltas[d.Type].Inc()
	v.counters.tally.changes.Add(1)
	v.counters.tally.changed.Store(d.Time.UnixNano())
	v.changed = d.Time
	return nil
}

// release takes the view's share out of the gauges.
func (v *view) release() {
	v.counters.objects.Sub(float64(v.counters.count))
	v.counters.tally.objects.Add(-v.counters.count)
	v.counters.bytes.Sub(float64(v.counters.size))
}

// resize follows the index's size in the gauges: objects is its length, delta the
// change in bytes.
func (c *viewCounters) resize(objects, delta int) {
	c.bytes.Add(float64(delta))
	c.objects.Add(float64(int64(objects) - c.count))
	c.tally.objects.Add(int64(objects) - c.count)
	c.size, c.count = c.size+int64(delta), int64(objects)
}
