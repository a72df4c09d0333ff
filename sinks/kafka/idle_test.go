package kafka_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/kafka"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// untroubled expects a sink that has met no failure since.
func untroubled(t *testing.T, s *kafka.Sink, since sinks.Failures, log *sinktest.Log) {
	t.Helper()
	if f := s.Failures(); f != since {
		t.Errorf("the failures are %+v, and were %+v", f, since)
	}
	if log.Count("level=WARN") > 0 || log.Count("level=ERROR") > 0 {
		t.Errorf("the log has a warning:\n%s", log.String())
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err is %v", err)
	}
}

func TestConnectionsThatTheBrokerClosesWhenTheyAreIdleAreNoFailure(t *testing.T) {
	c := kafkabroker.New(t, func(o *kafkabroker.Options) {
		o.Config, o.TLS = map[string]string{"connections.max.idle.ms": "1000"}, true
	})
	for name, way := range map[string]struct {
		acks     config.Acks
		listener kafkabroker.Listener
		tls      *config.TLS
	}{
		"all": {config.AcksAll, kafkabroker.Plaintext, nil},
		"one": {config.AcksOne, kafkabroker.Plaintext, nil},
		"tls": {config.AcksOne, kafkabroker.TLS, &config.TLS{CA: c.Certificates.CA}},
	} {
		var log sinktest.Log
		cfg := settings(c.Addrs(way.listener)...)
		cfg.Topic, cfg.Acks, cfg.TLS, cfg.Partitions = "idle-"+name+"-{namespace}", way.acks, way.tls, 1
		s := openLogged(t, cfg, log.Handler())
		noErrors(t, publish(t, s, pod("a", 1, 200, event.Structured)))
		log.Reset() // of what is said of the settings of topic and sink
		before := s.Stats()
		for version := 2; version <= 5; version++ {
			awaitIdleEnd(t, c.Addrs(way.listener)[0])
			noErrors(t, publish(t, s, pod("a", version, 200, event.Structured)))
		}
		if s.Stats().Connects == before.Connects {
			t.Error("no connection was closed")
		}
		untroubled(t, s, before.Failures, &log)
		if got := len(readTopic(t, c, "idle-"+name+"-shop")); got != 5 {
			t.Errorf("%s: %d records are stored, want 5", name, got)
		}
	}
}

// awaitIdleEnd returns when the broker has closed what was idle before. Each of its two
// threads closes the oldest connections first, and gets every other new one.
func awaitIdleEnd(t *testing.T, address string) {
	t.Helper()
	conns := make([]net.Conn, 4)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	for _, conn := range conns {
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("an idle connection ends with %v", err)
		}
	}
}

// The broker closes the connection just when a request is on its way: whether it has read
// it is not known, and the repeat has to be one that it would recognise.
func TestARequestThatMeetsTheEndOfAnIdleConnectionIsRepeatedAsItWas(t *testing.T) {
	for name, c := range map[string]struct {
		acks config.Acks
		idle time.Duration
		lost bool // it goes back to the lane
	}{
		"idle":               {config.AcksAll, time.Second, false},
		"in use":             {config.AcksAll, 0, true},
		"without a producer": {config.AcksOne, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			fake := fake(t)
			text, topic := template()
			var cut atomic.Bool
			seen := watchBatches(fake)
			fake.ControlKey(int16(kmsg.Produce), cutOnce(fake, &cut))
			var log sinktest.Log
			cfg := settings(fake.ListenAddrs()...)
			cfg.Topic, cfg.Acks, cfg.Partitions = text, c.acks, 1
			s := openLogged(t, cfg, log.Handler())
			version := 1
			for ; s.Stats().Connects < 4; version++ { // one to look at the cluster, and one for each worker
				noErrors(t, publish(t, s, pod("a", version, 200, event.Structured)))
			}
			before := s.Failures()
			log.Reset()
			time.Sleep(c.idle) // that is what is meant: nothing can be seen of it
			cut.Store(true)
			err := publish(t, s, pod("a", version, 200, event.Structured))[0]
			if cut.Load() {
				t.Fatal("no connection was cut")
			}
			if (err != nil) != c.lost {
				t.Errorf("done got %v", err)
			}
			if c.lost {
				if s.Failures().Connect == 0 || log.Count("level=WARN") == 0 {
					t.Errorf("the failures are %+v, and the log is\n%s", s.Failures(), log.String())
				}
				return
			}
			untroubled(t, s, before, &log)
			seen.mu.Lock()
			defer seen.mu.Unlock()
			if last, n := seen.seen[len(seen.seen)-1], len(seen.seen); n != version+1 || last != seen.seen[n-2] {
				t.Errorf("the batches are %+v, want the last one repeated as it was", seen.seen)
			}
			if got := len(records(t, fake, topic)); got != version {
				t.Errorf("%d records are stored, want %d", got, version)
			}
		})
	}
}

// cutOnce ends the connection of one request to store.
func cutOnce(c *kfake.Cluster, cut *atomic.Bool) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if cut.CompareAndSwap(true, false) {
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	}
}

func TestACodecThatTheBrokersDoNotTakeIsNamedWithTheKeyToSet(t *testing.T) {
	c := fake(t)
	text, _ := template()
	w := watchBatches(c)
	for codec, want := range map[config.Compression]string{
		config.CompressionZstd: "do not take batches in zstd: set kafka.compression to gzip or none",
		config.CompressionGzip: "do not take batches in gzip: set kafka.compression to none",
	} {
		cfg := settings(c.ListenAddrs()...)
		cfg.Topic, cfg.Compression = text, codec
		s := open(t, cfg)
		w.refuse(kerr.UnsupportedCompressionType)
		err := publish(t, s, pod("a", 1, 200, event.Structured))[0]
		if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: done got %v", codec, err)
		}
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Err is %v", codec, err)
		}
		noErrors(t, publish(t, s, pod("a", 1, 200, event.Structured)))
		if err := s.Err(); err != nil {
			t.Errorf("%s: Err is %v after a success", codec, err)
		}
	}
}

func TestACheckNamesBrokersThatAreTooOldForTheCodec(t *testing.T) {
	text, topic := template()
	c := fake(t, kfake.MaxVersions(kversion.V2_0_0()), kfake.SeedTopics(1, topic))
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.Compression = text, config.CompressionZstd
	finds(t, cfg, 1, `^gap the brokers are too old for batches in zstd: set kafka.compression to gzip or none$`)
	cfg.Compression = config.CompressionGzip
	finds(t, cfg, 0)
}

// It is known by its host alone that a broker is one of Azure Event Hubs: what it says is
// scripted.
func TestAnEventHubTakesWhatTheDocsSay(t *testing.T) {
	const user, password = "$ConnectionString", "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=a+b/c="
	text, topic := template()
	c := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password), kfake.SeedTopics(1, topic))
	answerProduce(c, func(_ int32, records []byte) *kmsg.ProduceResponseTopicPartition {
		if compressed := records[22]&7 != 0; compressed {
			return refuse(kerr.UnsupportedCompressionType)
		}
		return nil
	})
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic, cfg.TopicPolicy = text, config.TopicRequire
	cfg.SASL = &config.SASL{Mechanism: config.SASLPlain, User: user, PasswordFile: secret(t, password)}
	s := open(t, cfg)
	if err := publish(t, s, pod("a", 1, 200, event.Structured))[0]; err == nil || !strings.Contains(err.Error(), "set kafka.compression to gzip or none") {
		t.Errorf("done got %v", err)
	}
	cfg.Compression = config.CompressionNone
	noErrors(t, publish(t, open(t, cfg), pod("a", 1, 200, event.Structured)))
}
