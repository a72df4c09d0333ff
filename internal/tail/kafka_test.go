package tail

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/kafka"
)

// anHourAgo is a time that brokers take: they refuse the future, and remove what is old.
var anHourAgo = time.Now().Add(-time.Hour).Truncate(time.Millisecond)

var users = []kafkabroker.User{{Name: "reader", Password: "right"}}

// bus is a Kafka sink with topics of its own.
type bus struct {
	t       *testing.T
	cluster *kafkabroker.Cluster
	prefix  string
	config  config.Kafka
}

func newBus(t *testing.T, cluster *kafkabroker.Cluster, prefix string) *bus {
	cfg := config.DefaultKafka()
	cfg.Brokers = cluster.Addrs(kafkabroker.Plaintext)
	cfg.Topic = prefix + ".{group}.{resource}"
	cfg.Partitions, cfg.Tombstones = 3, true
	return &bus{t, cluster, prefix, cfg}
}

func (b *bus) source() Source { return Kafka{b.config} }

// topic makes a topic of the bus.
func (b *bus) topic(name string, partitions int32) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	if err := b.cluster.CreateTopic(ctx, b.prefix+"."+name, kafkabroker.Topic{Partitions: partitions}); err != nil {
		b.t.Fatal(err)
	}
	return b.prefix + "." + name
}

// publish sends the deltas' events through the real sink and waits for their acknowledgements.
func (b *bus) publish(format event.Format, deltas ...*event.Delta) {
	b.t.Helper()
	var events []*event.Event
	for _, d := range deltas {
		e := new(event.Event)
		if d.Time.Equal(noon) {
			d.Time = anHourAgo
		}
		d.Encode(e, format, nil)
		events = append(events, e)
	}
	b.send(events...)
}

func (b *bus) send(events ...*event.Event) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	sink, err := kafka.Open(ctx, "test", b.config, discard)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range events {
		for {
			done := make(chan error, 1)
			sink.Publish(ctx, e, func(err error) { done <- err })
			err := <-done
			if err == nil {
				break
			}
			if errors.Is(err, sinks.ErrPermanent) || ctx.Err() != nil {
				b.t.Fatal(err)
			}
			// A topic that has just been made may have no leader for a moment.
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := sink.Close(ctx); err != nil {
		b.t.Fatal(err)
	}
}

// produce stores records that are not of the sink.
func (b *bus) produce(records ...*kgo.Record) {
	b.t.Helper()
	cl, err := b.cluster.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(b.t.Context(), records...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// timed are numbered deltas, each a second later than the one before.
func timed(from, to int, start time.Time) []*event.Delta {
	deltas := numbered(from, to)
	for i, d := range deltas {
		d.Time = start.Add(time.Duration(i) * time.Second)
	}
	return deltas
}

func added(from, to int) (lines []string) {
	for i := from; i <= to; i++ {
		lines = append(lines, fmt.Sprintf("added shop/d%d %d", i, i))
	}
	return lines
}

func TestKafkaEventsOfBothFormatsAreReadInTheOrderOfTheirTime(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "formats")
	b.publish(event.Structured, timed(1, 20, anHourAgo)...)
	b.publish(event.Binary, timed(21, 40, anHourAgo.Add(time.Minute))...)
	r := start(t, Options{Source: b.source(), All: true, Count: 40})
	r.expect("# reading topic formats.apps.deployments at 127.0.0.1:")
	r.expect(added(1, 40)...)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestABinaryRecordOfKafkaIsTheSameEventAsAStructuredOne(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "same")
	d := delta(event.Updated, deployments, object("shop/ä%20", "7", `,"spec":{"replicas":1}`))
	b.publish(event.Structured, d)
	b.publish(event.Binary, d)
	var lines []string
	err := Run(t.Context(), Options{Source: b.source(), All: true, Count: 2, Note: func(string) {}, Event: func(e *Event) error {
		line, err := e.JSON()
		lines = append(lines, string(line))
		return err
	}})
	if err != nil || len(lines) != 2 || lines[0] != lines[1] || !strings.Contains(lines[0], `"name":"ä%20"`) {
		t.Errorf("%v\n%s", err, strings.Join(lines, "\n"))
	}
}

func TestOnlyNewKafkaEventsAreReadUnlessOlderOnesAreAskedFor(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "since")
	now := time.Now()
	b.publish(event.Structured, timed(1, 3, now.Add(-time.Hour))...)
	b.publish(event.Structured, timed(4, 6, now.Add(-5*time.Minute))...)
	fresh := start(t, Options{Source: b.source()})
	since := start(t, Options{Source: b.source(), Since: now.Add(-10 * time.Minute)})
	late := start(t, Options{Source: b.source(), Since: now.Add(time.Minute)})
	for _, r := range []*tailing{fresh, since, late} {
		r.expect("# reading topic since.apps.deployments at ")
	}
	since.expect(added(4, 6)...)
	b.publish(event.Binary, timed(7, 9, now)...)
	for _, r := range []*tailing{fresh, since, late} {
		r.expect(added(7, 9)...)
		r.stop()
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

func TestAMarkerThatAllPartitionsHaveIsShownOnce(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "markers")
	snapshot := event.NewSnapshotID(anHourAgo)
	for i, format := range []event.Format{event.Structured, event.Binary} {
		at := anHourAgo.Add(time.Duration(i) * time.Minute)
		snapshot := snapshot + fmt.Sprint(i)
		var began, completed, between event.Event
		(&event.Marker{Type: event.SnapshotStarted, Resource: deployments, Snapshot: snapshot, Time: at}).Encode(&began, format)
		d := timed(1, 1, at.Add(time.Second))[0]
		d.Encode(&between, format, nil)
		(&event.Marker{Type: event.SnapshotCompleted, Resource: deployments, Snapshot: snapshot, Count: 1, ResourceVersion: "9", Time: at.Add(2 * time.Second)}).Encode(&completed, format)
		b.send(&began, &between, &completed)
	}
	r := start(t, Options{Source: b.source(), All: true, Count: 6})
	r.expect("# reading topic")
	for range 2 {
		r.expect("snapshot.started  ", "added shop/d1 1", "snapshot.completed  ")
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestAKafkaFilterSelectsTopicsAndOthersAreFoundAsTheyComeUp(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "filter")
	r := start(t, Options{Source: b.source(), Filter: "filter.*s"})
	r.expect("# waiting: the cluster has no topic filter.{group}.{resource} that matches filter.*s yet")
	b.topic("core.podx", 1)
	b.publish(event.Structured, timed(1, 3, anHourAgo)...) // an old time, yet new to us
	r.expect("# reading topic filter.apps.deployments at ")
	r.expect(added(1, 3)...)
	node := delta(event.Added, nodes, object("node-1", "2", ""))
	b.publish(event.Binary, node)
	r.expect("# reading also topic filter.core.nodes", "added node-1 2")
}

func TestTombstonesAndRecordsThatAreNoEventsArePassedOver(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "strange")
	topic := b.topic("apps.deployments", 1)
	gone := delta(event.Deleted, deployments, object("shop/d1", "2", ""))
	b.publish(event.Structured, numbered(1, 1)[0], gone)
	b.produce(&kgo.Record{Topic: topic, Value: []byte("hello")}, &kgo.Record{Topic: topic, Value: []byte{}}, &kgo.Record{Topic: topic, Key: []byte("k")})
	b.publish(event.Structured, delta(event.Added, deployments, object("shop/d3", "3", "")))
	r := start(t, Options{Source: b.source(), All: true})
	r.expect("# reading", "added shop/d1 1", "deleted shop/d1 2")
	r.expect("# record 3 in partition 0 of topic strange.apps.deployments is passed over, and others like it: it is no CloudEvent")
	r.expect("added shop/d3 3")
}

func TestManyPartitionsAreReadWholeAndInOrder(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "many")
	b.config.Partitions, b.config.Compression = 12, config.CompressionNone
	b.topic("apps.deployments", 12)
	const n = 600
	var records []*kgo.Record
	for i, d := range timed(1, n, anHourAgo) {
		d.Object.Body = []byte(`{"apiVersion":"v1","x":"` + rand.Text() + `"}`)
		for len(d.Object.Body) < 20<<10 { // more than an answer holds, also when it is compressed
			d.Object.Body = append(d.Object.Body[:len(d.Object.Body)-2], rand.Text()+`"}`...)
		}
		var e event.Event
		d.Encode(&e, event.Structured, nil)
		headers := []kgo.RecordHeader{{Key: "content-type", Value: []byte(e.ContentType())}}
		records = append(records, &kgo.Record{Topic: "many.apps.deployments", Partition: int32(i * i % 12), Timestamp: d.Time, Value: e.Value, Headers: headers})
	}
	for chunk := range slices.Chunk(records, 200) {
		b.produce(chunk...)
	}
	r := start(t, Options{Source: b.source(), All: true, Count: n})
	r.expect("# reading topic many")
	r.expect(added(1, n)...)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestWhatKafkaRemovedBeforeItWasReadIsReported(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "lost")
	topic := b.topic("apps.deployments", 1)
	b.publish(event.Structured, numbered(1, 5)...)
	k := Kafka{b.config}
	var lines []string
	s := k.open(&reader{Options: Options{All: true, Count: 2, Note: func(text string) { lines = append(lines, text) }, Event: func(e *Event) error {
		lines = append(lines, e.objectName())
		return nil
	}}}).(*topicReader)
	s.partitions = []*partition{{topic: topic, next: 0}}
	s.looked = true
	var until kadm.Offsets
	until.AddOffset(topic, 0, 3, -1)
	if _, err := b.cluster.Admin().DeleteRecords(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	if err := s.session(t.Context()); !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	want := []string{"lost 3 events: the limits of topic lost.apps.deployments removed what was not read", "shop/d4", "shop/d5"}
	if got := lines[1:]; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestATopicThatWasMadeAnewIsReadFromItsBeginning(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "anew")
	topic := b.topic("apps.deployments", 1)
	b.publish(event.Structured, numbered(1, 3)...)
	r := start(t, Options{Source: b.source(), All: true})
	r.expect("# reading topic")
	r.expect(added(1, 3)...)
	if err := b.cluster.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	r.expect("# waiting: the cluster has no topic anew.{group}.{resource} yet")
	b.publish(event.Structured, numbered(4, 4)...)
	r.expect("# reading again topic anew.apps.deployments", "added shop/d4 4")
}

func TestABrokerThatIsNotThereIsWaitedForWithOneLineAndItsRestartsAreSurvived(t *testing.T) {
	b := newBus(t, kafkabroker.New(t), "k8s")
	b.topic("apps.deployments", 3)
	node := b.cluster.Nodes[0]
	node.Kill()
	r := start(t, Options{Source: b.source()})
	// The connection may be reset first, and refused after that: each is said once.
	said := map[string]bool{}
	waiting := func() {
		t.Helper()
		clear(said)
		line := <-r.lines
		if !strings.HasPrefix(line, "# waiting: connect to 127.0.0.1:") {
			t.Fatalf("unexpected: %q", line)
		}
		said[line] = true
	}
	waiting()
	begin := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := node.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	now := time.Now()
	b.publish(event.Structured, timed(1, 3, now)...)
	again := func(what string) {
		t.Helper()
		// A broker that has just come up says other things for a moment.
		for line := range r.lines {
			if strings.HasPrefix(line, "# "+what+" topic k8s.apps.deployments at ") {
				return
			}
			if !strings.HasPrefix(line, "# ") || said[line] && strings.HasSuffix(line, "connection refused") {
				t.Fatalf("unexpected: %q", line)
			}
			said[line] = true
			t.Log(line)
		}
	}
	expectAdded := func(from, to int) {
		t.Helper()
		for _, want := range added(from, to) {
			for line := range r.lines {
				if line == want {
					break
				}
				if !strings.HasPrefix(line, "# ") {
					t.Fatalf("got %q, want %q", line, want)
				}
				t.Log(line)
			}
		}
	}
	again("reading")
	expectAdded(1, 3)
	node.Kill()
	waiting()
	begin()
	b.publish(event.Binary, timed(4, 6, now.Add(time.Minute))...)
	again("reading again")
	expectAdded(4, 6)
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestTheKafkaSinksLoginIsUsedAndAWrongOneEndsTheReading(t *testing.T) {
	b := newBus(t, kafkabroker.Shared(t), "login")
	b.publish(event.Structured, numbered(1, 1)...)
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The first address is nobody's.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	for _, mechanism := range []config.Mechanism{config.SASLPlain, config.SASLSCRAM512} {
		cfg := b.config
		cfg.Brokers = append([]string{nobody}, b.cluster.Addrs(kafkabroker.SASL)...)
		cfg.SASL = &config.SASL{Mechanism: mechanism, User: "reader", PasswordFile: password}
		write("wrong\n")
		if err := start(t, Options{Source: Kafka{cfg}}).end(); !errors.Is(err, client.SASLAuthenticationFailed) {
			t.Errorf("%s: got %v", mechanism, err)
		} else {
			t.Log(err)
		}
		write("right\n")
		r := start(t, Options{Source: Kafka{cfg}, All: true, Count: 1})
		r.expect("# reading topic login.apps.deployments", "added shop/d1 1")
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

func TestATemplateMatchesTheTopicsThatItMakes(t *testing.T) {
	for template, c := range map[string]struct{ yes, no []string }{
		"k8s.{group}.{resource}":  {[]string{"k8s.core.pods", "k8s.rbac.authorization.k8s.io.roles"}, []string{"k8s.pods", "xk8s.core.pods", "k8sxcore.pods", "__consumer_offsets"}},
		"audit":                   {[]string{"audit"}, []string{"audit2", "my-audit"}},
		"{cluster}-{namespace}-x": {[]string{"prod-eu-_-x"}, []string{"prod-x", "prod-_-xy"}},
	} {
		for _, name := range c.yes {
			if !topicsOf(template).MatchString(name) {
				t.Errorf("%s does not match %s", template, name)
			}
		}
		for _, name := range c.no {
			if topicsOf(template).MatchString(name) {
				t.Errorf("%s matches %s", template, name)
			}
		}
	}
}
