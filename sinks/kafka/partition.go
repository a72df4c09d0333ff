package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/kbridge-io/kbridge/sinks"
)

// partition is one partition of a topic.
type partition struct {
	queue
	topic  *topic
	index  int32
	leader *broker // nil: there is none, or it is not known
	err    error   // why
	epoch  int32   // the leader's, which grows with each election
	// leaderless is since when there is no leader.
	leaderless time.Time
	// doubted is until when a leader of this epoch is taken for the one that denied it.
	doubted time.Time
	busy    bool // a batch is under way
	listed  bool // in the leader's list
	limit   int  // what a batch may have after a larger one was refused, or 0
	// again is how many of the items, from the first, make the next batch, because they
	// made one that may be stored: the broker knows it by its sequence.
	again   int
	refused sinks.Refused // by key, what waits in the lane for its next attempt
	gone    bool          // the topic was made anew and has fewer; what is under way ends it
	me      identity
	floor   int16 // the least epoch of me
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

// recovered says that all that was refused has been stored, or is not tried again.
func (p *partition) recovered(now time.Time) bool {
	return p.refused.None() || p.refused.Err(now) == nil
}

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
	if b == nil && (p.leader != nil || p.leaderless.IsZero()) {
		p.leaderless = time.Now()
	}
	p.leader, p.err = b, err
	p.list()
	if p.listed {
		b.nudge()
	}
}

// enqueue lets an item wait for its partition's next batch. The mutex is held.
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

// halve puts the events of a batch back, to go in smaller ones.
func (p *partition) halve(b *batch) {
	p.limit = max(1, b.bytes/2)
	p.unshift(b.items)
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
	if s.held.Closed() || p.bytes >= s.batchLimit(p) {
		return 0
	}
	return max(0, s.cfg.Linger-now.Sub(p.items[0].since))
}
