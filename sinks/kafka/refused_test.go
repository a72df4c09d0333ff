package kafka_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

func TestWhatPassesInAPartitionIsNoEndOfWhatIsRefusedThere(t *testing.T) {
	c := fake(t)
	text, _ := template()
	var passes atomic.Bool
	answerProduce(c, func(_ int32, records []byte) *kmsg.ProduceResponseTopicPartition {
		if passes.Load() || !bytes.Contains(records, []byte("bad")) {
			return nil
		}
		return refuse(kerr.PolicyViolation)
	})
	var log sinktest.Log
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Partitions, cfg.Compression = text, 1, config.CompressionNone
	s := openLogged(t, cfg, log.Handler())
	for range 3 {
		if err := publish(t, s, pod("bad", 1, 200, event.Structured))[0]; err == nil {
			t.Fatal("what is refused is acknowledged")
		}
		noErrors(t, publish(t, s, pod("good", 1, 200, event.Structured)))
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "Policy Violation") {
			t.Errorf("while one is refused Err is %v", err)
		}
	}
	if n, over := log.Count("cannot publish"), log.Count("resolved"); n != 1 || over != 0 {
		t.Errorf("it is told %d times, and %d times to be over:\n%s", n, over, log.String())
	}
	passes.Store(true)
	noErrors(t, publish(t, s, pod("bad", 1, 200, event.Structured)))
	if err := s.Err(); err != nil || log.Count("resolved") != 1 {
		t.Errorf("after it was stored Err is %v, and the log is\n%s", err, log.String())
	}
}
