package kafka

import (
	"context"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"
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

// failed notes that the broker takes nothing. Another may lead its partitions now.
func (b *broker) failed(err error) {
	b.sink.mu.Lock()
	b.err = err
	b.sink.mu.Unlock()
	b.sink.report(brokerProblem(b.id), err)
	b.sink.wantCluster()
}

func (b *broker) where() string {
	b.sink.mu.Lock()
	defer b.sink.mu.Unlock()
	return b.address
}

// learnBrokers keeps the brokers that there are.
func (s *Sink) learnBrokers(list []metadata.ResponseBroker) {
	s.mu.Lock()
	seen := make(map[int32]bool, len(list))
	for _, r := range list {
		seen[r.NodeID] = true
		b := s.brokers[r.NodeID]
		if b == nil {
			b = &broker{sink: s, id: r.NodeID, wake: make(chan struct{}, 1)}
			s.brokers[r.NodeID] = b
		}
		b.address = joinHostPort(r.Host, r.Port)
	}
	var gone []*broker
	for id, b := range s.brokers {
		if seen[id] || len(list) == 0 {
			continue
		}
		gone = append(gone, b)
		delete(s.brokers, id)
		b.err = errGone
		for _, t := range s.topics {
			for _, p := range t.partitions {
				if p.leader == b {
					p.follow(nil, errNoLeader)
				}
			}
		}
		if b.running {
			b.stop()
		}
	}
	s.mu.Unlock()
	for _, b := range gone {
		s.mended(brokerProblem(b.id))
	}
}

func joinHostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
