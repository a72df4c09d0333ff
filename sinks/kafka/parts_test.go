package kafka

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// The values are those of the Java client's own tests.
func TestTheHashIsTheOneOfTheJavaClient(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string":                       -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("the hash of %q is %d, want %d", key, got, want)
		}
	}
}

func FuzzThePartitionIsTheOneOfTheLibrary(f *testing.F) {
	f.Add([]byte("prod/apps/deployments/shop/checkout"), 12)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, key []byte, partitions int) {
		if partitions < 1 || partitions > 10_000 || key == nil {
			return
		}
		all := make([]int, partitions)
		for i := range all {
			all[i] = i
		}
		want := client.Murmur2Balancer{Consistent: true}.Balance(client.Message{Key: key}, all...)
		if got := partitionOf(key, partitions); got != want {
			t.Errorf("the partition of %q is %d, want %d", key, got, want)
		}
	})
}

func TestKeysNameObjectsAndMarkersApart(t *testing.T) {
	apps := event.NewResource(event.ResourceInfo{Cluster: "prod", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	nodes := event.NewResource(event.ResourceInfo{Cluster: "prod", Version: "v1", Resource: "nodes", Kind: "Node"})
	for want, e := range map[string]event.Event{
		"prod/apps/deployments/shop/checkout": {Resource: apps, Key: event.Key{Group: "apps", Resource: "deployments", Namespace: "shop", Name: "checkout"}, Type: event.Updated},
		"prod/core/nodes/_/node-1":            {Resource: nodes, Key: event.Key{Resource: "nodes", Name: "node-1"}, Type: event.Deleted},
		"prod/_snapshot/core/nodes":           {Resource: nodes, Key: event.Key{Resource: "nodes", Name: "_snapshot"}, Type: event.SnapshotCompleted},
	} {
		if got := string(appendKey(nil, &e)); got != want {
			t.Errorf("the key is %s, want %s", got, want)
		}
	}
}

func TestTheLoginOfMSKIsSignedForTheBroker(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	l := newLogin(&config.SASL{Mechanism: config.SASLMSKIAM, Region: "eu-central-1"})
	ctx := sasl.WithMetadata(t.Context(), &sasl.Metadata{Host: "b-1.msk.example.com", Port: 9098})
	session, first, err := l.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(first, &got); err != nil {
		t.Fatal(err)
	}
	if got["host"] != "b-1.msk.example.com" || got["action"] != "kafka-cluster:Connect" || got["x-amz-signature"] == "" ||
		got["x-amz-security-token"] != "session" || !strings.Contains(got["x-amz-credential"], "/eu-central-1/kafka-cluster/") {
		t.Errorf("the login is %v", got)
	}
	if done, _, err := session.Next(ctx, nil); !done || err != nil {
		t.Errorf("Next is %v, %v", done, err)
	}
}

func TestAProblemIsNewWhenItsCauseIs(t *testing.T) {
	var p problems
	p.init()
	down := io.ErrUnexpectedEOF
	if !p.note("broker 1", down) || p.note("broker 1", down) {
		t.Error("a problem is new once")
	}
	if p.note(partitionProblem("a", 1), &aboutPartition{"a", 1, down}) {
		t.Error("the same cause in a partition is no news")
	}
	if p.over("broker 1") != nil || p.err() == nil {
		t.Error("a cause is over when its last problem is")
	}
	if p.over(partitionProblem("a", 1)) == nil || p.err() != nil || len(p.causes) != 0 {
		t.Errorf("after all are over there is %v", p)
	}
}

// A dead letter is not tried again, and nothing may be published to its partition for long.
func TestWhatIsGivenUpIsNoProblemOfItsPartitionAnyMore(t *testing.T) {
	s := &Sink{log: slog.New(slog.DiscardHandler), topics: map[string]*topic{}}
	s.problems.init()
	p := &partition{topic: &topic{name: "a"}, leader: &broker{}, refused: sinks.NewRefused(time.Second)}
	p.topic.partitions = []*partition{p}
	s.topics["a"] = p.topic
	now := time.Now()
	p.refused.Note("key", io.ErrUnexpectedEOF, now)
	s.problems.note(partitionProblem("a", 0), &aboutPartition{"a", 0, io.ErrUnexpectedEOF})
	s.giveUp(now.Add(time.Minute))
	if s.Err() == nil {
		t.Error("it is over while it may still be tried")
	}
	s.giveUp(now.Add(2 * time.Minute))
	if err := s.Err(); err != nil {
		t.Errorf("it is still %v", err)
	}
}

// Two things rest on a new epoch for all that may have been stored without having been
// acknowledged: what a stalled broker had in hand can not come after newer batches, and
// a newer batch is not taken for a repeat, which would be acknowledged and not stored.
func TestTheBrokerRefusesAnOlderEpochAndTakesASequenceTwiceForARepeat(t *testing.T) {
	c := kafkabroker.Shared(t)
	const name = "epochs"
	if err := c.CreateTopic(t.Context(), name, kafkabroker.Topic{}); err != nil {
		t.Fatal(err)
	}
	cfg := config.DefaultKafka()
	conn, err := newDialer(cfg, "test").dial(t.Context(), c.Addrs(kafkabroker.Plaintext)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	s := &Sink{cfg: cfg, log: slog.New(slog.DiscardHandler), producer: producer{id: noProducer, wanted: true}}
	if err := s.becomeProducer(t.Context(), conn); err != nil || s.producer.id == noProducer {
		t.Fatalf("the producer is %+v, %v", s.producer, err)
	}
	encoder, err := newEncoder(cfg.Compression)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{encoder: encoder}
	p := &partition{topic: &topic{name: name}}
	send := func(me identity, version int) error {
		t.Helper()
		e := new(event.Event)
		sinktest.Pod("a", version, 300).Encode(e, event.Structured, nil)
		b := &batch{partition: p, items: []*item{{event: e, key: appendKey(nil, e)}}, identity: me}
		w.encoder.reset()
		if err := w.encoder.add(b); err != nil {
			t.Fatal(err)
		}
		req := &rawproduce.Request{Acks: -1, Timeout: 5000}
		w.add(req, b)
		m, err := conn.ask(req, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		v := judge(&m.(*produce.Response).Topics[0].Partitions[0])
		if v.err == nil {
			p.stored(b)
		}
		return v.err
	}
	if err := send(s.identify(p), 1); err != nil {
		t.Fatalf("the first batch: %v", err)
	}
	late := s.identify(p) // sent, and given up without an answer
	s.renounce(p)
	if err := send(s.identify(p), 2); err != nil {
		t.Fatalf("a batch of the new epoch: %v", err)
	}
	if err := send(late, 2); !errors.Is(err, client.InvalidProducerEpoch) {
		t.Errorf("the late batch got %v, want %v", err, client.InvalidProducerEpoch)
	}
	me := s.identify(p)
	for _, version := range []int{3, 4} {
		if err := send(me, version); err != nil {
			t.Errorf("version %d got %v", version, err)
		}
	}
	all, err := c.ReadTopic(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 3 {
		t.Errorf("%d records are stored, want versions 1, 2 and 3", len(all))
	}
}
