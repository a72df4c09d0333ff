package kafka_test

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/kafka"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// checked is what a check finds, a line each with its outcome.
func checked(t *testing.T, cfg config.Kafka) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sink := config.DefaultSink()
	sink.Name, sink.Kafka = "test", &cfg
	samples := []sinks.Sample{{Event: pod("a", 1, 10, event.Structured), Unknown: []string{"namespace", "name", "type"}}}
	found := &check.Subject{Group: check.Sinks, Name: sink.Name}
	kafka.Check(ctx, sink, samples, found)
	var lines []string
	for _, f := range found.Findings {
		lines = append(lines, string(f.Outcome)+" "+f.Text)
	}
	return lines
}

// finds expects each pattern to match one of the lines, and as many gaps as are wanted.
func finds(t *testing.T, cfg config.Kafka, gaps int, patterns ...string) {
	t.Helper()
	lines := checked(t, cfg)
	n := 0
	for _, line := range lines {
		if strings.HasPrefix(line, "gap ") {
			n++
		}
	}
	if n != gaps {
		t.Errorf("%d gaps, want %d", n, gaps)
	}
	for _, p := range patterns {
		if !slices.ContainsFunc(lines, regexp.MustCompile(p).MatchString) {
			t.Errorf("%s is not found", p)
		}
	}
	if t.Failed() {
		t.Logf("found:\n%s", strings.Join(lines, "\n"))
	}
}

func TestACheckOfARealBroker(t *testing.T) {
	c := kafkabroker.Shared(t)
	at := func(change ...func(*config.Kafka)) (config.Kafka, string) {
		cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
		text, topic := template()
		cfg.Topic = text
		for _, f := range change {
			f(&cfg)
		}
		return cfg, topic
	}
	t.Run("says what a start would create and creates nothing", func(t *testing.T) {
		cfg, topic := at()
		finds(t, cfg, 0, `^ok logged in at 127.0.0.1:\d+; brokers of the cluster: 1$`,
			`^ok a start would create the topics `+topic+` with partitions: 6, replicas: as the brokers have it, cleanup.policy: delete, retention.ms: 604800000 when their first event comes$`)
		list, err := c.Admin().ListTopics(t.Context(), topic)
		if err != nil || list[topic].Err == nil {
			t.Errorf("after the check the topic is %+v, %v", list[topic], err)
		}
		s := open(t, cfg)
		deliver(t, s, pod("a", 1, 200, event.Structured))
		failures := s.Failures()
		finds(t, cfg, 0, `^ok topics `+topic+` are there, and take batches of up to \S+$`)
		deliver(t, s, pod("a", 2, 200, event.Structured)) // it was not disturbed
		if f := s.Failures(); f != failures {
			t.Errorf("the sink's failures are %+v, and were %+v", f, failures)
		}
	})
	t.Run("says why a topic can not be created", func(t *testing.T) {
		cfg, topic := at(func(c *config.Kafka) { c.Replication = 3 })
		finds(t, cfg, 1, `^gap a start can not create the topics `+topic+`: Invalid Replication Factor`)
	})
	t.Run("names a topic that is required and absent", func(t *testing.T) {
		cfg, topic := at(func(c *config.Kafka) { c.TopicPolicy = config.TopicRequire })
		finds(t, cfg, 1, `^gap topics `+topic+` do not exist, and the configuration does not let kbridge create them`)
	})
	t.Run("warns of what a start warns of", func(t *testing.T) {
		cfg, topic := at()
		if err := c.CreateTopic(t.Context(), topic, kafkabroker.Topic{Partitions: 2, Config: map[string]string{"cleanup.policy": "compact", "max.message.bytes": "2048"}}); err != nil {
			t.Fatal(err)
		}
		var log sinktest.Log
		deliver(t, openLogged(t, cfg, log.Handler()), pod("a", 1, 200, event.Structured))
		var want []string
		for _, m := range regexp.MustCompile(`msg="topic: ([^"]+)".* setting=(\S+) `).FindAllStringSubmatch(log.String(), -1) {
			want = append(want, `^warning topics `+topic+`: `+regexp.QuoteMeta(m[1]+" ("+m[2]+" is "))
		}
		if len(want) < 4 {
			t.Fatalf("a start warns of\n%s", log.String())
		}
		finds(t, cfg, 0, append(want, `^ok topics `+topic+` are there, and take batches of up to 2KiB$`)...)
	})
	t.Run("tells one broker of several that is away, and all of them", func(t *testing.T) {
		cfg, _ := at(func(c *config.Kafka) { c.Brokers = append(c.Brokers, "127.0.0.1:1") })
		finds(t, cfg, 0, `^warning connect to 127.0.0.1:1: .*connection refused`, "^ok logged in")
		cfg.Brokers = cfg.Brokers[1:]
		finds(t, cfg, 1, `^gap connect to 127.0.0.1:1: .*connection refused`)
	})
	t.Run("leaves topics alone that depend on the objects", func(t *testing.T) {
		cfg, _ := at(func(c *config.Kafka) { c.Topic = "k8s.{resource}.{namespace}" })
		finds(t, cfg, 0, `^warning topics that depend on the objects can not be looked at: k8s.pods.\*$`)
	})
}

func TestACheckNamesWhatALoginMayNot(t *testing.T) {
	c := kafkabroker.New(t, func(o *kafkabroker.Options) {
		o.Users = []kafkabroker.User{{Name: user, Password: password}}
		o.Config = map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS", // on the listener without a login
		}
	})
	allow := func(topic string, operations ...kadm.ACLOperation) {
		t.Helper()
		acl := kadm.NewACLs().Allow("User:" + user).AllowHosts().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...)
		results, err := c.Admin().CreateACLs(t.Context(), acl)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	at := func(topic string) config.Kafka {
		cfg := settings(c.Addrs(kafkabroker.SASL)...)
		cfg.Topic = topic
		cfg.SASL = &config.SASL{Mechanism: config.SASLSCRAM256, User: user, PasswordFile: secret(t, password)}
		return cfg
	}
	for _, topic := range []string{"hidden", "readonly", "unreadable", "good"} {
		if err := c.CreateTopic(t.Context(), topic, kafkabroker.Topic{}); err != nil {
			t.Fatal(err)
		}
	}
	allow("readonly", kadm.OpDescribe, kadm.OpDescribeConfigs)
	allow("unreadable", kadm.OpDescribe, kadm.OpWrite)
	allow("good", kadm.OpDescribe, kadm.OpDescribeConfigs, kadm.OpWrite)
	allow("new", kadm.OpDescribe, kadm.OpCreate, kadm.OpWrite)
	allow("absent", kadm.OpDescribe, kadm.OpWrite)

	finds(t, at("hidden"), 1, `^gap topics hidden: Topic Authorization Failed`)
	finds(t, at("readonly"), 1, `^gap topic readonly: it may not be written to \(Write on it is missing\)$`)
	finds(t, at("unreadable"), 0, `^warning topics unreadable: its limits and its durability can not be read: Topic Authorization Failed`, `^ok topics unreadable are there, and take batches of a size that is not known$`)
	finds(t, at("good"), 0, `^ok logged in with SCRAM-SHA-256 as `+user+` at `, `^ok topics good are there`)
	finds(t, at("new"), 0, `^ok a start would create the topics new with `)
	finds(t, at("absent"), 1, `^gap a start can not create the topics absent: Topic Authorization Failed`)

	wrong := at("good")
	wrong.SASL.PasswordFile = secret(t, "wrong")
	finds(t, wrong, 1, `^gap connect to \S+: log in with SCRAM-SHA-256: SASL Authentication Failed`)
}

// says has a fake answer with brokers at these addresses, and with a partition of each
// topic whose leader is the given one.
func says(c *kfake.Cluster, leader int32, brokers ...string) {
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for i, broker := range brokers {
			host, port, _ := net.SplitHostPort(broker)
			n, _ := strconv.Atoi(port)
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(i), Host: host, Port: int32(n)})
		}
		for _, asked := range req.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = asked.Topic
			partition := kmsg.NewMetadataResponseTopicPartition()
			partition.Leader, partition.Replicas = leader, []int32{1}
			topic.Partitions = append(topic.Partitions, partition)
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

// Brokers may name themselves by an address that only they know.
func TestACheckNamesABrokerThatIsNotWhereTheClusterSays(t *testing.T) {
	text, topic := template()
	c := fake(t, kfake.NumBrokers(2), kfake.SeedTopics(1, topic))
	says(c, 1, append(c.ListenAddrs(), "127.0.0.1:1")...)
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	finds(t, cfg, 1, `^gap connect to 127.0.0.1:1: .*connection refused`)
}

func TestACheckNamesPartitionsWithoutALeader(t *testing.T) {
	text, topic := template()
	c := fake(t, kfake.SeedTopics(1, topic))
	says(c, -1, c.ListenAddrs()...)
	cfg := settings(c.ListenAddrs()...)
	cfg.Topic = text
	finds(t, cfg, 1, `^gap topic `+topic+`: of 1 partitions 1 have no leader$`)
}

func TestACheckOfABrokerThatSaysNothingEndsInTime(t *testing.T) {
	address, _ := listener(t, "")
	sink := config.DefaultSink()
	cfg := settings(address)
	sink.Kafka = &cfg
	found := check.Run(t.Context(), 300*time.Millisecond, check.Sinks, "test", func(ctx context.Context, s *check.Subject) { kafka.Check(ctx, sink, nil, s) })
	if len(found) != 1 || found[0].Outcome != check.Gap || !strings.Contains(found[0].Text, "no answer within 300ms") {
		t.Errorf("found %v", found)
	}
}
