package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// kafkaSinks are sinks that kafkaEntry made.
func kafkaSinks(entries ...string) string { return "\nsinks:" + strings.Join(entries, "") }

// kafkaEntry is one of the sinks; settings are lines of its key kafka, each indented by
// six spaces or in one line with commas between braces.
func kafkaEntry(name string, brokers *kafkabroker.Cluster, extra string, settings ...string) string {
	return fmt.Sprintf(`
  - name: %s
    %s
    kafka:
      brokers: ['%s']
      %s
`, name, extra, strings.Join(brokers.Addrs(kafkabroker.Plaintext), "', '"), strings.Join(settings, "\n      "))
}

// configMapTopic is where the configmaps go unless the sink has another template.
const configMapTopic = "k8s.core.configmaps"

// kafkaEvent is a record with the event in it.
type kafkaEvent struct {
	cloudEvent
	attributes map[string]any // of the event, without data and datacontenttype
	record     *kgo.Record
	tombstone  bool // there is no event
}

// decodeRecord reads a record as a consumer does that knows the protocol binding.
func decodeRecord(t *testing.T, r *kgo.Record) kafkaEvent {
	t.Helper()
	e := kafkaEvent{record: r, attributes: map[string]any{}}
	at := fmt.Sprintf("record %s/%d/%d", r.Topic, r.Partition, r.Offset)
	if r.Value == nil {
		if e.tombstone = true; len(r.Headers) > 0 {
			t.Errorf("%s is a tombstone with the headers %v", at, r.Headers)
		}
		return e
	}
	document := r.Value
	switch contentType, _ := kafkabroker.Header(r, "content-type"); contentType {
	case "application/cloudevents+json":
		if len(r.Headers) != 1 {
			t.Errorf("%s is structured and has the headers %v", at, r.Headers)
		}
	case "application/json":
		parts := map[string]any{"data": json.RawMessage(r.Value)}
		for _, h := range r.Headers {
			name, attribute := strings.CutPrefix(h.Key, "ce_")
			_, twice := parts[name]
			switch {
			case !attribute && h.Key != "content-type", twice:
				t.Errorf("%s has the headers %v", at, r.Headers)
			case !attribute:
			case name == "inferred" || name == "truncated":
				parts[name] = string(h.Value) == "true"
			case name == "epoch":
				parts[name] = json.Number(h.Value)
			default:
				parts[name] = string(h.Value)
			}
		}
		var err error
		if document, err = json.Marshal(parts); err != nil {
			t.Fatalf("%s: %v", at, err)
		}
	default:
		t.Fatalf("%s has the content type %q", at, contentType)
	}
	if err := errors.Join(json.Unmarshal(document, &e.cloudEvent), json.Unmarshal(document, &e.attributes)); err != nil {
		t.Fatalf("%s holds no event: %v: %.200s", at, err, document)
	}
	delete(e.attributes, "data")
	delete(e.attributes, "datacontenttype")
	e.msgID = e.dedupID() // the name of a repeat is in the event itself
	return e
}

// tryTopic returns all that a topic holds, by partition and offset.
func tryTopic(t *testing.T, brokers *kafkabroker.Cluster, topic string) ([]kafkaEvent, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	records, err := brokers.ReadTopic(ctx, topic)
	var events []kafkaEvent
	for _, r := range records {
		events = append(events, decodeRecord(t, r))
	}
	return events, err
}

func readTopic(t *testing.T, brokers *kafkabroker.Cluster, topic string) []kafkaEvent {
	t.Helper()
	events, err := tryTopic(t, brokers, topic)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// announced waits until the first snapshot is complete in each of the topics: what
// changes before that may be folded into it.
func announced(t *testing.T, brokers *kafkabroker.Cluster, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		eventually(t, "the first snapshot is complete in "+topic, func() error {
			records, err := tryTopic(t, brokers, topic)
			if err == nil && !slices.ContainsFunc(records, func(e kafkaEvent) bool { return e.Type == "dev.kbridge.snapshot.completed" }) {
				err = fmt.Errorf("it has %d records and no end of it", len(records))
			}
			return err
		})
	}
}

// inOrder are the events without the tombstones. Those of one object are in the order
// in which a consumer gets them, those of partitions are not.
func inOrder(records []kafkaEvent) []cloudEvent {
	var events []cloudEvent
	for _, r := range records {
		if !r.tombstone {
			events = append(events, r.cloudEvent)
		}
	}
	return events
}

// topicHolds waits until a consumer of the topic has the API server's configmaps of a
// namespace, and returns them. They are read anew each time: a write that the end of
// the churn cut short may still be on its way.
func topicHolds(t *testing.T, brokers *kafkabroker.Cluster, topic string, cluster *testcluster.Cluster, ns string) (want state) {
	t.Helper()
	client := cluster.Dynamic(t)
	var events []cloudEvent
	var wrong error
	defer func() {
		if wrong != nil {
			t.Logf("the consumer's history of the first objects that differ:\n%s", history(events, wrong))
		}
	}()
	eventually(t, "the consumer's state is the API server's", func() error {
		records, err := tryTopic(t, brokers, topic)
		if err != nil {
			return err
		}
		events, want = inOrder(records), serverState(t, client, configMaps, ns)
		wrong = difference(fold(events), want)
		return wrong
	})
	return want
}

// recordKey is the key that the event's record must have.
func recordKey(e kafkaEvent) string {
	group, _ := e.attributes["group"].(string)
	if group == "" {
		group = "core"
	}
	if e.marker() {
		return strings.Join([]string{"test", "_snapshot", group, e.Resource}, "/")
	}
	namespace := e.Namespace
	if namespace == "" {
		namespace = "_"
	}
	return strings.Join([]string{"test", group, e.Resource, namespace, e.Name}, "/")
}

// keysAndPartitions checks that the records are where other clients would have put
// them, and that a tombstone stands directly behind each deletion if it should.
func keysAndPartitions(t *testing.T, records []kafkaEvent, partitions int, tombstones bool) {
	t.Helper()
	partitioner := kgo.StickyKeyPartitioner(nil).ForTopic("") // as Kafka's own clients
	for i, e := range records {
		at := fmt.Sprintf("record %s/%d/%d", e.record.Topic, e.record.Partition, e.record.Offset)
		if e.tombstone {
			if i == 0 || records[i-1].short() != "deleted" || !bytes.Equal(records[i-1].record.Key, e.record.Key) ||
				records[i-1].record.Partition != e.record.Partition {
				t.Errorf("%s is a tombstone of %s and not behind its deletion", at, e.record.Key)
			}
			continue
		}
		if tombstones && e.short() == "deleted" && (i+1 == len(records) || !records[i+1].tombstone) {
			t.Errorf("%s deletes %s and no tombstone follows", at, e.object())
		}
		if want := recordKey(e); string(e.record.Key) != want {
			t.Errorf("%s has the key %q, want %q", at, e.record.Key, want)
		}
		if want := partitioner.Partition(e.record, partitions); !e.marker() && int(e.record.Partition) != want {
			t.Errorf("%s has the key %s, with which other clients write to partition %d", at, e.record.Key, want)
		}
		if got, want := e.record.Timestamp.UnixMilli(), e.Time.UnixMilli(); got != want {
			t.Errorf("%s has the timestamp %d, its event %d", at, got, want)
		}
	}
}

// markersEverywhere checks that each snapshot has its begin and its end in each
// partition, with its events between them. A marker that one partition refused is
// written again to all of them. It returns how many snapshots with and without objects
// there are.
func markersEverywhere(t *testing.T, records []kafkaEvent, partitions int) (filled, empty int) {
	t.Helper()
	type part struct{ started, completed, objects int }
	parts, counts := map[string][]part{}, map[string]int{}
	for _, e := range records {
		if e.tombstone || e.Snapshot == "" {
			continue
		}
		if parts[e.Snapshot] == nil {
			parts[e.Snapshot] = make([]part, partitions)
		}
		p := &parts[e.Snapshot][e.record.Partition]
		wrong := p.started == 0
		switch e.Type {
		case "dev.kbridge.snapshot.started":
			wrong = p.objects > 0 || p.completed > 0
			p.started++
		case "dev.kbridge.snapshot.completed":
			p.completed++
			var data struct{ Count int }
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			counts[e.Snapshot] = data.Count
		default:
			wrong = wrong || p.completed > 0
			p.objects++
		}
		if wrong {
			t.Errorf("partition %d has %s %s of snapshot %s with %+v before it", e.record.Partition, e.Type, e.Name, e.Snapshot, *p)
		}
	}
	for id, all := range parts {
		objects := 0
		for i, p := range all {
			if objects += p.objects; p.started == 0 || p.completed == 0 {
				t.Errorf("snapshot %s begins %d times and ends %d times in partition %d", id, p.started, p.completed, i)
			}
		}
		if objects != counts[id] {
			t.Errorf("snapshot %s has %d objects and says %d", id, objects, counts[id])
		}
		if objects > 0 {
			filled++
		} else {
			empty++
		}
	}
	return filled, empty
}

// repeatsDirectly checks that an event which was written again stands directly behind
// itself, as its object's records go. It returns how many there are.
func repeatsDirectly(t *testing.T, records []kafkaEvent) (repeats int) {
	t.Helper()
	seen, last := map[string]bool{}, map[string]string{}
	for _, e := range records {
		if e.tombstone || e.marker() {
			continue
		}
		key := string(e.record.Key)
		if seen[e.msgID] {
			repeats++
			if last[key] != e.msgID {
				t.Errorf("record %s/%d/%d repeats %s %s behind %s", e.record.Topic, e.record.Partition, e.record.Offset, e.Type, e.msgID, last[key])
			}
		}
		seen[e.msgID], last[key] = true, e.msgID
	}
	return repeats
}

// lossless checks a topic against all that the API server confirmed.
func lossless(t *testing.T, p *process, brokers *kafkabroker.Cluster, c *churn, cluster *testcluster.Cluster, partitions int) {
	t.Helper()
	changes := c.end()
	want := topicHolds(t, brokers, configMapTopic, cluster, c.namespace)
	if n := p.metric("kbridge_folded_total"); n != 0 {
		t.Errorf("%v changes were folded", n)
	}
	p.stop()
	records := readTopic(t, brokers, configMapTopic)
	keysAndPartitions(t, records, partitions, false)
	repeats := repeatsDirectly(t, records)
	events := distinct(t, inOrder(records))
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	everyConfirmedChange(t, changes, events)
	t.Logf("%d confirmed changes, %d records, %d of them repeats", len(changes), len(records), repeats)
}

func TestKafkaGetsEveryKindOfChangeAndOtherClientsReadIt(t *testing.T) {
	const partitions = 6
	cluster := testcluster.Shared(t)
	brokers := kafkabroker.New(t)
	ns := cluster.CreateNamespace(t)
	widgets := cluster.ApplyCRD(t, "kafka.kbridge.dev", "widgets", "Widget", testcluster.Namespaced)
	client := cluster.Dynamic(t)
	for i := range 40 { // for the first snapshot, in all partitions
		s := object("v1", "Secret", ns, fmt.Sprintf("before-%d", i), map[string]any{"data": map[string]any{"pw": "aHVudGVyMg=="}})
		if _, err := client.Resource(secrets).Namespace(ns).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, cluster, fmt.Sprintf(`
cluster: test
resources:
  - {group: apps, resource: deployments, namespaces: [%[1]s], resync: 10s}
  - {group: kafka.kbridge.dev, resource: widgets, namespaces: [%[1]s], resync: 10s}
  - {group: rbac.authorization.k8s.io, version: v1, resource: clusterroles, labelSelector: 'test=%[1]s', resync: 10s}
  - {resource: secrets, namespaces: [%[1]s], resync: 10s}
`, ns)+kafkaSinks(
		kafkaEntry("structured", brokers, "", "topic: 'structured.{group}.{resource}'", fmt.Sprintf("partitions: %d", partitions)),
		kafkaEntry("binary", brokers, "format: binary", "topic: 'binary.{group}.{resource}'", "tombstones: true", "compression: lz4", fmt.Sprintf("partitions: %d", partitions)),
	))
	p.ready()

	kinds := []struct {
		gvr    schema.GroupVersionResource
		topic  string
		object *unstructured.Unstructured
	}{
		{deployments, "apps.deployments", object("apps/v1", "Deployment", ns, "web", map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": map[string]any{
				"containers": []any{map[string]any{"name": "c", "image": "registry.example/app:1"}}}},
		}})},
		{widgets, "kafka.kbridge.dev.widgets", object("kafka.kbridge.dev/v1", "Widget", ns, "w", map[string]any{"spec": map[string]any{
			"size": int64(9007199254740993), "text": "ünïcödé \"quoted\" <&>", "list": []any{nil, true, 0.1},
		}})},
		{clusterRole, "rbac.authorization.k8s.io.clusterroles", object("rbac.authorization.k8s.io/v1", "ClusterRole", "", ns+":reader", map[string]any{
			"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}}},
		})},
		{secrets, "core.secrets", object("v1", "Secret", ns, "s", map[string]any{"data": map[string]any{"pw": "aHVudGVyMg=="}})},
	}
	for _, k := range kinds {
		announced(t, brokers, "structured."+k.topic, "binary."+k.topic)
	}
	bodies := map[string]*unstructured.Unstructured{} // by event id: what a GET gave at that version
	changes := map[string][]string{}                  // by topic: what was done to the object
	for _, k := range kinds {
		in := client.Resource(k.gvr).Namespace(k.object.GetNamespace())
		note := func(kind string, o *unstructured.Unstructured, err error) {
			if err != nil {
				t.Fatalf("%s %s: %v", k.gvr.Resource, kind, err)
			}
			changes[k.topic] = append(changes[k.topic], kind+" "+string(o.GetUID()))
			if kind != "deleted" {
				bodies[string(o.GetUID())+"."+o.GetResourceVersion()] = o
			}
		}
		k.object.SetLabels(map[string]string{"test": ns})
		for life := range 2 {
			o, err := in.Create(t.Context(), k.object.DeepCopy(), metav1.CreateOptions{})
			note("added", o, err)
			for step := range 3 {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"step":"%d"}}}`, step)
				o, err = in.Patch(t.Context(), k.object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
				note("updated", o, err)
			}
			if life == 0 {
				note("deleted", o, in.Delete(t.Context(), k.object.GetName(), metav1.DeleteOptions{}))
			}
		}
	}
	// A resync that began after the last change says it all again.
	eventually(t, "all kinds are synced", func() error {
		for _, k := range kinds {
			for _, format := range []string{"structured.", "binary."} {
				records, err := tryTopic(t, brokers, format+k.topic)
				if err != nil {
					return err
				}
				last := ""
				for _, e := range records {
					if !e.tombstone && e.Name == k.object.GetName() {
						last = e.short()
					}
				}
				if last != "synced" {
					return fmt.Errorf("%s: the last event is %q", format+k.topic, last)
				}
			}
		}
		return nil
	})
	p.stop()

	var all []kafkaEvent
	for _, k := range kinds {
		want := state{}
		if k.object.GetNamespace() == "" {
			list, err := client.Resource(k.gvr).List(t.Context(), metav1.ListOptions{LabelSelector: "test=" + ns})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range list.Items {
				want[k.gvr.Resource+" /"+o.GetName()] = [2]string{string(o.GetUID()), o.GetResourceVersion()}
			}
		} else {
			want = serverState(t, client, k.gvr, ns)
		}
		twins := map[string]kafkaEvent{}
		for _, format := range []string{"structured.", "binary."} {
			topic := format + k.topic
			records := readTopic(t, brokers, topic)
			all = append(all, records...)
			binary := format == "binary."
			keysAndPartitions(t, records, partitions, binary)
			if filled, empty := markersEverywhere(t, records, partitions); filled == 0 || filled+empty < 2 {
				t.Errorf("%s: %d snapshots with objects, %d without", topic, filled, empty)
			}
			events := inOrder(records)
			if err := difference(replay(t, events), want); err != nil {
				t.Errorf("%s: %v", topic, err)
			}
			var got []string
			for _, e := range events {
				if e.Name == k.object.GetName() && e.short() != "synced" {
					got = append(got, e.short()+" "+e.UID)
				}
				if body, ok := bodies[e.ID]; ok {
					compareBody(t, e, body)
				}
			}
			if !slices.Equal(got, changes[k.topic]) {
				t.Errorf("%s:\n got %q\nwant %q", topic, got, changes[k.topic])
			}
			for _, e := range records {
				if bytes.Contains(e.record.Value, []byte("aHVudGVyMg==")) {
					t.Errorf("the Secret's value is in %s", e.ID)
				}
				if contentType, _ := kafkabroker.Header(e.record, "content-type"); !e.tombstone && (contentType == "application/json") != binary {
					t.Errorf("%s has the content type %s in %s", e.ID, contentType, topic)
				}
				if e.tombstone || e.Snapshot != "" {
					continue // each sink has its own snapshots
				}
				if !binary {
					twins[e.ID] = e
					continue
				}
				twin, ok := twins[e.ID]
				if !ok || !maps.Equal(e.attributes, twin.attributes) || !sameJSON(e.Data, twin.Data) {
					t.Errorf("%s is in binary format\n%v %s, and in structured format\n%v %s", e.ID, e.attributes, e.Data, twin.attributes, twin.Data)
				}
				delete(twins, e.ID)
			}
		}
		for id := range twins {
			t.Errorf("%s is there in structured format only", id)
		}
	}
	sameInAGroup(t, brokers, all)
}

// sameJSON compares documents but for white space and the order of members.
func sameJSON(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x) // was decoded
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

// sameInAGroup reads the topics as a member of a consumer group, which stops in the
// middle and goes on from where it committed, and expects the same records.
func sameInAGroup(t *testing.T, brokers *kafkabroker.Cluster, want []kafkaEvent) {
	t.Helper()
	text := func(r *kgo.Record) string {
		return fmt.Sprintf("%s/%d/%d %s %v %s", r.Topic, r.Partition, r.Offset, r.Key, r.Headers, r.Value)
	}
	missing, topics := map[string]bool{}, map[string]bool{}
	for _, e := range want {
		missing[text(e.record)] = true
		topics[e.record.Topic] = true
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	half := len(missing) / 2
	for _, left := range []int{half, 0} {
		cl, err := brokers.Client(kgo.ConsumerGroup("audit"), kgo.ConsumeTopics(slices.Sorted(maps.Keys(topics))...),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
		if err != nil {
			t.Fatal(err)
		}
		for len(missing) > left && ctx.Err() == nil {
			records := cl.PollRecords(ctx, 50).Records()
			for _, r := range records {
				if !missing[text(r)] {
					t.Errorf("a member of a group reads again, or differently: %s", text(r))
				}
				delete(missing, text(r))
			}
			if err := cl.CommitRecords(ctx, records...); err != nil {
				t.Errorf("commit: %v", err)
			}
		}
		cl.CloseAllowingRebalance()
	}
	if len(missing) > 0 {
		t.Errorf("a group did not get %d of %d records", len(missing), len(want))
	}
}

func TestAKafkaBrokerThatIsKilledForAMinuteUnderChurnLosesNothing(t *testing.T) {
	const outage = 60 * time.Second
	cluster := testcluster.Shared(t)
	brokers := kafkabroker.New(t)
	ns := cluster.CreateNamespace(t)
	// The window holds all that changes in a minute, however fast the machine is: nothing is
	// to be folded.
	p := start(t, cluster, configMapsOf(ns)+kafkaSinks(kafkaEntry("live", brokers, "window: {bytes: 1GiB, events: 1000000}", "partitions: 3", "linger: 0s")))
	p.ready()
	announced(t, brokers, configMapTopic)
	// Some names are used again and again: their events are acknowledged one by one, and
	// would linger each.
	c := startChurn(t, cluster, ns, 4, "x")
	c.goesOn(t, 200)
	brokers.KillAll()
	began := time.Now()
	c.goesOn(t, 100)
	eventually(t, "kbridge says that it is not ready", func() error {
		if body, err := p.get("/readyz"); err == nil || !strings.Contains(body, "live") {
			return fmt.Errorf("%s %w", body, err)
		}
		return nil
	})
	time.Sleep(time.Until(began.Add(outage)))
	p.mustRun()
	if err := brokers.StartAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	p.ready()
	c.goesOn(t, 100)
	ready := time.Since(back)
	c.end()
	eventually(t, "the window is empty", func() error {
		if n := p.metric("kbridge_window_events"); n > 0 {
			return fmt.Errorf("%v events", n)
		}
		return nil
	})
	t.Logf("ready %s after the broker, all is acknowledged after %s", ready, time.Since(back))
	lossless(t, p, brokers, c, cluster, 3)
}

func TestElectionsInAKafkaClusterLoseAndReorderNothing(t *testing.T) {
	const partitions = 3
	cluster := testcluster.Shared(t)
	brokers := kafkabroker.New(t, func(o *kafkabroker.Options) {
		o.Nodes = 3
		o.Config = map[string]string{"min.insync.replicas": "2"}
	})
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+kafkaSinks(kafkaEntry("live", brokers, "", fmt.Sprintf("partitions: %d", partitions), "replication: 3")))
	p.ready()
	announced(t, brokers, configMapTopic)
	c := startChurn(t, cluster, ns, 4, "x")
	c.goesOn(t, 200)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, end := range []func(*kafkabroker.Node){
		(*kafkabroker.Node).Kill,
		// What a stopped process has in hand it may store when it goes on.
		(*kafkabroker.Node).Pause,
	} {
		leader, err := brokers.Leader(ctx, configMapTopic, i%partitions)
		if err != nil {
			t.Fatal(err)
		}
		acknowledged := func() float64 { return p.metric("kbridge_published_total") }
		end(leader)
		before := acknowledged()
		if other, err := brokers.Leader(ctx, configMapTopic, i%partitions); err != nil || other == leader {
			t.Fatalf("node %d is still the leader: %v", leader.ID, err)
		}
		c.goesOn(t, 200)
		eventually(t, "events arrive by the new leaders", func() error {
			if n := acknowledged() - before; n < 200 {
				return fmt.Errorf("%v events", n)
			}
			return nil
		})
		leader.Resume()
		if err := leader.Start(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the node has caught up", func() error {
			topic, err := brokers.DescribeTopic(ctx, configMapTopic)
			for i, s := range topic.Partitions {
				if len(s.InSync) < 3 {
					err = fmt.Errorf("partition %d: %v are in sync", i, s.InSync)
				}
			}
			return err
		})
	}
	lossless(t, p, brokers, c, cluster, partitions)
}

func TestACompactedTopicRebuildsExactlyTheClustersObjects(t *testing.T) {
	const partitions = 3
	cluster := testcluster.Shared(t)
	brokers := kafkabroker.New(t)
	ns := cluster.CreateNamespace(t)
	d := newDowntime(t, cluster.Dynamic(t), ns)
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+kafkaSinks(
		kafkaEntry("live", brokers, "", fmt.Sprintf("partitions: %d", partitions), "cleanupPolicy: compact", "tombstones: true")))
	p.ready()
	topicHolds(t, brokers, configMapTopic, cluster, ns)
	topic, err := brokers.DescribeTopic(t.Context(), configMapTopic)
	if err != nil {
		t.Fatal(err)
	}
	if topic.Config["cleanup.policy"] != "compact" || len(topic.Partitions) != partitions {
		t.Errorf("kbridge made a topic of %d partitions with the cleanup policy %s", len(topic.Partitions), topic.Config["cleanup.policy"])
	}
	// Compacted at once, and tombstones are forgotten soon.
	if err := brokers.AlterTopic(t.Context(), configMapTopic, map[string]string{
		"segment.ms": "500", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "100",
	}); err != nil {
		t.Fatal(err)
	}
	// Some objects go while kbridge is away.
	p.stored()
	p.stop()
	d.pass()
	p.again()
	p.ready()
	c := startChurn(t, cluster, ns, 4, "x")
	c.goesOn(t, 1000)
	changes := c.end()
	for i := range perKind { // and what is left rolls the last segments
		time.Sleep(300 * time.Millisecond)
		d.update(fmt.Sprintf("kept-%d", i), "last")
	}
	client, want := cluster.Dynamic(t), state{}
	eventually(t, "the topic is compacted and rebuilds the state", func() error {
		records, err := tryTopic(t, brokers, configMapTopic)
		if err != nil {
			return err
		}
		want = serverState(t, client, configMaps, ns)
		if len(records) > len(want)+len(changes)/2 {
			return fmt.Errorf("%d records, not compacted yet", len(records))
		}
		return difference(lastValues(t, records), want)
	})
	p.stop()
	records := readTopic(t, brokers, configMapTopic)
	if err := difference(lastValues(t, records), want); err != nil {
		t.Error(err)
	}
	t.Logf("%d changes, %d records are left for %d objects", len(changes), len(records), len(want))
}

// lastValues is the state that a consumer has which keeps each key's last value.
func lastValues(t *testing.T, records []kafkaEvent) state {
	t.Helper()
	last := map[string]kafkaEvent{}
	for _, e := range records {
		last[string(e.record.Key)] = e
	}
	s := state{}
	for key, e := range last {
		if e.tombstone || e.marker() {
			continue
		}
		if e.short() == "deleted" {
			t.Errorf("the last record of %s is a deletion, and no tombstone", key)
		}
		s[e.object()] = [2]string{e.UID, e.ResourceVersion}
	}
	return s
}

func TestAnObjectThatIsTooLargeForKafkaIsADeadLetterOnce(t *testing.T) {
	const size = 1_500_000
	cluster := testcluster.Shared(t)
	brokers := kafkabroker.New(t)
	widgets := cluster.ApplyCRD(t, "large.kbridge.dev", "widgets", "Widget", testcluster.Namespaced)
	text := make([]byte, size)
	random := rand.NewChaCha8([32]byte{})
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("the limit is known before: %t", known), func(t *testing.T) {
			ns := cluster.CreateNamespace(t)
			in := cluster.Dynamic(t).Resource(widgets).Namespace(ns)
			topic := ns + ".widgets"
			made := kafkabroker.Topic{Partitions: 1}
			reason := "are too large for the topic: its max.message.bytes is 1048588"
			if !known {
				made.Config = map[string]string{"max.message.bytes": "3000000"}
				reason = "are too large for the topic: its max.message.bytes is less than the 3000000 that it was when it was last read"
			}
			if err := brokers.CreateTopic(t.Context(), topic, made); err != nil {
				t.Fatal(err)
			}
			// Random text, which no codec brings below the limit.
			p := start(t, cluster, fmt.Sprintf(`
cluster: test
resources:
  - {group: large.kbridge.dev, resource: widgets, namespaces: [%s]}
`, ns)+stateIn(t.TempDir())+kafkaSinks(kafkaEntry("live", brokers, "", "topic: "+topic, "topicPolicy: require")))
			p.ready()
			create := func(name, text string) string {
				t.Helper()
				o, err := in.Create(t.Context(), object("large.kbridge.dev/v1", "Widget", ns, name, map[string]any{"text": text}), metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return string(o.GetUID()) + "." + o.GetResourceVersion()
			}
			_, _ = random.Read(text) // never fails
			large := base64.StdEncoding.EncodeToString(text)[:size]
			var want []string
			if !known {
				// The topic takes it, and no longer does when kbridge has read its limit.
				want = append(want, create("large-0", large))
				arrived(t, brokers, topic, want)
				if err := brokers.AlterTopic(t.Context(), topic, map[string]string{"max.message.bytes": "1048588"}); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, create("first", "x"))
			refused := create("large", large)
			for i := range 20 {
				want = append(want, create(fmt.Sprintf("next-%d", i), "x"))
			}
			arrived(t, brokers, topic, want)
			p.stored()
			p.ready()
			deadLetter(t, p, refused, reason)
			if n := p.metric("kbridge_dead_letters_total", `sink="live"`); n != 1 {
				t.Errorf("%v dead letters are counted", n)
			}
			p.stop()
			p.again()
			p.ready()
			// The object's later events come, and nothing comes again.
			o, err := in.Patch(t.Context(), "large", types.MergePatchType, []byte(`{"text":"small"}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, string(o.GetUID())+"."+o.GetResourceVersion())
			arrived(t, brokers, topic, want)
			p.stop()
			deadLetter(t, p, refused, reason)
			if got := objects(inOrder(readTopic(t, brokers, topic))); len(got) != len(want) {
				t.Errorf("%d events, want %d", len(got), len(want))
			}
		})
	}
}

// arrived waits for events by their ids.
func arrived(t *testing.T, brokers *kafkabroker.Cluster, topic string, ids []string) {
	t.Helper()
	eventually(t, "the events are in the topic", func() error {
		records, err := tryTopic(t, brokers, topic)
		got := map[string]bool{}
		for _, e := range records {
			got[e.ID] = true
		}
		for _, id := range ids {
			if !got[id] {
				err = errors.Join(err, fmt.Errorf("%s is missing", id))
			}
		}
		return err
	})
}

// deadLetter checks that the event is the only one that was put aside, and whole.
func deadLetter(t *testing.T, p *process, id, reason string) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(p.dir, "dead", "live.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(file), []byte("\n"))
	if len(lines) != 1 {
		t.Fatalf("%d dead letters", len(lines))
	}
	var letter struct {
		Sink, Reason string
		Event        cloudEvent
	}
	if err := json.Unmarshal(lines[0], &letter); err != nil {
		t.Fatal(err)
	}
	if letter.Sink != "live" || letter.Event.ID != id || len(letter.Event.Data) < 1_500_000 {
		t.Errorf("the dead letter is of sink %s, %s with %d bytes, want %s", letter.Sink, letter.Event.ID, len(letter.Event.Data), id)
	}
	if !strings.Contains(letter.Reason, reason) {
		t.Errorf("the reason is %q, want %q in it", letter.Reason, reason)
	}
}

func TestKbridgeThatStartsBeforeKafkaWaitsAndDelivers(t *testing.T) {
	cluster := testcluster.Shared(t)
	brokers := kafkabroker.New(t)
	brokers.KillAll()
	ns := cluster.CreateNamespace(t)
	d := newDowntime(t, cluster.Dynamic(t), ns)
	p := start(t, cluster, configMapsOf(ns)+kafkaSinks(kafkaEntry("live", brokers, "")))
	eventually(t, "kbridge names what it waits for", func() error {
		p.mustRun()
		body, err := p.get("/readyz")
		if err == nil || !strings.Contains(body, "live") || !strings.Contains(body, brokers.Addrs(kafkabroker.Plaintext)[0]) {
			return fmt.Errorf("%s: %w", body, err)
		}
		return nil
	})
	d.pass()
	time.Sleep(5 * time.Second) // the pauses between its attempts have grown
	p.mustRun()
	if err := brokers.StartAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.ready()
	want := topicHolds(t, brokers, configMapTopic, cluster, ns)
	p.stop()
	records := readTopic(t, brokers, configMapTopic)
	keysAndPartitions(t, records, 6, false)
	if filled, _ := markersEverywhere(t, records, 6); filled != 1 {
		t.Errorf("%d snapshots", filled)
	}
	if err := difference(replay(t, inOrder(records)), want); err != nil {
		t.Error(err)
	}
}
