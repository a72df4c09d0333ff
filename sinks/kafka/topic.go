package kafka

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// maxTopicName is Kafka's limit.
const maxTopicName = 249

const (
	// holdFor is how long an event waits in the sink for a leader: most elections are
	// over by then. What waits longer goes back to the lane, which tries again.
	holdFor = time.Second
	// holdBytes is how much may wait so in one partition.
	holdBytes = 1 << 20
)

// topic is one topic that events go to. The sink's mutex guards it and what it has.
type topic struct {
	name string
	// partitions is empty until the topic is known. Events wait in unsorted then.
	partitions []*partition
	unsorted   queue
	err        error     // why it is not known; nil as long as nobody has asked
	limit      int       // the largest batch that it takes, 0 where that is not known
	described  time.Time // when its settings were read; zero: they are to be read
	notes      []note    // what was logged about them
}

// partition is one partition of a topic.
type partition struct {
	queue
	topic  *topic
	index  int32
	leader *broker // nil: there is none, or it is not known
	err    error   // why
	epoch  int32   // the leader's, which grows with each election
	// doubted is until when a leader of this epoch is taken for the one that denied it.
	doubted time.Time
	busy    bool // a batch is under way
	listed  bool // in the leader's list
	limit   int  // what a batch may have after a larger one was refused, or 0
	me      identity
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

// item is one event on its way into one partition.
type item struct {
	event     *event.Event
	done      func(error)
	all       *fanout // of a marker, which goes to all partitions
	key       []byte
	size      int
	tombstone bool
	since     time.Time
	next      *item // in the free list
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
	s.inflight++
	s.bytes += it.size
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

// checkName checks what the template's fixed text and values make together.
func checkName(name []byte) error {
	switch {
	case len(name) > maxTopicName:
		return sinks.Permanent(fmt.Errorf("topic %.60s… has %d characters, Kafka takes %d", name, len(name), maxTopicName))
	case string(name) == "." || string(name) == "..":
		return sinks.Permanent(fmt.Errorf("%q is no name of a topic", name))
	}
	return nil
}

// sort puts an item into its partition's queue, and a marker into all of them.
func (s *Sink) sort(ends []ended, t *topic, it *item) []ended {
	if !isMarker(it.event) {
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
			s.inflight++
			s.bytes += it.size
		}
		copied.all = all
		ends = s.enqueue(ends, p, copied)
	}
	return ends
}

func (s *Sink) enqueue(ends []ended, p *partition, it *item) []ended {
	if cause := p.trouble(); cause != nil && p.bytes+it.size > holdBytes {
		return s.leave(ends, it, cause)
	}
	before := p.bytes
	p.push(it)
	p.list()
	if full := s.batchLimit(p); p.leader != nil && (before == 0 || before < full && p.bytes >= full) {
		p.leader.nudge()
	}
	if p.leader == nil && before == 0 {
		s.wantCluster()
	}
	return ends
}

// leave takes an item out of the window. It adds the end of its event, unless other
// copies of a marker are still under way.
func (s *Sink) leave(ends []ended, it *item, err error) []ended {
	s.inflight--
	s.bytes -= it.size
	if s.inflight == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.signalRoom()
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

// absence is why a topic's partitions are not known, nil while nobody has asked yet.
func (s *Sink) absence(t *topic) error {
	if t.err != nil {
		return t.err
	}
	if !s.known {
		return s.problems.err()
	}
	return nil
}

// queues are all that the topic holds.
func (t *topic) queues() []*queue {
	all := []*queue{&t.unsorted}
	for _, p := range t.partitions {
		all = append(all, &p.queue)
	}
	return all
}

func (t *topic) holds() bool {
	return slices.ContainsFunc(t.queues(), func(q *queue) bool { return len(q.items) > 0 })
}

// trouble is why the partition cannot get anything now, or nil.
func (p *partition) trouble() error {
	switch {
	case p.leader == nil && p.err == nil:
		return errNoLeader
	case p.leader == nil:
		return p.err
	}
	return p.leader.err
}

var errNoLeader = errors.New("the partition has no leader")

// list puts the partition into its leader's list if there is something to send.
func (p *partition) list() {
	if p.leader != nil && !p.listed && !p.busy && len(p.items) > 0 {
		p.leader.waiting = append(p.leader.waiting, p)
		p.listed = true
	}
}

// follow makes b the leader, nil for none because of err.
func (p *partition) follow(b *broker, err error) {
	if p.leader != b && p.listed {
		old := p.leader
		old.waiting = slices.DeleteFunc(old.waiting, func(other *partition) bool { return other == p })
		p.listed = false
	}
	p.leader, p.err = b, err
	p.list()
	if p.listed {
		b.nudge()
	}
}

// batchLimit is how large a batch of the partition may become before compression.
func (s *Sink) batchLimit(p *partition) int {
	limit := int(s.cfg.BatchBytes)
	if p.topic.limit > 0 {
		limit = min(limit, p.topic.limit)
	}
	if p.limit > 0 {
		limit = min(limit, p.limit)
	}
	return limit
}

// due is how long the partition's first event may still wait for others.
func (s *Sink) due(p *partition, now time.Time) time.Duration {
	if s.closed || p.bytes >= s.batchLimit(p) {
		return 0
	}
	return max(0, s.cfg.Linger-now.Sub(p.items[0].since))
}

// batch is the records of one request for one partition.
type batch struct {
	partition *partition
	items     []*item
	owners    []*item // of each record
	count     int     // of records
	bytes     int     // before encoding
	start     int     // where it is among the encoded ones
	end       int
	identity
}

// own notes the next record's item.
func (b *batch) own(it *item) {
	b.owners = append(b.owners, it)
	b.count++
}

// cut takes a batch off the queue. One event that is larger than a batch goes alone.
func (s *Sink) cut(p *partition, b *batch) {
	limit := s.batchLimit(p)
	n, size := 0, batchHead
	for n < len(p.items) && (n == 0 || size+p.items[n].size <= limit) {
		size += p.items[n].size
		n++
	}
	b.partition, b.bytes = p, size
	b.items = append(b.items[:0], p.items[:n]...)
	p.bytes -= size - batchHead
	rest := copy(p.items, p.items[n:])
	clear(p.items[rest:])
	p.items = p.items[:rest]
	p.busy, p.listed = true, false
	b.identity = s.identify(p)
}

// A producer id lets a broker recognise what it must not store: a batch of ours that
// it had in hand when we gave it up, and that would come after what was sent since.
// For that each partition begins a new epoch whenever a batch may have been stored
// though it was not acknowledged; the broker refuses what has an older one. It does
// not make events come once: what is published again comes in another batch.

const noProducer = -1

// producer is the sink's identity, asked of a broker once.
type producer struct {
	id     int64
	wanted bool
}

// identity is what a batch of one partition says of its producer.
type identity struct {
	producer int64
	epoch    int16
	sequence int32 // of its first record
}

// identify returns the identity for the partition's next batch.
func (s *Sink) identify(p *partition) identity {
	switch {
	case s.producer.id == noProducer:
		p.me = identity{noProducer, -1, -1}
	case p.me.producer != s.producer.id:
		p.me = identity{producer: s.producer.id}
	}
	return p.me
}

// stored moves on behind the records of a batch.
func (p *partition) stored(b *batch) {
	if p.me.producer != noProducer {
		p.me.sequence = int32((int64(p.me.sequence) + int64(b.count)) & math.MaxInt32)
	}
}

// renounce begins a new epoch: the broker is to refuse the batch if it comes yet.
func (s *Sink) renounce(p *partition) {
	if p.me.producer == noProducer {
		return
	}
	p.me.sequence = 0
	if p.me.epoch++; p.me.epoch == math.MaxInt16 {
		s.producer.id = noProducer // all used up: ask for another
		s.wantCluster()
	}
}

// retention is a topic's retention.ms.
func retention(cfg *config.Kafka) int64 {
	if cfg.Retention == 0 {
		return -1
	}
	return cfg.Retention.Milliseconds()
}
