package kafka_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// churn publishes one version after the other of each key, each again until it is
// acknowledged.
type churn struct {
	t       *testing.T
	sink    publisher
	last    []int // by key: the last version that was acknowledged
	acked   atomic.Int64
	enough  atomic.Bool
	running sync.WaitGroup
}

func startChurn(t *testing.T, s publisher, keys int) *churn {
	c := &churn{t: t, sink: s, last: make([]int, keys)}
	c.running.Go(c.run)
	t.Cleanup(c.end)
	return c
}

func (c *churn) run() {
	type turn struct{ key, version int }
	turns := make(chan turn, len(c.last))
	for k := range c.last {
		turns <- turn{k, 1}
	}
	var waits sync.WaitGroup
	for left := len(c.last); left > 0; {
		next := <-turns
		if c.last[next.key] = next.version - 1; c.enough.Load() {
			left--
			continue
		}
		c.sink.Publish(context.Background(), pod(fmt.Sprintf("pod-%d", next.key), next.version, 600, event.Structured), func(err error) {
			switch {
			case err == nil:
				c.acked.Add(1)
				next.version++
				turns <- next
			case errors.Is(err, sinks.ErrPermanent):
				c.t.Errorf("done got %v", err)
				fallthrough
			default: // a lane pauses too
				waits.Add(1)
				time.AfterFunc(20*time.Millisecond, func() { defer waits.Done(); turns <- next })
			}
		})
	}
	waits.Wait()
}

// more waits for n more acknowledgements.
func (c *churn) more(n int64) {
	c.t.Helper()
	was := c.acked.Load()
	eventually(c.t, fmt.Sprintf("%d more events", n), func() bool { return c.acked.Load() >= was+n })
}

// end lets what is under way end.
func (c *churn) end() {
	c.enough.Store(true)
	c.running.Wait()
}

// lossless checks that a consumer gets the versions of each key in order, each at least
// once, though a key may have gone from one partition to another.
func (c *churn) lossless(all []*kgo.Record) {
	c.t.Helper()
	type part struct {
		key       string
		partition int32
	}
	versions := make(map[part][]int)
	parts := make(map[string][]part)
	for _, r := range all { // by partition and offset
		p := part{string(r.Key), r.Partition}
		if versions[p] == nil {
			parts[p.key] = append(parts[p.key], p)
		}
		versions[p] = append(versions[p], versionOf(c.t, r.Value))
	}
	repeated := 0
	for k, want := range c.last {
		key := fmt.Sprintf("test/core/pods/shop/pod-%d", k)
		slices.SortFunc(parts[key], func(a, b part) int { return cmp.Compare(versions[a][0], versions[b][0]) })
		last := 0
		for _, p := range parts[key] {
			for _, version := range versions[p] {
				switch {
				case version == last:
					repeated++
				case version != last+1:
					c.t.Errorf("%s: in partition %d version %d comes after version %d", key, p.partition, version, last)
				}
				last = version
			}
		}
		if last < want {
			c.t.Errorf("%s: the last version stored is %d, acknowledged was %d", key, last, want)
		}
	}
	c.t.Logf("%d events, %d of them twice", len(all), repeated)
}

// inSync waits until all replicas of a topic are.
func inSync(t *testing.T, c *kafkabroker.Cluster, topic string) {
	t.Helper()
	eventually(t, "all replicas to be in sync", func() bool {
		state, err := c.DescribeTopic(t.Context(), topic)
		for _, p := range state.Partitions {
			if err != nil || p.Leader < 0 || len(p.InSync) != len(p.Replicas) {
				return false
			}
		}
		return err == nil && len(state.Partitions) > 0
	})
}

func readTopic(t *testing.T, c *kafkabroker.Cluster, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := c.ReadTopic(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLeaderElectionsLoseAndReorderNothing(t *testing.T) {
	c := kafkabroker.New(t, func(o *kafkabroker.Options) { o.Nodes = 3 })
	text, topic := template()
	if err := c.CreateTopic(t.Context(), topic, kafkabroker.Topic{Partitions: 6, Config: map[string]string{"min.insync.replicas": "2"}}); err != nil {
		t.Fatal(err)
	}
	cfg := settings(c.Nodes[0].Addr(kafkabroker.Plaintext)) // the others are learnt
	cfg.Topic, cfg.AckTimeout = text, 2*time.Second
	s := open(t, cfg)
	churn := startChurn(t, s, 60)
	churn.more(1000)
	for i, node := range c.Nodes {
		switch i {
		case 0:
			node.Kill()
		case 1:
			node.Pause() // what it holds comes when nobody waits for it any more
		case 2:
			if err := node.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		churn.more(500)
		node.Resume()
		if err := node.Start(t.Context()); err != nil {
			t.Error(err)
		}
		churn.more(500)
		if err := c.StartAll(t.Context()); err != nil {
			t.Error(err)
		}
		inSync(t, c, topic)
	}
	churn.end()
	churn.lossless(readTopic(t, c, topic))
}

func TestPartitionsThatMoveAndThatAreAddedLoseAndReorderNothing(t *testing.T) {
	c := kafkabroker.New(t, func(o *kafkabroker.Options) { o.Nodes = 3 })
	const before, after = 3, 5
	text, topic := template()
	if err := c.CreateTopic(t.Context(), topic, kafkabroker.Topic{Partitions: before, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	cfg.Topic, cfg.AckTimeout = text, 2*time.Second
	churn := startChurn(t, open(t, cfg), 40)
	churn.more(500)
	for round := range 3 { // each partition to another broker, which becomes its leader
		state, err := c.DescribeTopic(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		var move kadm.AlterPartitionAssignmentsReq
		to := make([]int, before)
		for p := range to {
			to[p] = state.Partitions[p].Replicas[0]%len(c.Nodes) + 1
			move.Assign(topic, int32(p), []int32{int32(to[p])})
		}
		if _, err := c.Admin().AlterPartitionAssignments(t.Context(), move); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("move %d to %v", round, to), func() bool {
			state, err := c.DescribeTopic(t.Context(), topic)
			if err != nil {
				return false
			}
			for p := range to {
				if got := state.Partitions[p]; got.Leader != to[p] || !slices.Equal(got.Replicas, to[p:p+1]) {
					return false
				}
			}
			return true
		})
		churn.more(500)
	}
	if _, err := c.Admin().UpdatePartitions(t.Context(), after, topic); err != nil {
		t.Fatal(err)
	}
	added := func() (records int64) {
		ends, err := c.Admin().ListEndOffsets(t.Context(), topic)
		if err != nil {
			return 0
		}
		ends.Each(func(o kadm.ListedOffset) {
			if o.Partition >= before {
				records += max(0, o.Offset)
			}
		})
		return records
	}
	eventually(t, "the added partitions to be used", func() bool { return added() > 500 })
	churn.more(1000)
	churn.end()
	all := readTopic(t, c, topic)
	churn.lossless(all)
	// A key's last record is where other clients put it now.
	last := make(map[string]*kgo.Record)
	for _, r := range all {
		if was := last[string(r.Key)]; was == nil || versionOf(t, was.Value) <= versionOf(t, r.Value) {
			last[string(r.Key)] = r
		}
	}
	partitioner := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	for key, r := range last {
		if want := partitioner.Partition(r, after); int(r.Partition) != want {
			t.Errorf("the last record of %s is in partition %d, want %d", key, r.Partition, want)
		}
	}
}

// What is new needs a moment until all brokers know it, which is no trouble.
func TestATopicThatIsCreatedIsNoReasonForAWarning(t *testing.T) {
	c := kafkabroker.New(t, func(o *kafkabroker.Options) { o.Nodes = 3 })
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	cfg.Topic = "new.{name}"
	var lines sinktest.Log
	s := openLogged(t, cfg, lines.Handler())
	for round := range 10 {
		var events []*event.Event
		for i := range 4 {
			events = append(events, pod(fmt.Sprintf("topic-%d-%d", round, i), 1, 300, event.Structured))
		}
		noErrors(t, publish(t, s, events...))
	}
	for line := range strings.Lines(lines.String()) {
		if strings.Contains(line, "level=WARN") && !strings.Contains(line, "msg=\"topic: ") {
			t.Error(line)
		}
	}
	t.Logf("%+v", s.Stats())
}

func versionOf(t *testing.T, value []byte) int {
	t.Helper()
	_, rest, _ := strings.Cut(string(value), `"resourceversion":"`)
	text, _, _ := strings.Cut(rest, `"`)
	v, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("no version in %.200s", value)
	}
	return v
}

func TestATopicIsCreatedAsTheConfigurationSays(t *testing.T) {
	c := kafkabroker.Shared(t)
	text, topic := template()
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	cfg.Topic, cfg.Partitions, cfg.Replication, cfg.CleanupPolicy, cfg.Retention = text, 4, 1, config.CleanupBoth, 36*time.Hour
	var lines sinktest.Log
	s := openLogged(t, cfg, lines.Handler())
	deliver(t, s, pod("a", 1, 200, event.Structured))
	state, err := c.DescribeTopic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Partitions) != 4 || len(state.Partitions[0].Replicas) != 1 || state.Config["cleanup.policy"] != "compact,delete" || state.Config["retention.ms"] != "129600000" {
		t.Errorf("the topic is %+v", state)
	}
	for _, want := range []string{"topic: what is acknowledged is lost with one broker", "a compacted topic keeps the last state of deleted objects for ever"} {
		if n := lines.Count(want); n != 1 {
			t.Errorf("%q was logged %d times", want, n)
		}
	}
}

func TestATopicThatCannotBeCreatedIsNamedWithTheCause(t *testing.T) {
	c := kafkabroker.Shared(t)
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	text, topic := template()
	cfg.Topic, cfg.Replication = text, 3
	s := open(t, cfg)
	err := publish(t, s, pod("a", 1, 200, event.Structured))[0]
	if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "create topic "+topic+": Invalid Replication Factor") {
		t.Errorf("done got %v", err)
	}
	if s.Err() == nil {
		t.Error("Err is nil")
	}
}

// The broker refuses the batch, so that the sink halves it and reads the limit again at
// the same time. Which of the two finds the large event first does not matter: the broker
// refuses it alone, or the sink does by the limit that it has read.
func TestALimitThatWasLoweredIsReadAgain(t *testing.T) {
	c := kafkabroker.Shared(t)
	text, topic := template()
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	cfg.Topic, cfg.Compression, cfg.Partitions, cfg.Linger = text, config.CompressionNone, 1, 100*time.Millisecond
	s := open(t, cfg)
	deliver(t, s, pod("a", 1, 200, event.Structured))
	if err := c.AlterTopic(t.Context(), topic, map[string]string{"max.message.bytes": "20000"}); err != nil {
		t.Fatal(err)
	}
	var events []*event.Event
	for i := range 60 {
		size := 1000
		if i == 30 {
			size = 40_000
		}
		events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, size, event.Structured))
	}
	for i, err := range publish(t, s, events...) {
		if i == 30 {
			tooLarge(t, err, errors.Is(err, kafkaError(kerr.MessageTooLarge)), " bytes are too large for the topic: its max.message.bytes is ")
		} else if err != nil {
			t.Errorf("event %d got %v", i, err)
		}
	}
	large := pod("large", 1, 40_000, event.Structured)
	var err error
	eventually(t, "the limit to be known without asking a broker", func() bool {
		err = publish(t, s, large)[0]
		return !errors.Is(err, kafkaError(kerr.MessageTooLarge))
	})
	tooLarge(t, err, false, "its max.message.bytes is 20000")
	all := readTopic(t, c, topic)
	if len(all) != 60 {
		t.Errorf("%d records are stored, want 60", len(all))
	}
}

// After a long outage what waited is older than some topics take.
func TestAnEventThatIsTooOldForItsTopicIsStoredWithTheTimeOfNow(t *testing.T) {
	c := kafkabroker.Shared(t)
	text, topic := template()
	if err := c.CreateTopic(t.Context(), topic, kafkabroker.Topic{Config: map[string]string{"message.timestamp.before.max.ms": "3600000"}}); err != nil {
		t.Fatal(err)
	}
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	cfg.Topic, cfg.Linger = text, 100*time.Millisecond
	s := open(t, cfg)
	began := time.Now()
	var events []*event.Event
	for i := range 20 {
		d := sinktest.Pod(fmt.Sprintf("pod-%d", i), 1, 300)
		if i%7 == 0 {
			d.Time = began.Add(-2 * time.Hour)
		}
		e := new(event.Event)
		d.Encode(e, event.Structured, nil)
		events = append(events, e)
	}
	noErrors(t, publish(t, s, events...))
	all := readTopic(t, c, topic)
	if len(all) != len(events) {
		t.Fatalf("%d records are stored, want %d", len(all), len(events))
	}
	for i, r := range all {
		e := events[i]
		want := e.Time.Truncate(time.Millisecond)
		if i%7 == 0 {
			want = r.Timestamp
			if r.Timestamp.Before(began.Truncate(time.Millisecond)) || r.Timestamp.After(time.Now()) {
				t.Errorf("record %d has the time %v", i, r.Timestamp)
			}
		}
		if !r.Timestamp.Equal(want) || !bytes.Equal(r.Value, e.Value) {
			t.Errorf("record %d has the time %v, want %v, and the value %.80s", i, r.Timestamp, want, r.Value)
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err is %v", err)
	}
}

func TestEveryCodecIsReadByAnotherClient(t *testing.T) {
	c := kafkabroker.Shared(t)
	for _, codec := range []config.Compression{config.CompressionNone, config.CompressionGzip, config.CompressionSnappy, config.CompressionLZ4, config.CompressionZstd} {
		t.Run(string(codec), func(t *testing.T) {
			text, topic := template()
			cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
			cfg.Topic, cfg.Compression, cfg.Tombstones = text, codec, true
			s := open(t, cfg)
			var events []*event.Event
			for i := range 200 {
				events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 100+50*i, event.Binary))
			}
			events = append(events, deleted("gone", 2))
			deliver(t, s, events...)
			all := readTopic(t, c, topic)
			if len(all) != 202 {
				t.Errorf("%d records are stored, want 202", len(all))
			}
			// The broker keeps batches as they came: it is the one who checks them.
			for _, r := range all {
				if got := int(r.Attrs.CompressionType()); r.Value != nil && got != map[config.Compression]int{config.CompressionGzip: 1, config.CompressionSnappy: 2, config.CompressionLZ4: 3, config.CompressionZstd: 4}[codec] {
					t.Fatalf("the codec is %d", got)
				}
			}
		})
	}
}
