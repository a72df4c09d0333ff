package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks"
)

const (
	// workersPerBroker is how many requests may be under way to one broker: one is
	// encoded while another waits for its answer.
	workersPerBroker = 3
	// idleTimeout closes a connection that is not used before a broker or something
	// between us drops it in silence.
	idleTimeout = time.Minute
)

// broker is one broker of the cluster. The sink's mutex guards what may change.
type broker struct {
	sink *Sink
	id   int32
	stop context.CancelFunc
	wake chan struct{} // has a token when there may be something to send

	address string
	waiting []*partition // led by it, with something to send and nothing under way
	err     error        // why it takes nothing; nil when it does
	running bool
}

func (b *broker) nudge() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run starts the workers. The mutex is held.
func (b *broker) run(ctx context.Context) {
	if b.running {
		return
	}
	b.running = true
	ctx, b.stop = context.WithCancel(ctx)
	for range workersPerBroker {
		b.sink.workers.Go(func() { b.work(ctx) })
	}
}

// worker sends batches to one broker over a connection of its own.
type worker struct {
	*broker
	conn    *conn
	used    time.Time
	resume  time.Time // the broker asked us to send nothing before
	pause   backoff
	encoder *encoder
	batches []*batch
	spare   []*batch
}

func (b *broker) work(ctx context.Context) {
	encoder, err := newEncoder(b.sink.cfg.Compression)
	if err != nil {
		b.failed(err)
		return
	}
	w := &worker{broker: b, encoder: encoder}
	defer w.hangUp()
	for w.await(ctx) {
		if !w.rest(ctx) || !w.connected(ctx) {
			continue
		}
		if w.take(); len(w.batches) > 0 {
			w.send(ctx)
		}
	}
}

// rest waits as long as a broker whose quota is used up asks for. It would not read
// before that, and the wait would count as one for an answer.
func (w *worker) rest(ctx context.Context) bool {
	wait := time.Until(w.resume)
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// await waits until there is something to send, and returns false when ctx ends.
func (w *worker) await(ctx context.Context) bool {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		w.sink.mu.Lock()
		wait, any := w.next(now)
		w.sink.mu.Unlock()
		if any && wait <= 0 {
			return true
		}
		if !any {
			wait = time.Hour
		}
		if w.conn != nil {
			idle := w.used.Add(idleTimeout).Sub(now)
			if idle <= 0 {
				w.hangUp()
			} else {
				wait = min(wait, idle)
			}
		}
		timer.Reset(wait)
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return false
}

// next is how long it is until something has to be sent. The mutex is held.
func (b *broker) next(now time.Time) (wait time.Duration, any bool) {
	if b.err != nil {
		return 0, true // a connection, to see whether that is over
	}
	for _, p := range b.waiting {
		if due := b.sink.due(p, now); !any || due < wait {
			wait, any = due, true
		}
	}
	return wait, any
}

// connected returns true when there is a connection. Events wait in the sink until
// then, and for not too long.
func (w *worker) connected(ctx context.Context) bool {
	w.sink.mu.Lock()
	address, suspect := w.address, w.err != nil
	w.sink.mu.Unlock()
	if w.conn != nil && (suspect || w.conn.expired(time.Now())) {
		w.hangUp()
	}
	if w.conn != nil {
		return true
	}
	c, err := w.sink.dialer.dial(ctx, address)
	if ctx.Err() != nil {
		if err == nil {
			c.close()
		}
		return false
	}
	if err != nil {
		w.failed(fmt.Errorf("connect to broker %d at %s: %w", w.id, address, err))
		w.pause.wait(ctx)
		return false
	}
	w.pause.reset()
	w.conn, w.used = c, time.Now()
	w.sink.mu.Lock()
	w.sink.stats.Connects++
	w.err = nil
	w.sink.mu.Unlock()
	w.sink.mended(brokerProblem(w.id))
	return true
}

func (w *worker) hangUp() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}

// failed notes that the broker takes nothing. Another may lead its partitions now.
func (b *broker) failed(err error) {
	b.sink.mu.Lock()
	b.err = err
	b.sink.mu.Unlock()
	b.sink.report(brokerProblem(b.id), err)
	b.sink.wantCluster()
}

// take cuts batches until they fill a request, those of other partitions than last
// time first.
func (w *worker) take() {
	s := w.sink
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w.spare, w.batches = append(w.spare, w.batches...), w.batches[:0]
	total := 0
	var rest []*partition
	for i, p := range w.waiting {
		if total >= int(s.cfg.BatchBytes) {
			rest = append(rest, w.waiting[i:]...)
			w.nudge() // for another worker
			break
		}
		if s.due(p, now) > 0 {
			rest = append(rest, p)
			continue
		}
		b := w.newBatch()
		s.cut(p, b)
		w.batches = append(w.batches, b)
		total += b.bytes
	}
	w.waiting = append(w.waiting[:0], rest...)
}

func (w *worker) newBatch() *batch {
	if n := len(w.spare); n > 0 {
		b := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return b
	}
	return new(batch)
}

// send makes one request of the batches and ends their events by its answer.
func (w *worker) send(ctx context.Context) {
	s := w.sink
	w.encoder.reset()
	req := &rawproduce.Request{Acks: acks(s.cfg.Acks), Timeout: int32((s.cfg.AckTimeout * 4 / 5).Milliseconds())}
	sent := w.batches[:0:0]
	for _, b := range w.batches {
		refused, err := w.encoder.add(b, b.partition.topicLimit(s))
		if err != nil {
			w.settle(b, verdict{err: err}, refused)
			continue
		}
		if len(b.items) == 0 {
			w.settle(b, verdict{empty: true}, refused)
			continue
		}
		if len(refused) > 0 {
			w.part(refused)
		}
		sent = append(sent, b)
	}
	if len(sent) == 0 {
		return
	}
	for _, b := range sent {
		w.add(req, b)
	}
	m, err := w.conn.ask(req, s.cfg.AckTimeout)
	w.used = time.Now()
	if err != nil {
		w.hangUp()
		if ctx.Err() != nil {
			err = ErrClosed
		} else {
			err = fmt.Errorf("broker %d at %s: %w", w.id, w.where(), err)
			w.failed(err)
		}
		for _, b := range sent {
			w.settle(b, verdict{err: err, ambiguous: true}, nil)
		}
		return
	}
	if req.Acks == 0 {
		for _, b := range sent {
			w.settle(b, verdict{}, nil)
		}
		return
	}
	answer := m.(*produce.Response)
	w.resume = w.used.Add(time.Duration(answer.ThrottleTimeMs) * time.Millisecond)
	w.answer(answer, sent)
}

func (b *broker) where() string {
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	return b.address
}

func (p *partition) topicLimit(s *Sink) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.topic.limit
}

func acks(a config.Acks) int16 {
	switch a {
	case config.AcksNone:
		return int16(client.RequireNone)
	case config.AcksOne:
		return int16(client.RequireOne)
	default:
		return int16(client.RequireAll)
	}
}

// add puts the batch into the request.
func (w *worker) add(req *rawproduce.Request, b *batch) {
	part := rawproduce.RequestPartition{Partition: b.partition.index, RecordSet: protocol.RawRecordSet{Reader: w.encoder.bytesOf(b)}}
	name := b.partition.topic.name
	for i := range req.Topics {
		if req.Topics[i].Topic == name {
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, part)
			return
		}
	}
	req.Topics = append(req.Topics, rawproduce.RequestTopic{Topic: name, Partitions: []rawproduce.RequestPartition{part}})
}

// answer ends each batch by what the broker says of it.
func (w *worker) answer(res *produce.Response, sent []*batch) {
	for _, b := range sent {
		found := false
		for i := range res.Topics {
			t := &res.Topics[i]
			if t.Topic != b.partition.topic.name {
				continue
			}
			for j := range t.Partitions {
				if p := &t.Partitions[j]; p.Partition == b.partition.index && !found {
					w.settle(b, judge(p), nil)
					found = true
				}
			}
		}
		if !found {
			w.settle(b, verdict{err: errors.New("the broker's answer leaves the partition out"), ambiguous: true}, nil)
		}
	}
}

// verdict is how a batch ended.
type verdict struct {
	err       error
	refusal   *refusal
	records   map[int]string // what is wrong with single records
	ambiguous bool           // it may be in the log nevertheless
	empty     bool           // nothing was sent
}

func judge(p *produce.ResponsePartition) verdict {
	r := refusalOf(p.ErrorCode, p.ErrorMessage)
	if r == nil {
		return verdict{}
	}
	v := verdict{err: r, refusal: r}
	v.ambiguous = v.refusal.mayBeStored() || v.refusal.outOfSequence()
	if v.refusal.code == client.InvalidRecord {
		v.records = make(map[int]string, len(p.RecordErrors))
		for _, r := range p.RecordErrors {
			v.records[int(r.BatchIndex)] = r.BatchIndexErrorMessage
		}
	}
	return v
}

// part ends events that were taken out of their batch.
func (w *worker) part(refused []ended) {
	s := w.sink
	s.mu.Lock()
	var ends []ended
	for _, end := range refused {
		ends = s.leave(ends, end.item, end.err)
	}
	s.mu.Unlock()
	s.recycle(ends)
}

// settle ends a batch: its events end, or wait again where only their neighbours were
// refused. The partition is free for the next one.
func (w *worker) settle(b *batch, v verdict, refused []ended) {
	s, p := w.sink, b.partition
	var ends []ended
	var report error
	s.mu.Lock()
	for _, end := range refused {
		ends = s.leave(ends, end.item, end.err)
	}
	p.busy = false
	switch {
	case v.empty:
	case v.err == nil:
		p.stored(b)
		if p.limit > 0 {
			// The refusal may have been of its time.
			if p.limit += p.limit/32 + 1; p.limit >= int(s.cfg.BatchBytes) {
				p.limit = 0
			}
		}
		s.stats.Batches++
		s.stats.Records += uint64(b.count)
		s.stats.Sent += uint64(b.end - b.start)
		for _, it := range b.items {
			ends = s.leave(ends, it, nil)
		}
	default:
		if v.ambiguous && p.me == b.identity {
			s.renounce(p)
		}
		ends, report = s.refused(ends, b, v, w.broker)
	}
	p.list()
	if p.listed {
		p.leader.nudge()
	}
	s.mu.Unlock()
	// Before the events end, so that Err says no more than they do.
	switch {
	case v.empty:
	case v.err == nil:
		s.mended(partitionProblem(p.topic.name, p.index))
	case report != nil && !errors.Is(report, ErrClosed):
		s.report(partitionProblem(p.topic.name, p.index), report)
	}
	s.recycle(ends)
	clear(b.items)
	clear(b.owners)
}

// refused decides what becomes of the events of a batch that was not acknowledged. It
// returns the error to report, nil where only single events are at fault. The mutex
// is held.
func (s *Sink) refused(ends []ended, b *batch, v verdict, by *broker) ([]ended, error) {
	p := b.partition
	about := error(&aboutPartition{p.topic.name, p.index, v.err})
	all := func(err error) {
		for _, it := range b.items {
			ends = s.leave(ends, it, err)
		}
	}
	switch r := v.refusal; {
	case r == nil:
		all(about)
	case r.tooLarge():
		// The limit may have been changed: read it again.
		p.topic.described = time.Time{}
		s.wantCluster()
		if len(b.items) == 1 {
			all(sinks.TooLarge(about))
			return ends, nil
		}
		p.limit = max(1, b.bytes/2)
		p.unshift(b.items)
		return ends, nil
	case r.code == client.InvalidRecord:
		return s.invalid(ends, b, v, about), nil
	case r.code == client.InvalidTopic:
		all(sinks.Permanent(about))
		return ends, nil
	case r.stale():
		// Nothing is stored. The events wait for the new leader, if it comes soon.
		if p.leader == by {
			p.doubted = time.Now().Add(holdFor / 2)
			p.follow(nil, v.err)
		}
		p.unshift(b.items)
		s.wantCluster()
		return ends, nil
	default:
		all(about)
	}
	return ends, about
}

// invalid ends the events that the broker names and lets the others wait again. Where
// it names none, the batch is halved until one is found.
func (s *Sink) invalid(ends []ended, b *batch, v verdict, about error) []ended {
	p := b.partition
	if len(v.records) == 0 {
		if len(b.items) == 1 {
			return s.leave(ends, b.items[0], sinks.Permanent(about))
		}
		p.limit = max(1, b.bytes/2)
		p.unshift(b.items)
		return ends
	}
	bad := make(map[*item]error)
	for i, message := range v.records {
		if i >= 0 && i < len(b.owners) {
			bad[b.owners[i]] = sinks.Permanent(&aboutPartition{p.topic.name, p.index, &refusal{v.refusal.code, message}})
		}
	}
	if len(bad) == 0 {
		for _, it := range b.items {
			ends = s.leave(ends, it, about)
		}
		return ends
	}
	good := make([]*item, 0, len(b.items))
	for _, it := range b.items {
		if err := bad[it]; err != nil {
			ends = s.leave(ends, it, err)
		} else {
			good = append(good, it)
		}
	}
	p.unshift(good)
	return ends
}

// sweep gives up what has waited for too long in partitions that can not get anything
// now, until ctx ends.
func (s *Sink) sweep(ctx context.Context) {
	tick := time.NewTicker(holdFor / 8)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.giveUp(now)
		}
	}
}

func (s *Sink) giveUp(now time.Time) {
	var ends []ended
	var reports []*aboutPartition
	s.mu.Lock()
	for _, t := range s.topics {
		if err := s.absence(t); err != nil {
			ends = s.expire(ends, &t.unsorted, now, err)
		}
		for _, p := range t.partitions {
			if err := p.trouble(); err != nil && len(p.items) > 0 {
				about := &aboutPartition{t.name, p.index, err}
				before := len(p.items)
				if ends = s.expire(ends, &p.queue, now, about); len(p.items) < before {
					reports = append(reports, about)
				}
				if len(p.items) == 0 && p.listed {
					p.leader.waiting = slices.DeleteFunc(p.leader.waiting, func(other *partition) bool { return other == p })
					p.listed = false
				}
			}
		}
	}
	s.mu.Unlock()
	for _, about := range reports {
		s.report(partitionProblem(about.topic, about.partition), about)
	}
	s.recycle(ends)
}

// expire ends what is older than holdFor. The oldest are not always first: what was
// refused with others comes back before them.
func (s *Sink) expire(ends []ended, q *queue, now time.Time, err error) []ended {
	kept := q.items[:0]
	for _, it := range q.items {
		if now.Sub(it.since) < holdFor {
			kept = append(kept, it)
			continue
		}
		q.bytes -= it.size
		ends = s.leave(ends, it, err)
	}
	clear(q.items[len(kept):])
	q.items = kept
	return ends
}

func joinHostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
