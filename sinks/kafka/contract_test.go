package kafka_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/kafka"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkabroker.Main(m)) }

var discard = slog.New(slog.DiscardHandler)

// settings are the defaults, for a cluster.
func settings(brokers ...string) config.Kafka {
	c := config.DefaultKafka()
	c.Brokers = brokers
	c.AckTimeout = 5 * time.Second
	return c
}

func open(t *testing.T, c config.Kafka) *kafka.Sink { return openLogged(t, c, nil) }

func openLogged(t *testing.T, c config.Kafka, h slog.Handler) *kafka.Sink {
	t.Helper()
	if h == nil {
		h = slog.NewTextHandler(t.Output(), nil)
	}
	s, err := kafka.Open(context.Background(), "test", c, slog.New(h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close returned %v", err)
		}
	})
	return s
}

var topics atomic.Int64

// template is a topic template of the test's own, and the topic that it makes of a Pod.
func template() (template, topic string) {
	n := topics.Add(1)
	return fmt.Sprintf("test%d.{group}.{resource}", n), fmt.Sprintf("test%d.core.pods", n)
}

// fake starts brokers that say what the test wants.
func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// records reads a topic of a fake from its start, by partition and offset.
func records(t testing.TB, c *kfake.Cluster, topic string) []*kgo.Record {
	t.Helper()
	want := int64(0)
	for _, p := range c.PartitionInfos(topic) {
		want += p.HighWatermark - p.LogStartOffset
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all []*kgo.Record
	for int64(len(all)) < want {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d records of %s", len(all), want, topic)
		}
		all = append(all, f.Records()...)
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

func values(records []*kgo.Record) [][]byte {
	var all [][]byte
	for _, r := range records {
		all = append(all, r.Value)
	}
	return all
}

func TestContractWithFakeBrokers(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Harness {
		c := fake(t, kfake.NumBrokers(3))
		text, topic := template()
		return sinktest.Harness{
			Open: func() sinks.Sink {
				cfg := settings(c.ListenAddrs()...)
				cfg.Topic = text
				return open(t, cfg)
			},
			Stored:   func() [][]byte { return values(records(t, c, topic)) },
			TooLarge: 2 << 20,
		}
	})
}

// The tests of the contract use all codecs in turn.
func TestContractWithARealBroker(t *testing.T) {
	codecs := []config.Compression{config.CompressionZstd, config.CompressionLZ4, config.CompressionSnappy, config.CompressionGzip, config.CompressionNone}
	run := 0
	sinktest.Run(t, func(t *testing.T) sinktest.Harness {
		c := kafkabroker.New(t)
		node := c.Nodes[0]
		text, topic := template()
		codec := codecs[run%len(codecs)]
		run++
		if err := c.CreateTopic(t.Context(), topic, kafkabroker.Topic{Partitions: 6}); err != nil {
			t.Fatal(err)
		}
		start := func() {
			if err := node.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		return sinktest.Harness{
			Open: func() sinks.Sink {
				cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
				cfg.Topic, cfg.Compression, cfg.AckTimeout = text, codec, 2*time.Second
				return open(t, cfg)
			},
			Stored: func() [][]byte {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				for { // a node that was paused is elected anew first
					all, err := c.ReadTopic(ctx, topic)
					if err == nil {
						return values(all)
					}
					if ctx.Err() != nil {
						t.Fatal(err)
					}
				}
			},
			Stop: node.Kill, Start: start,
			Stall:    func() func() { node.Pause(); return node.Resume },
			TooLarge: 2 << 20,
		}
	})
}
