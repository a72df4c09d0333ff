package kafka

import (
	"context"
	"errors"
	"fmt"
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

// worker sends batches to one broker over a connection of its own.
type worker struct {
	*broker
	conn    *conn
	resume  time.Time // the broker asked us to send nothing before
	pause   sinks.Backoff
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
			idle := w.conn.used.Add(idleTimeout).Sub(now)
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
	c, err := w.sink.dial(ctx, address)
	if ctx.Err() != nil {
		if err == nil {
			c.close()
		}
		return false
	}
	if err != nil {
		w.failed(fmt.Errorf("connect to broker %d at %s: %w", w.id, address, err))
		w.pause.Wait(ctx, nil)
		return false
	}
	w.pause.Reset()
	w.conn = c
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
	req := &rawproduce.Request{Acks: acks(s.cfg.Acks), Timeout: int32((s.cfg.AckTimeout * 4 / 5).Milliseconds())}
	sent := w.encode(req)
	if len(sent) == 0 {
		return
	}
	m, err := w.conn.ask(req, s.cfg.AckTimeout)
	if err != nil {
		w.hangUp()
		w.unanswered(ctx, sent, err)
		return
	}
	if req.Acks == 0 {
		for _, b := range sent {
			w.settle(b, verdict{})
		}
		return
	}
	answer := m.(*produce.Response)
	w.resume = w.conn.used.Add(time.Duration(answer.ThrottleTimeMs) * time.Millisecond)
	w.answer(answer, sent)
}

// unanswered ends the batches of a request that got no answer because of err. The
// connection is gone.
func (w *worker) unanswered(ctx context.Context, sent []*batch, err error) {
	s := w.sink
	idle := (*idleError)(nil)
	// A repeat that the broker does not know for one, as there is no producer id, may come
	// twice; so would it from the lane.
	again := errors.As(err, &idle)
	switch {
	case ctx.Err() != nil:
		err, again = sinks.ErrClosed, false
	case again:
		// The next connection says whether anything is wrong with the broker.
	default:
		err = fmt.Errorf("broker %d at %s: %w", w.id, w.where(), err)
		s.count(&s.stats.Failures.Connect)
		w.failed(err)
	}
	for _, b := range sent {
		w.settle(b, verdict{err: err, again: again, ambiguous: idle == nil || idle.sent})
	}
}

// encode puts the batches into the request, and returns them but for those that need
// not be sent: their topics do not take them.
func (w *worker) encode(req *rawproduce.Request) []*batch {
	w.encoder.reset()
	sent := w.batches[:0:0]
	for _, b := range w.batches {
		if err := w.encoder.add(b); err != nil {
			w.encoder.drop(b)
			w.settle(b, verdict{err: err})
			continue
		}
		if err := w.sink.tooLarge(b); err != nil {
			w.encoder.drop(b)
			w.settle(b, verdict{err: err, tooLarge: true})
			continue
		}
		sent = append(sent, b)
	}
	for _, b := range sent { // when the encoder's buffer does not move any more
		w.add(req, b)
	}
	return sent
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
					w.settle(b, judge(p))
					found = true
				}
			}
		}
		if !found {
			w.settle(b, verdict{err: errors.New("the broker's answer leaves the partition out"), ambiguous: true})
		}
	}
}
