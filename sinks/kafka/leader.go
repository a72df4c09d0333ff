package kafka

import (
	"context"
	"fmt"
	"math"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/sinks"
)

type topicState int

const (
	topicKnown topicState = iota
	topicNew              // there, and its settings are to be read
	topicAbsent
	topicFailing
)

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
	s.count(&s.stats.Failures.Lookup)
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
	if t.err != nil { // it was absent
		t.cameUp = time.Now()
	}
	t.err = nil
	count := len(t.partitions)
	for i := range r.Partitions {
		count = max(count, int(r.Partitions[i].PartitionIndex)+1)
	}
	if len(r.Partitions) < len(t.partitions) {
		count = len(r.Partitions) // it was deleted and made anew
		for _, p := range t.partitions[count:] {
			p.gone = true
			// Should it come back, because a broker's knowledge was old, nothing of it is
			// taken for a repeat.
			t.floor = min(max(t.floor, p.me.epoch+1), math.MaxInt16-1)
			p.follow(nil, errNoLeader)
			ends = s.drop(ends, &p.queue, &aboutPartition{t.name, p.index, errNoLeader})
			_ = s.problems.over(partitionProblem(t.name, p.index))
			_ = s.problems.over(leaderProblem(t.name, p.index))
		}
		t.partitions = t.partitions[:count]
	}
	for i := len(t.partitions); i < count; i++ {
		t.partitions = append(t.partitions, &partition{topic: t, index: int32(i), err: errNoLeader, leaderless: time.Now(), floor: t.floor, refused: sinks.NewRefused(s.cfg.AckTimeout)})
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

// tellLeaders notes which partitions of a topic have no leader, once that takes longer
// than an election or the creation of a topic does.
func (s *Sink) tellLeaders(name string) {
	var missing, found []*partition
	now := time.Now()
	s.mu.Lock()
	t := s.topics[name]
	for _, p := range t.partitions {
		if p.leader == nil && now.Sub(p.leaderless) > holdFor && !t.settles(now) {
			missing = append(missing, p)
		} else if p.leader != nil && s.problems.has(leaderProblem(name, p.index)) {
			found = append(found, p)
		}
	}
	s.mu.Unlock()
	for _, p := range missing {
		s.count(&s.stats.Failures.Lookup)
		s.report(leaderProblem(name, p.index), &aboutPartition{name, p.index, errNoLeader})
	}
	for _, p := range found {
		s.mended(leaderProblem(name, p.index))
	}
}
