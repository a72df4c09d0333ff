package kafka

import (
	"context"
	"errors"
	"math"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"

	"github.com/kbridge-io/kbridge/sinks"
)

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

// becomeProducer asks who we are. A cluster that does not say still takes events. Its
// error is the connection's.
func (s *Sink) becomeProducer(ctx context.Context, c *conn) error {
	s.mu.Lock()
	needed := s.producer.wanted && s.producer.id == noProducer
	s.mu.Unlock()
	var pause sinks.Backoff
	for deadline := time.Now().Add(producerPatience); needed; {
		err := error(&refusal{client.UnsupportedVersion, "the broker gives no producer ids"})
		if c.offers(protocol.InitProducerId) {
			m, failed := c.ask(&initproducerid.Request{TransactionTimeoutMs: 60000, ProducerID: noProducer, ProducerEpoch: -1}, questionTimeout)
			if failed != nil {
				return failed
			}
			answer := m.(*initproducerid.Response)
			if err = brokerError(answer.ErrorCode, ""); err == nil {
				s.mu.Lock()
				s.producer.id = answer.ProducerID
				s.mu.Unlock()
				return nil
			}
		}
		s.count(&s.stats.Failures.Lookup)
		final := errors.Is(err, client.ClusterAuthorizationFailed) || errors.Is(err, client.UnsupportedVersion)
		if !final && time.Now().Before(deadline) && pause.Wait(ctx, nil) {
			continue // a broker that has just started has none to give yet
		}
		if final {
			s.mu.Lock()
			s.producer.wanted = false
			s.mu.Unlock()
		}
		s.log.Warn("no producer id: a batch that a broker holds back may come late, after newer ones", "error", err)
		return nil
	}
	return nil
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
		p.me = identity{producer: s.producer.id, epoch: p.floor}
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
	p.again = 0
	if p.me.producer == noProducer {
		return
	}
	p.me.sequence = 0
	if p.me.epoch++; p.me.epoch == math.MaxInt16 {
		s.producer.id = noProducer // all used up: ask for another
		s.wantCluster()
	}
}
