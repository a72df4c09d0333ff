package kafkabroker_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/internal/kafkabroker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// withTimeout is generous: tests share their machine.
func withTimeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func produce(ctx context.Context, t *testing.T, c *kafkabroker.Cluster, r *kgo.Record) {
	t.Helper()
	cl, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
		t.Fatalf("produce: %v", err)
	}
}

func values(records []*kgo.Record) string {
	var s []string
	for _, r := range records {
		s = append(s, string(r.Value))
	}
	return strings.Join(s, " ")
}

func TestWhatKafkaGoWritesIsReadAndOutlivesKill(t *testing.T) {
	began := time.Now()
	c := kafkabroker.New(t)
	t.Logf("one node serves after %s", time.Since(began).Round(time.Millisecond))
	ctx := withTimeout(t)
	topic := kafkabroker.Topic{Partitions: 2, Config: map[string]string{"cleanup.policy": "compact"}}
	if err := c.CreateTopic(ctx, "events", topic); err != nil {
		t.Fatal(err)
	}
	at := time.UnixMilli(time.Now().UnixMilli())
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(c.Addrs(kafkabroker.Plaintext)...), Transport: transport}
	answer, err := client.Produce(ctx, &kafka.ProduceRequest{
		Topic: "events", Partition: 1, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(
			kafka.Record{Time: at, Key: kafka.NewBytes([]byte("a")), Value: kafka.NewBytes([]byte("1")), Headers: []kafka.Header{{Key: "ce_id", Value: []byte("x")}}},
			kafka.Record{Time: at, Key: kafka.NewBytes([]byte("a"))},
		),
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		t.Fatalf("produce: %v", err)
	}

	addr := c.Nodes[0].Addr(kafkabroker.Plaintext)
	c.Nodes[0].Kill()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("somebody listens on the killed broker's port")
	}
	began = time.Now()
	if err := c.Nodes[0].Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("started again after a kill in %s", time.Since(began).Round(time.Millisecond))
	if c.Nodes[0].Addr(kafkabroker.Plaintext) != addr {
		t.Error("the broker has another address after a restart")
	}

	records, err := c.ReadTopic(ctx, "events")
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 2 {
		t.Fatalf("read %d records, want 2", len(records))
	}
	r := records[0]
	if id, _ := kafkabroker.Header(r, "ce_id"); id != "x" || string(r.Key) != "a" || string(r.Value) != "1" || r.Partition != 1 || !r.Timestamp.Equal(at) {
		t.Errorf("the first record is %+v", r)
	}
	if records[1].Value != nil {
		t.Errorf("the second record has the value %q, want none", records[1].Value)
	}

	if err := c.AlterTopic(ctx, "events", map[string]string{"max.message.bytes": "2000"}); err != nil {
		t.Fatal(err)
	}
	s, err := c.DescribeTopic(ctx, "events")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Partitions) != 2 || s.Partitions[1].Leader != 1 || s.Config["cleanup.policy"] != "compact" || s.Config["max.message.bytes"] != "2000" {
		t.Errorf("the topic is %+v", s)
	}
	began = time.Now()
	if err := c.Nodes[0].Restart(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in order in %s", time.Since(began).Round(time.Millisecond))
}

func TestOfThreeNodesAnotherLeadsWhenTheLeaderIsKilledOrPaused(t *testing.T) {
	began := time.Now()
	c := kafkabroker.New(t, func(o *kafkabroker.Options) {
		o.Nodes = 3
		o.Config = map[string]string{"min.insync.replicas": "2"}
	})
	t.Logf("three nodes serve after %s", time.Since(began).Round(time.Millisecond))
	ctx := withTimeout(t)
	if err := c.CreateTopic(ctx, "t", kafkabroker.Topic{}); err != nil {
		t.Fatal(err)
	}
	produce(ctx, t, c, &kgo.Record{Topic: "t", Value: []byte("before")})
	first, err := c.Leader(ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	first.Kill()
	second, err := c.Leader(ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("another leader %s after the kill", time.Since(began).Round(time.Millisecond))
	if second == first {
		t.Fatalf("node %d leads though it was killed", first.ID)
	}
	produce(ctx, t, c, &kgo.Record{Topic: "t", Value: []byte("while-down")})
	began = time.Now()
	if err := first.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("the killed node serves again after %s", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	second.Pause()
	third, err := c.Leader(ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("another leader %s after the pause", time.Since(began).Round(time.Millisecond))
	produce(ctx, t, c, &kgo.Record{Topic: "t", Value: []byte("while-paused")})
	second.Resume()
	if third == second {
		t.Errorf("node %d leads though it was paused", second.ID)
	}
	records, err := c.ReadUntil(ctx, "t", func(r []*kgo.Record) bool { return len(r) == 3 })
	if err != nil {
		t.Fatal(err)
	}
	if got := values(records); got != "before while-down while-paused" {
		t.Errorf("read %q", got)
	}
}

func TestEachListenerTakesTheRightCredentialsOnly(t *testing.T) {
	const password = `p,a=s s\w\u0041d`
	c := kafkabroker.New(t, func(o *kafkabroker.Options) {
		o.TLS = true
		o.Users = []kafkabroker.User{{Name: "alice", Password: password}, {Name: "bob", Password: "other"}}
	})
	ctx := withTimeout(t)
	certs := c.Certificates
	trusting := func(pair kafkabroker.Pair) *tls.Config {
		cfg, err := certs.ClientConfig(pair)
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	mechanisms := func(user, password string, lifetime time.Duration) []sasl.Mechanism {
		return []sasl.Mechanism{
			plain.Auth{User: user, Pass: password}.AsMechanism(),
			scram.Auth{User: user, Pass: password}.AsSha256Mechanism(),
			scram.Auth{User: user, Pass: password}.AsSha512Mechanism(),
			oauth.Auth{Token: kafkabroker.UnsecuredToken(user, lifetime)}.AsMechanism(),
		}
	}
	type attempt struct {
		name string
		on   kafkabroker.Listener
		tls  *tls.Config
		sasl sasl.Mechanism
		ok   bool
	}
	tests := []attempt{
		{name: "no certificate", on: kafkabroker.TLS, tls: trusting(kafkabroker.Pair{}), ok: true},
		{name: "no trust", on: kafkabroker.TLS, tls: &tls.Config{}},
		{name: "a host name", on: kafkabroker.TLS, tls: &tls.Config{RootCAs: trusting(kafkabroker.Pair{}).RootCAs, ServerName: "localhost"}},
		{name: "the client's certificate", on: kafkabroker.MutualTLS, tls: trusting(certs.Client), ok: true},
		{name: "no certificate", on: kafkabroker.MutualTLS, tls: trusting(kafkabroker.Pair{})},
		{name: "an expired certificate", on: kafkabroker.MutualTLS, tls: trusting(certs.ExpiredClient)},
		{name: "a foreign certificate", on: kafkabroker.MutualTLS, tls: trusting(certs.ForeignClient)},
		{name: "trust", on: kafkabroker.ExpiredTLS, tls: trusting(kafkabroker.Pair{})},
		{name: "no check", on: kafkabroker.ExpiredTLS, tls: &tls.Config{InsecureSkipVerify: true}, ok: true},
		{name: "nothing", on: kafkabroker.SASL},
		{name: "no TLS", on: kafkabroker.SASLTLS, sasl: mechanisms("alice", password, time.Hour)[0]},
	}
	for l, cfg := range map[kafkabroker.Listener]*tls.Config{kafkabroker.SASL: nil, kafkabroker.SASLTLS: trusting(kafkabroker.Pair{})} {
		for i, right := range mechanisms("alice", password, time.Hour) {
			tests = append(tests,
				attempt{name: right.Name(), on: l, tls: cfg, sasl: right, ok: true},
				attempt{name: "wrong " + right.Name(), on: l, tls: cfg, sasl: mechanisms("alice", "other", -time.Hour)[i]})
		}
	}
	for _, try := range tests {
		t.Run(fmt.Sprintf("%s with %s", try.on, try.name), func(t *testing.T) {
			opts := []kgo.Opt{kgo.SeedBrokers(c.Addrs(try.on)...), kgo.RequestRetries(0), kgo.DialTimeout(5 * time.Second)}
			if try.tls != nil {
				opts = append(opts, kgo.DialTLSConfig(try.tls))
			}
			if try.sasl != nil {
				opts = append(opts, kgo.SASL(try.sasl))
			}
			cl, err := kgo.NewClient(opts...)
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err = cl.Ping(ctx); (err == nil) != try.ok || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("connecting ended with: %v", err)
			}
		})
	}
}

func TestNothingIsLeftOfAClusterThatWasStopped(t *testing.T) {
	if err := kafkabroker.Available(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	_, err := kafkabroker.Start(t.Context(), kafkabroker.Options{Config: map[string]string{"num.io.threads": "none"}})
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("starting with a wrong setting ended with: %v", err)
	}
	left, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("%s is left", e.Name())
	}
}
