package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
)

// churn publishes one version after the other of each key, each again until it is
// acknowledged, until stop says that it is enough. It returns the last versions.
func churn(t *testing.T, s publisher, keys int, acked *atomic.Int64, stop func() bool) []int {
	type turn struct{ key, version int }
	turns := make(chan turn, keys)
	for k := range keys {
		turns <- turn{k, 1}
	}
	last := make([]int, keys)
	var waits sync.WaitGroup
	for left := keys; left > 0; {
		next := <-turns
		if last[next.key] = next.version - 1; stop() {
			left--
			continue
		}
		s.Publish(t.Context(), pod(fmt.Sprintf("pod-%d", next.key), next.version, 600, event.Structured), func(err error) {
			switch {
			case err == nil:
				acked.Add(1)
				next.version++
				turns <- next
			case errors.Is(err, sinks.ErrPermanent):
				t.Errorf("done got %v", err)
				fallthrough
			default: // a lane pauses too
				waits.Add(1)
				time.AfterFunc(20*time.Millisecond, func() { defer waits.Done(); turns <- next })
			}
		})
	}
	waits.Wait()
	return last
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
	var acked atomic.Int64
	var enough atomic.Bool
	var last []int
	var running sync.WaitGroup
	running.Go(func() { last = churn(t, s, 60, &acked, enough.Load) })
	more := func(n int64) {
		t.Helper()
		was := acked.Load()
		eventually(t, fmt.Sprintf("%d more events", n), func() bool { return acked.Load() >= was+n })
	}
	more(1000)
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
		more(500)
		node.Resume()
		if err := node.Start(t.Context()); err != nil {
			t.Error(err)
		}
		more(500)
		c.StartAll(t.Context())
		time.Sleep(time.Second) // the replicas catch up
	}
	enough.Store(true)
	running.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := c.ReadTopic(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	repeated := 0
	for _, r := range all {
		key := string(r.Key)
		version := versionOf(t, r.Value)
		switch {
		case version == seen[key]:
			repeated++
		case version != seen[key]+1:
			t.Errorf("%s: version %d comes after version %d", key, version, seen[key])
		}
		seen[key] = version
	}
	for k, want := range last {
		if got := seen[fmt.Sprintf("test/core/pods/shop/pod-%d", k)]; got < want {
			t.Errorf("pod-%d: the last version stored is %d, acknowledged was %d", k, got, want)
		}
	}
	t.Logf("%d events, %d of them twice, %+v", len(all), repeated, s.Stats())
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
	var lines logs
	s := openLogged(t, cfg, lines.handler())
	deliver(t, s, pod("a", 1, 200, event.Structured))
	state, err := c.DescribeTopic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Partitions) != 4 || len(state.Partitions[0].Replicas) != 1 || state.Config["cleanup.policy"] != "compact,delete" || state.Config["retention.ms"] != "129600000" {
		t.Errorf("the topic is %+v", state)
	}
	for _, want := range []string{"topic: what is acknowledged is lost with one broker", "a compacted topic keeps the last state of deleted objects for ever"} {
		if n := strings.Count(lines.String(), want); n != 1 {
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
		if i == 30 && !errors.Is(err, sinks.ErrTooLarge) || i != 30 && err != nil {
			t.Errorf("event %d got %v", i, err)
		}
	}
	all, err := c.ReadTopic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 60 {
		t.Errorf("%d records are stored, want 60", len(all))
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
			all, err := c.ReadTopic(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
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
