package kafka

import (
	"slices"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// item is one event on its way into one partition.
type item struct {
	event     *event.Event
	done      func(error)
	all       *fanout // of a marker, which goes to all partitions
	key       []byte
	size      int
	tombstone bool
	since     time.Time
	stamp     time.Time // of the record, where the topic does not take the event's own
	next      *item     // in the free list
}

// timestamp is the record's, in milliseconds.
func (it *item) timestamp() int64 {
	if !it.stamp.IsZero() {
		return it.stamp.UnixMilli()
	}
	return it.event.Time.UnixMilli()
}

// accept takes an event into the window and finds its place. It returns what ended at
// once. The mutex is held.
func (s *Sink) accept(e *event.Event, done func(error)) []ended {
	s.scratch = s.topic.Append(s.scratch[:0], e)
	t := s.topics[string(s.scratch)]
	if t == nil {
		if err := checkName(s.scratch); err != nil {
			return []ended{{&item{done: done}, err}}
		}
		t = &topic{name: string(s.scratch)}
		s.topics[t.name] = t
		s.wantCluster()
	}
	it := s.newItem()
	it.event, it.done = e, done
	it.key = appendKey(it.key[:0], e)
	it.tombstone = s.cfg.Tombstones && e.Type == event.Deleted
	it.size = estimate(e, it.key, it.tombstone)
	it.since = time.Now()
	s.held.Add(it.size)
	if len(t.partitions) == 0 {
		if cause := s.absence(t); cause != nil && t.unsorted.bytes+it.size > holdBytes {
			return s.leave(nil, it, cause)
		}
		if len(t.unsorted.items) == 0 {
			s.wantCluster()
		}
		t.unsorted.push(it)
		return nil
	}
	return s.sort(nil, t, it)
}

// sort puts an item into its partition's queue, and a marker into all of them.
func (s *Sink) sort(ends []ended, t *topic, it *item) []ended {
	if !it.event.Type.IsMarker() {
		return s.enqueue(ends, t.partitions[partitionOf(it.key, len(t.partitions))], it)
	}
	all := &fanout{left: len(t.partitions), done: it.done}
	for i, p := range t.partitions {
		copied := it
		if i > 0 {
			copied = s.newItem()
			key := copied.key
			*copied = *it
			copied.key = key[:0]
			copied.key = append(copied.key, it.key...)
			s.held.Add(it.size)
		}
		copied.all = all
		ends = s.enqueue(ends, p, copied)
	}
	return ends
}

// fanout ends a marker when its last copy has ended.
type fanout struct {
	left int
	err  error
	done func(error)
}

// ended is an item with its end.
type ended struct {
	item *item
	err  error
}

// call tells the lane. The sink's mutex is not held.
func (e ended) call() { e.item.done(e.err) }

// leave takes an item out of the window. It adds the end of its event, unless other
// copies of a marker are still under way.
func (s *Sink) leave(ends []ended, it *item, err error) []ended {
	s.held.Leave(it.size)
	if all := it.all; all != nil {
		if all.err == nil {
			all.err = err
		}
		if all.left--; all.left > 0 {
			return ends
		}
		err = all.err
	}
	return append(ends, ended{it, err})
}

// queue is what waits for one partition.
type queue struct {
	items []*item
	bytes int
}

func (q *queue) push(it *item) {
	q.items = append(q.items, it)
	q.bytes += it.size
}

// unshift puts items back before the others.
func (q *queue) unshift(items []*item) {
	q.items = slices.Insert(q.items, 0, items...)
	for _, it := range items {
		q.bytes += it.size
	}
}

// drop ends all that waits in a queue.
func (s *Sink) drop(ends []ended, q *queue, err error) []ended {
	for _, it := range q.items {
		ends = s.leave(ends, it, err)
	}
	clear(q.items)
	q.items, q.bytes = q.items[:0], 0
	return ends
}

func (s *Sink) newItem() *item {
	it := s.free
	if it == nil {
		return new(item)
	}
	s.free = it.next
	*it = item{key: it.key}
	return it
}

// recycle calls the ends, and keeps their items for later events.
func (s *Sink) recycle(ends []ended) {
	for _, end := range ends {
		end.call()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, end := range ends {
		end.item.event, end.item.done, end.item.all = nil, nil, nil
		end.item.next, s.free = s.free, end.item
	}
}
