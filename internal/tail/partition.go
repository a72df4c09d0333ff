package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/kbridge-io/kbridge/internal/plural"
	"github.com/kbridge-io/kbridge/sinks/kafka"
)

const (
	// fetchWait is how long a broker may wait for new records, and so how long those
	// of another broker may lie.
	fetchWait = 250 * time.Millisecond
	// Bytes in one answer, and of one partition in it, before they are expanded. One
	// batch may be larger.
	fetchBytes     = 8 << 20
	partitionBytes = 256 << 10
	// patience is how many answers without a record keep other partitions waiting.
	patience = 20
)

// unknown is an offset that was not asked for yet.
const unknown = -1

// partition is one partition of a topic.
type partition struct {
	topic     string
	index     int32
	leader    string // its address; empty: there is none
	fromStart bool   // it came up after we began: all of it is new

	next      int64 // offset of the next record to fetch, or unknown
	end       int64 // behind the last record, when last heard of
	fruitless int   // answers without a record, in a row
	late      bool  // where to begin could not be asked when it was to be
	lost      bool  // the log does not have next
	records   []record
}

// record is one that waits to be handed on.
type record struct {
	offset  int64
	time    time.Time
	headers []protocol.Header
	value   []byte // nil: a tombstone
}

// rest is the partition of a topic that is gone, as long as it has records.
func (p *partition) rest() []*partition {
	p.leader = ""
	if len(p.records) == 0 {
		return nil
	}
	return []*partition{p}
}

// behind says that records are to come which may be older than those of others.
func (p *partition) behind() bool {
	return len(p.records) == 0 && p.leader != "" && p.next != unknown && p.next < p.end && p.fruitless < patience
}

// emit hands on what has been fetched, the oldest first, until it takes more records
// to know which that is.
func (r *topicReader) emit() error {
	for {
		var oldest *partition
		for _, p := range r.partitions {
			switch {
			case p.behind():
				return nil
			case len(p.records) > 0 && (oldest == nil || p.records[0].time.Before(oldest.records[0].time)):
				oldest = p
			}
		}
		if oldest == nil {
			return nil
		}
		rec := oldest.records[0]
		oldest.records[0] = record{}
		oldest.records = oldest.records[1:]
		if rec.value == nil {
			continue
		}
		e, err := decodeRecord(rec.headers, rec.value)
		if err != nil {
			r.passOver(fmt.Sprintf("record %d in partition %d of topic %s", rec.offset, oldest.index, oldest.topic), err)
			continue
		}
		if e.marker() != "" && !r.isNew(e.Attribute("source")+" "+e.Attribute("id")) {
			continue
		}
		if err := r.hand(e); err != nil {
			return err
		}
	}
}

// isNew remembers a marker.
func (r *topicReader) isNew(marker string) bool {
	if slices.Contains(r.markers, marker) {
		return false
	}
	if len(r.markers) == markersKept {
		r.markers = slices.Delete(r.markers, 0, 1)
	}
	r.markers = append(r.markers, marker)
	return true
}

// byLeader returns the partitions that wanted selects, each at its leader. Where it
// can not be connected to, that is amiss.
func (r *topicReader) byLeader(ctx context.Context, wanted func(*partition) bool) (map[*kafka.Connection][]*partition, error) {
	at, failed := map[*kafka.Connection][]*partition{}, map[string]bool{}
	r.turn++
	for i := range r.partitions {
		p := r.partitions[(i+r.turn)%len(r.partitions)]
		if p.leader == "" || failed[p.leader] || !wanted(p) {
			continue
		}
		c, err := r.connect(ctx, p.leader)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && r.sessions == 0 && (isHopeless(err) || r.hopeless(err)):
			return nil, err
		case err != nil:
			r.failed(p.leader, err)
			failed[p.leader] = true
			continue
		}
		at[c] = append(at[c], p)
	}
	return at, nil
}

// begin finds where to read in the partitions where that is not known. Where it fails
// it is tried again with the next look.
func (r *topicReader) begin(ctx context.Context) error {
	at, err := r.byLeader(ctx, func(p *partition) bool { return p.next == unknown || p.lost })
	if err != nil {
		return err
	}
	for c, partitions := range at {
		first, err := offsets(c, partitions, client.FirstOffset)
		var end, since map[*partition]int64
		from := r.Since
		if from.IsZero() {
			from = r.began
		}
		if err == nil {
			end, err = offsets(c, partitions, client.LastOffset)
		}
		if err == nil && !r.All {
			since, err = offsets(c, partitions, from.UnixMilli())
		}
		if err != nil {
			r.failed(partitions[0].leader, err)
			continue
		}
		for _, p := range partitions {
			from, known := first[p]
			last, alsoKnown := end[p]
			if !known || !alsoKnown {
				r.amiss = true
				continue
			}
			p.end = last
			switch at, ok := since[p]; {
			case p.lost:
				r.regain(p, from)
			case r.All || p.fromStart:
				p.next = from
			case r.Since.IsZero() && !p.late:
				p.next = last
			case ok && at >= 0:
				p.next = at
			case ok:
				p.next = last // no record is as new
			}
			p.lost = false
		}
	}
	for _, p := range r.partitions {
		p.late = p.next == unknown
	}
	return nil
}

// regain goes on in a log that does not have what comes next.
func (r *topicReader) regain(p *partition, first int64) {
	switch {
	case p.next < first:
		r.Note(fmt.Sprintf("lost %s: the limits of topic %s removed what was not read", plural.Of(first-p.next, "event"), p.topic))
		p.next = first
	case p.next > p.end:
		if time.Since(r.renewed[p.topic]) > time.Minute {
			r.renewed[p.topic] = time.Now()
			r.Note(fmt.Sprintf("topic %s ends before what was read of it: reading it from its beginning", p.topic))
		}
		p.next = first
	}
}

// failed gives up a connection: the next look finds another leader, or none. Until
// then the broker's partitions keep nobody waiting.
func (r *topicReader) failed(address string, err error) {
	r.drop(address)
	r.amiss = true
	r.troubles = append(r.troubles, err.Error())
	for _, p := range r.partitions {
		if p.leader == address {
			p.fruitless = patience
		}
	}
}

// offsets asks a leader for the offsets at a time, in milliseconds or one of the
// client's constants; -1 is none. Those of partitions with an error are left out.
func offsets(c *kafka.Connection, partitions []*partition, at int64) (map[*partition]int64, error) {
	req := &listoffsets.Request{ReplicaID: -1}
	for _, p := range partitions {
		req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: p.topic, Partitions: []listoffsets.RequestPartition{
			{Partition: p.index, CurrentLeaderEpoch: -1, Timestamp: at},
		}})
	}
	m, err := c.Ask(req, requestTimeout)
	if err != nil {
		return nil, fmt.Errorf("ask for offsets: %w", err)
	}
	got := map[*partition]int64{}
	for _, t := range m.(*listoffsets.Response).Topics {
		for _, answer := range t.Partitions {
			if p := find(partitions, t.Topic, answer.Partition); p != nil && answer.ErrorCode == 0 {
				got[p] = answer.Offset
			}
		}
	}
	return got, nil
}

func find(partitions []*partition, topic string, index int32) *partition {
	for _, p := range partitions {
		if p.topic == topic && p.index == index {
			return p
		}
	}
	return nil
}

// fetch gets records for the partitions that have none, from all leaders at the same
// time. It returns whether there was somebody to ask.
func (r *topicReader) fetch(ctx context.Context) (asked bool, err error) {
	at, err := r.byLeader(ctx, func(p *partition) bool {
		return len(p.records) == 0 && p.next != unknown && !p.lost && !r.denied[p.topic]
	})
	if err != nil {
		return false, err
	}
	wait := fetchWait
	if slices.ContainsFunc(r.partitions, func(p *partition) bool { return len(p.records) > 0 }) {
		wait = time.Millisecond
	}
	type answer struct {
		partitions []*partition
		response   *fetch.Response
		err        error
	}
	answers := make(chan answer, len(at))
	var all sync.WaitGroup
	for c, partitions := range at {
		all.Go(func() {
			m, err := c.Ask(fetchRequest(partitions, wait), requestTimeout+wait)
			response, _ := m.(*fetch.Response)
			answers <- answer{partitions, response, err}
		})
	}
	all.Wait()
	close(answers)
	for a := range answers {
		if leader := a.partitions[0].leader; a.err != nil {
			r.failed(leader, fmt.Errorf("ask %s for records: %w", leader, a.err))
			continue
		}
		for _, t := range a.response.Topics {
			for i := range t.Partitions {
				if p := find(a.partitions, t.Topic, t.Partitions[i].Partition); p != nil {
					if err := r.take(p, &t.Partitions[i]); err != nil {
						return true, err
					}
				}
			}
		}
	}
	return len(at) > 0, nil
}

func fetchRequest(partitions []*partition, wait time.Duration) *fetch.Request {
	req := &fetch.Request{
		ReplicaID: -1, MaxWaitTime: int32(wait.Milliseconds()), MinBytes: 1, MaxBytes: fetchBytes, SessionEpoch: -1,
	}
	for _, p := range partitions {
		req.Topics = append(req.Topics, fetch.RequestTopic{Topic: p.topic, Partitions: []fetch.RequestPartition{
			{Partition: p.index, CurrentLeaderEpoch: -1, FetchOffset: p.next, LogStartOffset: -1, PartitionMaxBytes: partitionBytes},
		}})
	}
	return req
}

// take keeps the records of an answer.
func (r *topicReader) take(p *partition, answer *fetch.ResponsePartition) error {
	switch code := client.Error(answer.ErrorCode); code {
	case 0:
	case client.OffsetOutOfRange:
		p.lost, r.amiss = true, true
		return nil
	case client.TopicAuthorizationFailed:
		r.denied[p.topic] = true
		text := fmt.Sprintf("topic %s can not be read: %s", p.topic, codeText(answer.ErrorCode))
		if r.read == 0 && len(r.denied) == len(r.topics()) {
			return finalError{errors.New(text)}
		}
		r.Note(text)
		p.fruitless = patience
		return nil
	default: // the leader is another, or will be
		r.amiss = true
		p.fruitless++
		return nil
	}
	p.end = answer.HighWatermark
	began := p.next
	if err := p.read(answer.RecordSet.Records); err != nil {
		return fmt.Errorf("read partition %d of topic %s: %w", p.index, p.topic, err)
	}
	if p.fruitless++; p.next > began || p.next >= p.end {
		p.fruitless = 0
	}
	return nil
}

// read keeps records, all but the control records of transactions.
func (p *partition) read(records protocol.RecordReader) error {
	var batches []protocol.RecordReader
	switch rs := records.(type) {
	case nil:
		return nil
	case *protocol.RecordStream:
		batches = rs.Records
	default:
		batches = []protocol.RecordReader{rs}
	}
	for _, batch := range batches {
		_, control := batch.(*protocol.ControlBatch)
		before := p.next
		if err := p.readBatch(batch, control); err != nil {
			return err
		}
		// Compaction may leave a batch without records.
		if b, ok := batch.(*protocol.RecordBatch); ok && p.next == before {
			p.next = max(p.next, b.BaseOffset) + 1
		}
	}
	return nil
}

func (p *partition) readBatch(batch protocol.RecordReader, control bool) error {
	for {
		rec, err := batch.ReadRecord()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case rec.Offset < p.next:
			continue // a batch is sent whole
		}
		p.next = rec.Offset + 1
		if control {
			continue
		}
		kept := record{offset: rec.Offset, time: rec.Time, headers: slices.Clone(rec.Headers)}
		if rec.Value != nil {
			if kept.value, err = protocol.ReadAll(rec.Value); err != nil {
				return err
			}
			if kept.value == nil {
				kept.value = []byte{}
			}
		}
		p.records = append(p.records, kept)
	}
}
