package kafkabroker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Client returns a client of the listener Plaintext, which soon gives up asking a paused node and finds new leaders. The caller closes it.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.Addrs(Plaintext)...),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RequestTimeoutOverhead(3 * time.Second), // how long a paused node holds a question up
	}, opts...)...)
}

// ReadTopic returns the records that the topic has now, by partition and offset.
func (c *Cluster) ReadTopic(ctx context.Context, topic string) ([]*kgo.Record, error) {
	starts, err := c.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read topic %s: find its start: %w", topic, err)
	}
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("read topic %s: find its end: %w", topic, err)
	}
	missing := map[int32]int64{} // partition to the offset of the last record it has now
	from := map[int32]kgo.Offset{}
	for partition, end := range ends[topic] {
		if start := starts[topic][partition]; start.Offset < end.Offset {
			missing[partition] = end.Offset - 1
			from[partition] = kgo.NewOffset().At(start.Offset)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	cl, err := c.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.KeepControlRecords())
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for len(missing) > 0 {
		fetched, err := poll(ctx, cl)
		if err != nil {
			return nil, fmt.Errorf("read topic %s, of which these partitions and offsets are missing, %v: %w", topic, missing, err)
		}
		for _, r := range fetched {
			last, ok := missing[r.Partition]
			if ok && r.Offset >= last {
				delete(missing, r.Partition)
			}
			if ok && r.Offset <= last && !r.Attrs.IsControl() {
				records = append(records, r)
			}
		}
	}
	slices.SortFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return records, nil
}

// ReadUntil reads the topic from its start until done, which is called with all records so far in the order in which
// they arrived, returns true. The error of a ctx that ended comes with the records.
func (c *Cluster) ReadUntil(ctx context.Context, topic string, done func([]*kgo.Record) bool) ([]*kgo.Record, error) {
	cl, err := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for !done(records) {
		fetched, err := poll(ctx, cl)
		records = append(records, fetched...)
		if err != nil {
			return records, fmt.Errorf("read topic %s: %w", topic, err)
		}
	}
	return records, nil
}

func poll(ctx context.Context, cl *kgo.Client) ([]*kgo.Record, error) {
	fetches := cl.PollFetches(ctx)
	if ctx.Err() != nil {
		return fetches.Records(), context.Cause(ctx)
	}
	return fetches.Records(), fetches.Err()
}

// Header returns the value of the record's header, and whether it has one of that name.
func Header(r *kgo.Record, key string) (string, bool) {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value), true
		}
	}
	return "", false
}
