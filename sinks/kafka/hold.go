package kafka

import (
	"context"
	"slices"
	"time"
)

const (
	// holdFor is how long an event waits in the sink for a leader: most elections are
	// over by then. What waits longer goes back to the lane, which tries again.
	holdFor = time.Second
	// settleFor is how long it waits for the leaders of a topic that has just come up.
	settleFor = 10 * time.Second
	// holdBytes is how much may wait so in one partition.
	holdBytes = 1 << 20
)

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
	var mended []string
	s.mu.Lock()
	for _, t := range s.topics {
		if err := s.absence(t); err != nil {
			ends = s.expire(ends, &t.unsorted, now, err)
		}
		if t.settles(now) {
			continue
		}
		for _, p := range t.partitions {
			err := p.trouble()
			if err == nil && !p.refused.None() && p.recovered(now) {
				mended = append(mended, partitionProblem(t.name, p.index))
			}
			if err == nil || len(p.items) == 0 {
				continue
			}
			about := &aboutPartition{t.name, p.index, err}
			before := len(p.items)
			if ends = s.expire(ends, &p.queue, now, about); len(p.items) == before {
				continue
			}
			reports = append(reports, about)
			if p.again > 0 { // the repeat can not be made any more
				s.renounce(p)
			}
			if len(p.items) == 0 && p.listed {
				p.leader.waiting = slices.DeleteFunc(p.leader.waiting, func(other *partition) bool { return other == p })
				p.listed = false
			}
		}
	}
	s.mu.Unlock()
	for _, about := range reports {
		s.report(partitionProblem(about.topic, about.partition), about)
	}
	for _, key := range mended {
		s.mended(key)
	}
	s.recycle(ends)
}

// settles says that the topic has just come up. Its leaders need a moment until they
// know of it themselves.
func (t *topic) settles(now time.Time) bool { return now.Sub(t.cameUp) < settleFor }

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
