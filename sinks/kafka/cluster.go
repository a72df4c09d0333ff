package kafka

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/internal/cause"
	"github.com/kbridge-io/kbridge/sinks"
)

const (
	// lookEvery is how often the cluster is looked at without a reason: brokers and
	// partitions come and go.
	lookEvery = 10 * time.Second
	// lookPause keeps many reasons at once from becoming as many questions.
	lookPause = 50 * time.Millisecond
	// questionTimeout bounds a question about the cluster.
	questionTimeout = 10 * time.Second
	// producerPatience is how long events wait for a producer id that may come yet.
	producerPatience = 5 * time.Second
)

// run keeps a connection for questions, and knows by it who leads what, until ctx
// ends.
func (s *Sink) run(ctx context.Context) {
	var pause sinks.Backoff
	for ctx.Err() == nil {
		c, err := s.connectAny(ctx)
		looked := false
		if err == nil {
			looked, err = s.watch(ctx, c)
			c.close()
			if err != nil && ctx.Err() == nil && !endedIdle(err) {
				s.count(&s.stats.Failures.Connect)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if looked {
			pause.Reset()
			continue // another broker may answer at once
		}
		s.lost(err)
		if !pause.Wait(ctx, nil) {
			return
		}
	}
}

// connectAny tries each broker once, in random order: those of the configuration, and
// those that were learnt.
func (s *Sink) connectAny(ctx context.Context) (*conn, error) {
	addresses := slices.Clone(s.cfg.Brokers)
	s.mu.Lock()
	for _, b := range s.brokers {
		if !slices.Contains(addresses, b.address) {
			addresses = append(addresses, b.address)
		}
	}
	s.mu.Unlock()
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	causes := make([]error, 0, len(addresses))
	for _, address := range addresses {
		c, err := s.dial(ctx, address)
		if err == nil {
			s.mu.Lock()
			s.stats.Connects++
			s.mu.Unlock()
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		causes = append(causes, fmt.Errorf("connect to %s: %w", address, err))
	}
	// The same order each time, so that the same failure reads the same.
	slices.SortFunc(causes, func(a, b error) int { return strings.Compare(cause.Of(a), cause.Of(b)) })
	err := causes[0]
	for _, more := range causes[1:] {
		err = fmt.Errorf("%w; %w", err, more)
	}
	return nil, err
}

// watch looks at the cluster as often as there is a reason to, until the connection
// fails. It returns whether it was of use.
func (s *Sink) watch(ctx context.Context, c *conn) (looked bool, err error) {
	var again sinks.Backoff
	for {
		settled, err := s.look(ctx, c)
		if err != nil {
			if s.cfg.SASL == nil {
				err = s.dialer.hint(err, closedHint(err, "perhaps the listener wants a login: sasl"))
			}
			return looked, fmt.Errorf("ask %s about the cluster: %w", c.address, err)
		}
		looked = true
		s.dialer.worked.Store(true)
		s.release()
		wait := lookEvery
		if settled {
			again.Reset()
		} else {
			wait = again.Pause()
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.ask:
			timer.Reset(lookPause)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		select {
		case <-s.ask: // answered by what follows
		default:
		}
		if ctx.Err() != nil || c.expired(time.Now()) {
			return looked, ctx.Err()
		}
	}
}

// look learns brokers, topics and leaders. It creates topics that events wait for and
// reads the settings of those that are new. settled is false when something is not
// there yet that events wait for.
func (s *Sink) look(ctx context.Context, c *conn) (settled bool, err error) {
	if err := s.becomeProducer(ctx, c); err != nil {
		return false, err
	}
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.topics))
	s.mu.Unlock()
	if names == nil {
		names = []string{} // nil asks for all topics
	}
	m, err := c.ask(&metadata.Request{TopicNames: names}, questionTimeout)
	if err != nil {
		return false, err
	}
	answer := m.(*metadata.Response)
	s.learnBrokers(answer.Brokers)
	var absent, fresh []string
	for i := range answer.Topics {
		t := &answer.Topics[i]
		switch s.classify(t) {
		case topicAbsent:
			absent = append(absent, t.Name)
		case topicNew:
			fresh = append(fresh, t.Name)
		}
	}
	if len(absent) > 0 {
		if err := s.provide(ctx, c, answer, absent); err != nil {
			return false, err
		}
	}
	if len(fresh) > 0 {
		if err := s.describe(c, answer, fresh); err != nil {
			return false, err
		}
	}
	for i := range answer.Topics {
		s.learnTopic(ctx, &answer.Topics[i])
	}
	return s.settled(), nil
}

// settled says that nothing waits for a topic or a leader.
func (s *Sink) settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.topics {
		if len(t.unsorted.items) > 0 || t.err != nil {
			return false
		}
		for _, p := range t.partitions {
			if p.leader == nil {
				return false
			}
		}
	}
	return true
}

// release lets Publish go on.
func (s *Sink) release() {
	s.mu.Lock()
	was := s.known
	s.known = true
	brokers := len(s.brokers)
	close(s.changed)
	s.changed = make(chan struct{})
	over := s.problems.over(problemCluster)
	s.mu.Unlock()
	if !was || over != nil {
		s.log.Info("connected", "brokers", brokers)
	}
}

// lost makes Publish wait: no broker answers.
func (s *Sink) lost(err error) {
	s.mu.Lock()
	s.known = false
	s.mu.Unlock()
	s.report(problemCluster, err)
}
