package kafka

import (
	"errors"
	"fmt"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks"
)

// verdict is how a batch ended.
type verdict struct {
	err       error
	refusal   *refusal
	records   map[int]string // what is wrong with single records
	ambiguous bool           // it may be in the log nevertheless
	tooLarge  bool           // its topic does not take as much
	again     bool           // it goes over another connection, as it was
}

// judge reads a broker's answer for one partition.
func judge(p *produce.ResponsePartition) verdict {
	r := refusalOf(p.ErrorCode, p.ErrorMessage)
	if r == nil {
		return verdict{}
	}
	v := verdict{err: r, refusal: r, tooLarge: r.tooLarge(), ambiguous: !r.notStored() && !r.stale()}
	if r.code == client.InvalidRecord || r.code == client.InvalidTimestamp {
		v.records = make(map[int]string, len(p.RecordErrors))
		for _, r := range p.RecordErrors {
			v.records[int(r.BatchIndex)] = r.BatchIndexErrorMessage
		}
	}
	return v
}

// settle ends a batch: its events end, or wait again where only their neighbours were
// refused. The partition is free for the next one.
func (w *worker) settle(b *batch, v verdict) {
	s, p := w.sink, b.partition
	var ends []ended
	var report error
	s.mu.Lock()
	p.busy = false
	switch {
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
		s.stats.Sent += uint64(b.size())
		for _, it := range b.items {
			ends = s.end(ends, p, it, nil)
		}
	case v.again:
		p.unshift(b.items)
		if v.ambiguous || b.repeat {
			p.again = len(b.items)
		}
	default:
		// A repeat that does not come to its end leaves open whether the first one is stored.
		open := b.repeat && (v.refusal == nil || !v.refusal.stale())
		if (v.ambiguous || open) && p.me == b.identity {
			s.renounce(p)
		}
		waiting := len(p.items)
		if ends, report = s.refused(ends, b, v, w.broker); len(p.items) > waiting {
			s.stats.Failures.Resend++
		}
	}
	if p.gone {
		ends = s.drop(ends, &p.queue, &aboutPartition{p.topic.name, p.index, errNoLeader})
	}
	p.list()
	if p.listed {
		p.leader.nudge()
	}
	mended := v.err == nil && p.recovered(time.Now())
	s.mu.Unlock()
	// Before the events end, so that Err says no more than they do.
	switch {
	case mended:
		s.mended(partitionProblem(p.topic.name, p.index))
	case report != nil && !errors.Is(report, sinks.ErrClosed):
		s.report(partitionProblem(p.topic.name, p.index), report)
	}
	s.recycle(ends)
	clear(b.items)
	clear(b.owners)
}

// end takes an item out of the window, and keeps whether what is for its key was refused.
func (s *Sink) end(ends []ended, p *partition, it *item, err error) []ended {
	switch {
	case err == nil && p.refused.None(): // most of the time
	case err == nil, errors.Is(err, sinks.ErrPermanent):
		p.refused.Ended(string(it.key))
	case !errors.Is(err, sinks.ErrClosed):
		p.refused.Note(string(it.key), err, time.Now())
	}
	return s.leave(ends, it, err)
}

// refused decides what becomes of the events of a batch that was not acknowledged. It
// returns the error to report, nil where only single events are at fault. The mutex
// is held.
func (s *Sink) refused(ends []ended, b *batch, v verdict, by *broker) ([]ended, error) {
	p := b.partition
	about := error(&aboutPartition{p.topic.name, p.index, v.err})
	all := func(err error) {
		for _, it := range b.items {
			ends = s.end(ends, p, it, err)
		}
	}
	switch r := v.refusal; {
	case v.tooLarge:
		if r != nil {
			// The limit may have been changed: read it again.
			p.topic.described = time.Time{}
			s.wantCluster()
		}
		if len(b.items) > 1 {
			p.halve(b)
			return ends, nil
		}
		if r != nil {
			about = &aboutPartition{p.topic.name, p.index, s.sizeError(b, r)}
		}
		all(sinks.TooLarge(about))
		return ends, nil
	case r == nil:
		all(about)
	case r.code == client.InvalidRecord:
		return s.invalid(ends, b, v, about), nil
	case r.code == client.InvalidTimestamp:
		return s.restamp(ends, b, v, about)
	case r.code == client.InvalidTopic:
		all(sinks.Permanent(about))
		return ends, nil
	case r.stale():
		// The events wait for the new leader, if it comes soon.
		if p.leader == by {
			p.doubted = time.Now().Add(holdFor / 2)
			p.follow(nil, v.err)
		}
		p.unshift(b.items)
		p.again = len(b.items)
		s.wantCluster()
		return ends, nil
	default:
		about = &aboutPartition{p.topic.name, p.index, s.explain(r)}
		all(about)
	}
	return ends, about
}

// explain adds the key of the configuration to a refusal that says little.
func (s *Sink) explain(r *refusal) error {
	codec := s.cfg.Compression
	switch {
	case codec == config.CompressionNone:
	case r.code == client.UnsupportedCompressionType, r.code == client.UnsupportedForMessageFormat:
		return fmt.Errorf("%w (the brokers do not take batches in %s: set kafka.compression to %s)", r, codec, otherCodecs(codec))
	}
	return r
}

// otherCodecs are those that brokers are likely to take which do not take this one.
func otherCodecs(c config.Compression) string {
	if c == config.CompressionGzip {
		return "none"
	}
	return "gzip or none"
}

// invalid ends the events that the broker names and lets the others wait again. Where
// it names none, the batch is halved until one is found.
func (s *Sink) invalid(ends []ended, b *batch, v verdict, about error) []ended {
	p := b.partition
	if len(v.records) == 0 {
		if len(b.items) == 1 {
			return s.end(ends, p, b.items[0], sinks.Permanent(about))
		}
		p.halve(b)
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
			ends = s.end(ends, p, it, about)
		}
		return ends
	}
	good := make([]*item, 0, len(b.items))
	for _, it := range b.items {
		if err := bad[it]; err != nil {
			ends = s.end(ends, p, it, err)
		} else {
			good = append(good, it)
		}
	}
	p.unshift(good)
	return ends
}

// restamp sends a batch again in which there are events of a time that the topic does not
// take (message.timestamp.before.max.ms): their records get the time of now. One that had
// that already fails, for the clocks do not agree, and goes back to the lane.
func (s *Sink) restamp(ends []ended, b *batch, v verdict, about error) ([]ended, error) {
	named := make(map[*item]bool)
	for i := range v.records {
		if i >= 0 && i < len(b.owners) {
			named[b.owners[i]] = true
		}
	}
	now := time.Now()
	kept := make([]*item, 0, len(b.items))
	var report error
	for _, it := range b.items {
		switch {
		case len(named) > 0 && !named[it]:
			kept = append(kept, it)
		case it.stamp.IsZero():
			it.stamp = now
			kept = append(kept, it)
		default:
			report = about
			ends = s.end(ends, b.partition, it, about)
		}
	}
	b.partition.unshift(kept)
	return ends, report
}
