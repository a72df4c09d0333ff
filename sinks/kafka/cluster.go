package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/config"
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
	var pause backoff
	for ctx.Err() == nil {
		c, err := s.connectAny(ctx)
		looked := false
		if err == nil {
			looked, err = s.watch(ctx, c)
			c.close()
		}
		if ctx.Err() != nil {
			return
		}
		if looked {
			pause.reset()
			continue // another broker may answer at once
		}
		s.lost(err)
		if !pause.wait(ctx) {
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
		c, err := s.dialer.dial(ctx, address)
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
	slices.SortFunc(causes, func(a, b error) int { return compareText(causeKey(a), causeKey(b)) })
	err := causes[0]
	for _, more := range causes[1:] {
		err = fmt.Errorf("%w; %w", err, more)
	}
	return nil, err
}

// watch looks at the cluster as often as there is a reason to, until the connection
// fails. It returns whether it was of use.
func (s *Sink) watch(ctx context.Context, c *conn) (looked bool, err error) {
	var again backoff
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
			again.reset()
		} else {
			wait = again.pause()
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

// becomeProducer asks who we are. A cluster that does not say still takes events. Its
// error is the connection's.
func (s *Sink) becomeProducer(ctx context.Context, c *conn) error {
	s.mu.Lock()
	needed := s.producer.wanted && s.producer.id == noProducer
	s.mu.Unlock()
	var pause backoff
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
		final := errors.Is(err, client.ClusterAuthorizationFailed) || errors.Is(err, client.UnsupportedVersion)
		if !final && time.Now().Before(deadline) && pause.wait(ctx) {
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

type topicState int

const (
	topicKnown topicState = iota
	topicNew              // there, and its settings are to be read
	topicAbsent
	topicFailing
)

// describeEvery is how often a topic's settings are read.
const describeEvery = 5 * time.Minute

func (s *Sink) classify(r *metadata.ResponseTopic) topicState {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[r.Name]
	switch {
	case t == nil:
		return topicFailing
	case client.Error(r.ErrorCode) == client.UnknownTopicOrPartition:
		return topicAbsent
	case r.ErrorCode != 0:
		return topicFailing
	case time.Since(t.described) > describeEvery:
		return topicNew
	}
	return topicKnown
}

// learnTopic takes over what the cluster says of a topic.
func (s *Sink) learnTopic(ctx context.Context, r *metadata.ResponseTopic) {
	key := topicProblem(r.Name)
	switch client.Error(r.ErrorCode) {
	case 0:
		s.recycle(s.learnPartitions(ctx, r))
		s.mended(key)
		s.tellLeaders(r.Name)
		return
	case client.UnknownTopicOrPartition:
		// provide has said why.
		s.lead(r.Name, nil)
		return
	}
	err := fmt.Errorf("topic %s: %w", r.Name, brokerError(r.ErrorCode, ""))
	s.lead(r.Name, err)
	s.report(key, err)
}

// lead leaves all partitions of a topic without a leader because of err.
func (s *Sink) lead(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if err != nil {
		t.err = err
	}
	t.described = time.Time{}
	for _, p := range t.partitions {
		p.follow(nil, t.err)
	}
}

func (s *Sink) learnPartitions(ctx context.Context, r *metadata.ResponseTopic) (ends []ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[r.Name]
	t.err = nil
	count := len(t.partitions)
	for i := range r.Partitions {
		count = max(count, int(r.Partitions[i].PartitionIndex)+1)
	}
	if len(r.Partitions) < len(t.partitions) {
		count = len(r.Partitions) // it was deleted and made anew
		for _, p := range t.partitions[count:] {
			p.follow(nil, errNoLeader)
			ends = s.drop(ends, &p.queue, &aboutPartition{t.name, p.index, errNoLeader})
			_ = s.problems.over(partitionProblem(t.name, p.index))
			_ = s.problems.over(leaderProblem(t.name, p.index))
		}
		t.partitions = t.partitions[:count]
	}
	for i := len(t.partitions); i < count; i++ {
		t.partitions = append(t.partitions, &partition{topic: t, index: int32(i), err: errNoLeader})
	}
	for i := range r.Partitions {
		if m := &r.Partitions[i]; int(m.PartitionIndex) < count {
			s.learnLeader(ctx, t.partitions[m.PartitionIndex], m)
		}
	}
	if count > 0 {
		waiting := t.unsorted
		t.unsorted = queue{}
		for _, it := range waiting.items {
			it.since = time.Now() // a new topic's leaders get their time too
			ends = s.sort(ends, t, it)
		}
	}
	return ends
}

// learnLeader follows a leader, but not at once the same one that has just said that
// it is none: what a broker knows of the cluster can be old.
func (s *Sink) learnLeader(ctx context.Context, p *partition, m *metadata.ResponsePartition) {
	b := s.brokers[m.LeaderID]
	if b == nil {
		err := errNoLeader
		if m.ErrorCode != 0 {
			err = brokerError(m.ErrorCode, "")
		}
		p.follow(nil, err)
		return
	}
	if m.LeaderEpoch <= p.epoch && time.Now().Before(p.doubted) {
		return
	}
	p.epoch = m.LeaderEpoch
	b.run(ctx)
	p.follow(b, nil)
}

// tellLeaders notes which partitions of a topic have no leader.
func (s *Sink) tellLeaders(name string) {
	var missing, found []*partition
	s.mu.Lock()
	for _, p := range s.topics[name].partitions {
		if p.leader == nil && time.Now().After(p.doubted) {
			missing = append(missing, p)
		} else if p.leader != nil && s.problems.has(leaderProblem(name, p.index)) {
			found = append(found, p)
		}
	}
	s.mu.Unlock()
	for _, p := range missing {
		s.report(leaderProblem(name, p.index), &aboutPartition{name, p.index, errNoLeader})
	}
	for _, p := range found {
		s.mended(leaderProblem(name, p.index))
	}
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

// topicConfig is what a topic is created with.
func topicConfig(cfg *config.Kafka) map[string]string {
	settings := map[string]string{"cleanup.policy": string(cfg.CleanupPolicy)}
	if cfg.CleanupPolicy != config.CleanupCompact {
		settings["retention.ms"] = fmt.Sprint(retention(cfg))
	}
	return settings
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
