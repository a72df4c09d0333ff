package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

var pods = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "pods", Kind: "Pod"})

// pod is the event of a state of a Pod.
func pod(name string, version, size int, format event.Format) *event.Event {
	e := new(event.Event)
	sinktest.Pod(name, version, size).Encode(e, format, nil)
	return e
}

// incompressible is a pod that a codec makes little shorter.
func incompressible(name string, version, size int) *event.Event {
	e := new(event.Event)
	sinktest.Incompressible(name, version, size).Encode(e, event.Structured, nil)
	return e
}

func deleted(name string, version int) *event.Event {
	d := sinktest.Pod(name, version, 200)
	d.Type = event.Deleted
	e := new(event.Event)
	d.Encode(e, event.Structured, nil)
	return e
}

// publisher publishes as a lane does, and keeps the ends.
type publisher interface {
	Publish(context.Context, *event.Event, func(error))
}

// publish publishes the events, one after the other without waiting, and returns their
// ends in the same order.
func publish(t testing.TB, s publisher, events ...*event.Event) []error {
	t.Helper()
	errs := make([]error, len(events))
	var calls atomic.Int64
	var all sync.WaitGroup
	all.Add(len(events))
	for i, e := range events {
		s.Publish(t.Context(), e, func(err error) {
			errs[i] = err
			calls.Add(1)
			all.Done()
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatalf("done was called for %d of %d events", calls.Load(), len(events))
	}
	return errs
}

// deliver publishes again what failed, as a lane does.
func deliver(t testing.TB, s publisher, events ...*event.Event) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); len(events) > 0; {
		var again []*event.Event
		for i, err := range publish(t, s, events...) {
			if errors.Is(err, sinks.ErrPermanent) || err != nil && time.Now().After(deadline) {
				t.Fatal(err)
			}
			if err != nil {
				again = append(again, events[i])
			}
		}
		events = again
		if len(again) > 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func noErrors(t testing.TB, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// batchOf is what stands in the head of a batch.
type batchOf struct {
	records  int
	producer int64
	epoch    int16
	sequence int32
}

func readBatch(records []byte) batchOf {
	be := binary.BigEndian
	return batchOf{
		records: int(be.Uint32(records[57:])), producer: int64(be.Uint64(records[43:])),
		epoch: int16(be.Uint16(records[51:])), sequence: int32(be.Uint32(records[53:])),
	}
}

// answerProduce lets f decide on each batch that the fake gets, until it returns false
// for all of a request. What it returns for a batch it refuses.
func answerProduce(c *kfake.Cluster, f func(partition int32, records []byte) *kmsg.ProduceResponseTopicPartition) {
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		refused := false
		for _, topic := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := f(p.Partition, p.Records)
				if rp == nil {
					continue
				}
				refused = true
				rp.Partition = p.Partition
				rt.Partitions = append(rt.Partitions, *rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, refused
	})
}

func refuse(err *kerr.Error) *kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.ErrorCode = err.Code
	return &p
}

// kafkaError is the client library's name of an error.
func kafkaError(err *kerr.Error) error { return client.Error(err.Code) }

func TestARecordHasKeyHeadersTimeAndThePartitionThatOtherClientsChoose(t *testing.T) {
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	s := open(t, cfg)
	var events []*event.Event
	for i := range 20 {
		events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 200, event.Structured), pod(fmt.Sprintf("binary-%d", i), 1, 200, event.Binary))
	}
	noErrors(t, publish(t, s, events...))
	byKey := make(map[string]*kgo.Record)
	all := records(t, c, topic)
	for _, r := range all {
		byKey[string(r.Key)] = r
	}
	partitioner := kgo.StickyKeyPartitioner(nil).ForTopic(topic)
	for _, e := range events {
		r := byKey["test/core/pods/shop/"+e.Key.Name]
		if r == nil {
			t.Fatalf("%s is missing among %d records", e.Key.Name, len(all))
		}
		if !bytes.Equal(r.Value, e.Value) {
			t.Errorf("%s: value is %.60q", e.Key.Name, r.Value)
		}
		if want := e.Time.Truncate(time.Millisecond); !r.Timestamp.Equal(want) {
			t.Errorf("%s: time is %v, want %v", e.Key.Name, r.Timestamp, want)
		}
		if got := header(r, "content-type"); got != e.ContentType() {
			t.Errorf("%s: content-type is %q", e.Key.Name, got)
		}
		if want := partitioner.Partition(r, 6); int(r.Partition) != want {
			t.Errorf("%s: is in partition %d, want %d", e.Key.Name, r.Partition, want)
		}
		if e.Format == event.Structured {
			if len(r.Headers) != 1 {
				t.Errorf("%s: headers are %v", e.Key.Name, r.Headers)
			}
			continue
		}
		e.Attributes(func(name, value string) {
			if got := header(r, "ce_"+name); got != value {
				t.Errorf("%s: ce_%s is %q, want %q", e.Key.Name, name, got, value)
			}
		})
		if header(r, "ce_id") != "uid-"+e.Key.Name+".1" || header(r, "ce_type") != "dev.kbridge.object.updated" || header(r, "ce_datacontenttype") != "" {
			t.Errorf("%s: headers are %v", e.Key.Name, r.Headers)
		}
	}
}

func TestATombstoneFollowsADeletionAndNothingElse(t *testing.T) {
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Tombstones, cfg.Partitions = text, true, 1
	s := open(t, cfg)
	noErrors(t, publish(t, s, pod("a", 1, 200, event.Structured), deleted("b", 2), pod("c", 1, 200, event.Structured)))
	var got []string
	for _, r := range records(t, c, topic) {
		if r.Value == nil {
			got = append(got, "tombstone of "+string(r.Key))
			if len(r.Headers) > 0 {
				t.Errorf("a tombstone has the headers %v", r.Headers)
			}
		} else {
			got = append(got, string(r.Key))
		}
	}
	want := []string{"test/core/pods/shop/a", "test/core/pods/shop/b", "tombstone of test/core/pods/shop/b", "test/core/pods/shop/c"}
	if !slices.Equal(got, want) {
		t.Errorf("stored is %q, want %q", got, want)
	}
}

func TestAMarkerGoesToEveryPartitionAndEndsOnce(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	s := open(t, cfg)
	var marker event.Event
	(&event.Marker{Type: event.SnapshotStarted, Resource: pods, Namespace: "shop", Snapshot: "s1", Time: time.Now()}).Encode(&marker, event.Structured)
	noErrors(t, publish(t, s, &marker))
	got := make(map[int32]string)
	for _, r := range records(t, c, topic) {
		got[r.Partition] = string(r.Key)
	}
	for p := range int32(6) {
		if got[p] != "test/_snapshot/core/pods" {
			t.Errorf("partition %d has the key %q", p, got[p])
		}
	}

	// As long as one partition refuses it, it is not acknowledged.
	answerProduce(c, func(partition int32, _ []byte) *kmsg.ProduceResponseTopicPartition {
		if partition == 3 {
			return refuse(kerr.NotEnoughReplicas)
		}
		ok := kmsg.NewProduceResponseTopicPartition()
		return &ok
	})
	if err := publish(t, s, &marker)[0]; !errors.Is(err, kafkaError(kerr.NotEnoughReplicas)) || errors.Is(err, sinks.ErrPermanent) {
		t.Errorf("done got %v", err)
	}
}

func TestAnInvalidRecordDoesNotFailItsNeighbours(t *testing.T) {
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions, cfg.Compression, cfg.Linger = text, 1, config.CompressionNone, 200*time.Millisecond
	s := open(t, cfg)
	noErrors(t, publish(t, s, pod("first", 1, 200, event.Structured)))
	answerProduce(c, func(_ int32, records []byte) *kmsg.ProduceResponseTopicPartition {
		if !bytes.Contains(records, []byte("bad")) {
			return nil
		}
		p := refuse(kerr.InvalidRecord)
		e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		e.RelativeOffset, e.ErrorMessage = 3, kmsg.StringPtr("one could not be read")
		p.ErrorRecords = append(p.ErrorRecords, e)
		return p
	})
	var events []*event.Event
	for i := range 8 {
		name := fmt.Sprintf("pod-%d", i)
		if i == 3 {
			name = "bad"
		}
		events = append(events, pod(name, 1, 200, event.Structured))
	}
	for i, err := range publish(t, s, events...) {
		switch {
		case i == 3 && !errors.Is(err, sinks.ErrPermanent), i != 3 && err != nil:
			t.Errorf("event %d got %v", i, err)
		case i == 3 && !strings.Contains(err.Error(), "one could not be read"):
			t.Errorf("the cause is not told: %v", err)
		}
	}
	if got := len(records(t, c, topic)); got != 8 {
		t.Errorf("%d records are stored, want 8", got)
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err is %v", err)
	}
}

// Where the clocks do not agree another time does not help: the lane tries again later.
func TestAnEventOfNoTimeThatItsTopicTakesGoesBackToTheLane(t *testing.T) {
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions = text, 1
	s := open(t, cfg)
	noErrors(t, publish(t, s, pod("first", 1, 200, event.Structured)))
	var sent atomic.Int64
	answerProduce(c, func(int32, []byte) *kmsg.ProduceResponseTopicPartition {
		sent.Add(1)
		return refuse(kerr.InvalidTimestamp)
	})
	err := publish(t, s, pod("a", 1, 200, event.Structured))[0]
	if !errors.Is(err, kafkaError(kerr.InvalidTimestamp)) || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), topic) {
		t.Errorf("done got %v", err)
	}
	if n := sent.Load(); n != 2 || s.Err() == nil {
		t.Errorf("it was sent %d times, want 2: with its own time, and with another; Err is %v", n, s.Err())
	}
}

func TestABatchThatIsTooLargeIsHalvedUntilItPasses(t *testing.T) {
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions, cfg.Linger = text, 1, 100*time.Millisecond
	s := open(t, cfg)
	noErrors(t, publish(t, s, pod("first", 1, 200, event.Structured)))
	answerProduce(c, func(_ int32, records []byte) *kmsg.ProduceResponseTopicPartition {
		if readBatch(records).records > 3 {
			return refuse(kerr.MessageTooLarge)
		}
		return nil
	})
	var events []*event.Event
	for i := range 100 {
		events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 300, event.Structured))
	}
	noErrors(t, publish(t, s, events...))
	if f := s.Failures(); f.Resend == 0 || f.Connect+f.Lookup > 0 {
		t.Errorf("the failures are %+v", f)
	}
	all := records(t, c, topic)
	if len(all) != 101 {
		t.Fatalf("%d records are stored, want 101", len(all))
	}
	for i, r := range all[1:] {
		if want := fmt.Sprintf("test/core/pods/shop/pod-%d", i); string(r.Key) != want {
			t.Fatalf("record %d is %s, want %s", i, r.Key, want)
		}
	}
}

func TestAnElectionIsWaitedForAndOtherPartitionsGoOn(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	if err := c.CreateTopic(topic, 6, nil); err != nil { // for new ones the sink is patient
		t.Fatal(err)
	}
	s := open(t, cfg)
	var events []*event.Event
	for i := range 60 {
		events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 300, event.Structured))
	}
	noErrors(t, publish(t, s, events...))
	for round := range 10 {
		for p := range int32(6) {
			if err := c.MoveTopicPartition(topic, p, int32(round+int(p))%3); err != nil {
				t.Fatal(err)
			}
		}
		noErrors(t, publish(t, s, events...))
	}
	if s.Failures().Resend == 0 {
		t.Error("what was sent again to another leader is not counted")
	}
	if got := len(records(t, c, topic)); got != 11*60 {
		t.Errorf("%d records are stored, want %d", got, 11*60)
	}

	// One that nobody leads for long gives its events back, and the others go on.
	answerProduce(c, func(partition int32, _ []byte) *kmsg.ProduceResponseTopicPartition {
		if partition == 2 {
			return refuse(kerr.NotLeaderForPartition)
		}
		ok := kmsg.NewProduceResponseTopicPartition()
		return &ok
	})
	began := time.Now()
	failed := 0
	for _, err := range publish(t, s, events...) {
		if err == nil {
			continue
		}
		failed++
		if errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "partition 2 of topic "+topic) {
			t.Errorf("done got %v", err)
		}
	}
	if took := time.Since(began); failed == 0 || failed == len(events) || took > 5*time.Second {
		t.Errorf("%d of %d events failed within %v", failed, len(events), took)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), topic) {
		t.Errorf("Err is %v", err)
	}
}

// batchesOf notes the batches that a fake gets. It refuses the next one where it is told
// to, or all.
type batchesOf struct {
	mu      sync.Mutex
	seen    []batchOf // but for those that deposed refused
	next    *kerr.Error
	deposed bool
}

func watchBatches(c *kfake.Cluster) *batchesOf {
	w := &batchesOf{}
	answerProduce(c, func(_ int32, records []byte) *kmsg.ProduceResponseTopicPartition {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.deposed {
			return refuse(kerr.NotLeaderForPartition)
		}
		w.seen = append(w.seen, readBatch(records))
		if w.next == nil {
			return nil
		}
		defer func() { w.next = nil }()
		return refuse(w.next)
	})
	return w
}

func (w *batchesOf) refuse(next *kerr.Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = next
}

func (w *batchesOf) depose(deposed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deposed = deposed
}

func TestAfterALostAnswerAPartitionBeginsANewEpoch(t *testing.T) {
	c := fake(t)
	text, _ := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions = text, 1
	s := open(t, cfg)
	w := watchBatches(c)
	event := pod("a", 1, 200, event.Structured)
	mustFail := func() {
		t.Helper()
		if err := publish(t, s, event)[0]; err == nil {
			t.Error("a refused batch was acknowledged")
		}
	}
	noErrors(t, publish(t, s, event))
	w.refuse(kerr.NotEnoughReplicas) // certainly not stored: the sequence goes on
	mustFail()
	noErrors(t, publish(t, s, event))
	w.refuse(kerr.NotEnoughReplicasAfterAppend) // perhaps stored
	mustFail()
	noErrors(t, publish(t, s, event))
	w.refuse(kerr.NotLeaderForPartition) // perhaps stored, and sent again as it was
	noErrors(t, publish(t, s, event))
	w.refuse(kerr.UnknownServerError)
	mustFail()
	noErrors(t, publish(t, s, event))
	w.mu.Lock()
	defer w.mu.Unlock()
	type place struct {
		epoch    int16
		sequence int32
	}
	var got []place
	for _, b := range w.seen {
		if got = append(got, place{b.epoch, b.sequence}); b.producer < 0 {
			t.Errorf("a batch has %+v", b)
		}
	}
	if want := []place{{0, 0}, {0, 1}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 1}, {1, 2}, {2, 0}}; !slices.Equal(got, want) {
		t.Errorf("the batches have %v, want %v", got, want)
	}
}

// A batch that a leader gave back may be stored. If it is not repeated, another one with
// its sequence would be taken for it: acknowledged, and not stored.
func TestABatchThatIsNotRepeatedInTimeLeavesItsSequenceBehind(t *testing.T) {
	c := fake(t)
	text, topic := template()
	if err := c.CreateTopic(topic, 1, nil); err != nil {
		t.Fatal(err)
	}
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	s := open(t, cfg)
	w := watchBatches(c)
	deliver(t, s, pod("a", 1, 200, event.Structured))
	w.depose(true)
	if err := publish(t, s, pod("a", 2, 200, event.Structured))[0]; err == nil {
		t.Error("a batch was acknowledged by nobody")
	}
	w.depose(false)
	deliver(t, s, pod("b", 1, 200, event.Structured))
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.seen[len(w.seen)-1]
	if before := w.seen[len(w.seen)-2]; last.epoch <= before.epoch || last.sequence != 0 {
		t.Errorf("after %+v a batch has %+v", before, last)
	}
}

func TestWithoutAcksAllThereIsNoProducerID(t *testing.T) {
	for _, acks := range []config.Acks{config.AcksOne, config.AcksNone} {
		t.Run(string(acks), func(t *testing.T) {
			c := fake(t)
			text, topic := template()
			cfg := settings(c.ListenAddrs()...)
			cfg.Topic, cfg.Acks = text, acks
			var lines sinktest.Log
			s := openLogged(t, cfg, lines.Handler())
			var events []*event.Event
			for i := range 50 {
				events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 300, event.Structured))
			}
			noErrors(t, publish(t, s, events...))
			eventually(t, "the records", func() bool { return len(records(t, c, topic)) == 50 })
			if !strings.Contains(lines.String(), "acks") {
				t.Errorf("there is no warning in %s", lines.String())
			}
			for _, r := range records(t, c, topic) {
				if r.ProducerID != -1 {
					t.Fatalf("the producer is %d", r.ProducerID)
				}
			}
		})
	}
}

func TestAcknowledgementsAreAskedForAsConfigured(t *testing.T) {
	for acks, want := range map[config.Acks]int16{config.DefaultKafka().Acks: -1, config.AcksAll: -1, config.AcksOne: 1, config.AcksNone: 0} {
		t.Run(string(acks), func(t *testing.T) {
			c := fake(t)
			asked := make(chan int16, 10)
			c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
				asked <- r.(*kmsg.ProduceRequest).Acks
				return nil, nil, false
			})
			cfg := settings(c.ListenAddrs()...)
			cfg.Topic, _ = template()
			cfg.Acks = acks
			deliver(t, open(t, cfg), pod("a", 1, 200, event.Structured))
			if got := <-asked; got != want {
				t.Errorf("asked for %d, want %d", got, want)
			}
		})
	}
}

// The field has 32 bits of milliseconds. What the configuration lets through fits.
func TestTheLongestTimeoutReachesTheBroker(t *testing.T) {
	c := fake(t)
	asked := make(chan int32, 10)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		asked <- r.(*kmsg.ProduceRequest).TimeoutMillis
		return nil, nil, false
	})
	whole := config.Default()
	whole.Resources = append(whole.Resources, config.DefaultResource())
	whole.Resources[0].Resource = "pods"
	longest := settings(c.ListenAddrs()...)
	longest.Topic, _ = template()
	longest.AckTimeout = 24 * 24 * time.Hour
	sink := config.DefaultSink()
	sink.Name, sink.Kafka = "longest", &longest
	whole.Sinks = append(whole.Sinks, sink)
	if err := whole.Validate(); err != nil {
		t.Fatal(err)
	}
	deliver(t, open(t, longest), pod("a", 1, 200, event.Structured))
	if got, want := <-asked, int32(longest.AckTimeout.Milliseconds()/5*4); got != want {
		t.Errorf("the broker was asked to answer within %d ms, want %d", got, want)
	}
	longest.AckTimeout += time.Second
	if whole.Validate() == nil {
		t.Error("a longer one is taken")
	}
}

func TestABatchGoesWhenItHasItsBytesAndElseLingers(t *testing.T) {
	if got := config.DefaultKafka().Linger; got != 5*time.Millisecond {
		t.Errorf("a batch lingers for %v unless it is told otherwise", got)
	}
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions, cfg.BatchBytes, cfg.Linger = text, 1, 10_000, time.Hour
	cfg.Compression = config.CompressionNone
	s := open(t, cfg)
	var mu sync.Mutex
	var batches []batchOf
	answerProduce(c, func(_ int32, records []byte) *kmsg.ProduceResponseTopicPartition {
		mu.Lock()
		defer mu.Unlock()
		if len(records) > 10_000 {
			t.Errorf("a batch has %d bytes", len(records))
		}
		batches = append(batches, readBatch(records))
		return nil
	})
	// Of events of about 1,400 bytes seven make a batch, and two wait for more.
	const each, full, rest = 7, 3, 2
	var acked, failed atomic.Int64
	for i := range each*full + rest {
		s.Publish(t.Context(), pod(fmt.Sprintf("pod-%d", i), 1, 900, event.Structured), func(err error) {
			if err != nil {
				failed.Add(1)
			}
			acked.Add(1)
		})
	}
	eventually(t, "the full batches", func() bool { return acked.Load() >= each*full })
	if n := acked.Load(); n != each*full {
		t.Errorf("%d events were acknowledged, want %d: what lingers is not sent", n, each*full)
	}
	if err := s.Close(t.Context()); err != nil { // nothing lingers any more
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	var got []int
	for _, b := range batches {
		got = append(got, b.records)
	}
	if want := []int{each, each, each, rest}; !slices.Equal(got, want) || failed.Load() > 0 {
		t.Errorf("the batches have %v records, want %v; %d events failed", got, want, failed.Load())
	}
	if n := len(records(t, c, topic)); n != each*full+rest {
		t.Errorf("%d records are stored", n)
	}
}

func TestAnAbsentTopicIsNamedAndOtherTopicsGoOn(t *testing.T) {
	c := fake(t)
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.TopicPolicy = "require.{name}", config.TopicRequire
	if err := c.CreateTopic("require.there", 1, nil); err != nil {
		t.Fatal(err)
	}
	var lines sinktest.Log
	s := openLogged(t, cfg, lines.Handler())
	errs := publish(t, s, pod("absent", 1, 200, event.Structured), pod("there", 1, 200, event.Structured))
	if errs[1] != nil || errs[0] == nil || errors.Is(errs[0], sinks.ErrPermanent) || !strings.Contains(errs[0].Error(), "topic require.absent does not exist") {
		t.Errorf("done got %v", errs)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "require.absent") {
		t.Errorf("Err is %v", err)
	}
	if f := s.Failures(); f.Lookup == 0 || f.Connect+f.Resend > 0 {
		t.Errorf("the failures are %+v", f)
	}
	if err := c.CreateTopic("require.absent", 1, nil); err != nil {
		t.Fatal(err)
	}
	deliver(t, s, pod("absent", 1, 200, event.Structured))
	eventually(t, "Err to be nil", func() bool { return s.Err() == nil })
	if n := lines.Count("does not exist"); n != 2 { // once as a warning, once as resolved
		t.Errorf("the absence was logged %d times:\n%s", n, lines.String())
	}
}

func TestWhatIsUnderWayToAPartitionThatIsGoneEnds(t *testing.T) {
	c := fake(t)
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = "{name}"
	s := open(t, cfg)
	e := pod("fewer", 1, 200, event.Structured)
	deliver(t, s, e)
	if p := records(t, c, "fewer")[0].Partition; p == 0 {
		t.Fatal("the event is for partition 0, which will not be gone")
	}
	arrived, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.ProduceRequest)
		first := false
		once.Do(func() { first = true })
		if c.KeepControl(); !first {
			return nil, nil, false
		}
		close(arrived)
		c.SleepControl(func() { <-answer })
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = "fewer"
		rp := refuse(kerr.UnknownTopicOrPartition)
		rp.Partition = req.Topics[0].Partitions[0].Partition
		rt.Partitions = append(rt.Partitions, *rp)
		res.Topics = append(res.Topics, rt)
		return res, nil, true
	})
	ended := make(chan error, 1)
	s.Publish(t.Context(), e, func(err error) { ended <- err })
	<-arrived
	admin(t, c, func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.DeleteTopic(ctx, "fewer")
		if err == nil {
			_, err = admin.CreateTopic(ctx, 1, 1, nil, "fewer")
		}
		return err
	})
	deliver(t, s, pod("another", 1, 200, event.Structured)) // for which the sink looks at the cluster
	close(answer)
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, sinks.ErrPermanent) {
			t.Errorf("done got %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("done was not called")
	}
	deliver(t, s, e)
	if n := len(records(t, c, "fewer")); n != 1 {
		t.Errorf("%d records are stored in the new topic", n)
	}
}

// admin asks a fake.
func admin(t *testing.T, c *kfake.Cluster, ask func(context.Context, *kadm.Client) error) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := ask(t.Context(), kadm.NewClient(cl)); err != nil {
		t.Fatal(err)
	}
}

func TestATopicsNameThatKafkaDoesNotTakeIsAPermanentError(t *testing.T) {
	c := fake(t)
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = "long.{name}"
	s := open(t, cfg)
	if err := publish(t, s, pod(strings.Repeat("x", 250), 1, 900, event.Structured))[0]; !errors.Is(err, sinks.ErrPermanent) {
		t.Errorf("done got %v", err)
	}
}

func TestAnIdenticalFailureIsLoggedOnce(t *testing.T) {
	c := fake(t)
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	var lines sinktest.Log
	s := openLogged(t, cfg, lines.Handler())
	var events []*event.Event
	for i := range 40 {
		events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 300, event.Structured))
	}
	noErrors(t, publish(t, s, events...))
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
	for range 5 {
		publish(t, s, events...)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "Not Enough Replicas") {
		t.Errorf("Err is %v", err)
	}
	h.Remove()
	deliver(t, s, events...)
	if err := s.Err(); err != nil {
		t.Errorf("Err is %v", err)
	}
	if n := lines.Count("level=WARN msg=\"cannot publish"); n != 1 {
		t.Errorf("the failure was logged %d times:\n%s", n, lines.String())
	}
	if n := lines.Count("resolved"); n != 1 {
		t.Errorf("its end was logged %d times:\n%s", n, lines.String())
	}
}

func TestManyTopicsAreCreatedFromOneTemplate(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions = "many.{name}", 2
	s := open(t, cfg)
	var events []*event.Event
	for i := range 100 {
		events = append(events, pod(fmt.Sprintf("pod-%d", i), 1, 300, event.Structured))
	}
	noErrors(t, publish(t, s, events...))
	for i := range 100 {
		if got := len(records(t, c, fmt.Sprintf("many.pod-%d", i))); got != 1 {
			t.Errorf("topic %d has %d records", i, got)
		}
	}
}

func TestABrokerThatGivesNoProducerIDStillTakesEvents(t *testing.T) {
	c := fake(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	text, topic := template()
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	var lines sinktest.Log
	s := openLogged(t, cfg, lines.Handler())
	noErrors(t, publish(t, s, pod("a", 1, 200, event.Structured)))
	if r := records(t, c, topic); len(r) != 1 || r[0].ProducerID != -1 {
		t.Errorf("stored is %v", r)
	}
	if n := lines.Count("no producer id"); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, lines.String())
	}
}
