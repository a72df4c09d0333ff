package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// exampleConsumer is one of examples/consumer as a process, which serves the objects that it has.
type exampleConsumer struct {
	t       *testing.T
	command []string // without -listen
	child   *child.Process
	address string
	logs    *syncBuffer
}

// startConsumer starts one, which ends with the test.
func startConsumer(t *testing.T, command ...string) *exampleConsumer {
	t.Helper()
	c := &exampleConsumer{t: t, command: command, logs: &syncBuffer{}}
	t.Cleanup(func() {
		c.child.Kill()
		if t.Failed() {
			t.Logf("the consumer's log:\n%s", tail(c.logs.String(), 30))
		}
	})
	c.again()
	return c
}

func (c *exampleConsumer) again() {
	c.t.Helper()
	c.address = freeAddress(c.t)
	cmd := exec.Command(c.command[0], append(c.command[1:len(c.command):len(c.command)], "--listen", c.address)...)
	cmd.Stdout, cmd.Stderr = c.logs, c.logs
	var err error
	if c.child, err = child.Start(cmd); err != nil {
		c.t.Fatal(err)
	}
}

// has waits until the consumer has the objects that want returns, and no other.
func (c *exampleConsumer) has(what string, want func() state) {
	c.t.Helper()
	eventually(c.t, "the consumer has the API server's objects "+what, func() error {
		if !c.child.Running() {
			c.t.Fatalf("the consumer ended: %v\n%s", c.child.Wait(), c.logs.String())
		}
		resp, err := httpClient.Get("http://" + c.address)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var objects map[string]struct{ UID, Version string }
		if err := json.NewDecoder(resp.Body).Decode(&objects); err != nil || resp.StatusCode != http.StatusOK {
			return errors.Join(err, errors.New(resp.Status))
		}
		got := state{}
		for key, o := range objects {
			part := strings.Split(key, "/") // cluster, group, resource, namespace, name
			got[fmt.Sprintf("%s %s/%s", part[2], part[3], part[4])] = [2]string{o.UID, o.Version}
		}
		return difference(got, want())
	})
}

// exampleBinary builds one of the examples in Go.
func exampleBinary(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", path, "github.com/kbridge-io/kbridge/examples/consumer/"+name).CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	return path
}

// onNATS begins a stream for a consumer, and returns the sink of it.
func onNATS(t *testing.T) (server *natsserver.Server, sink string) {
	server = natsserver.New(t, "")
	return server, rawSink(server, "foldAfter: 1s\n    window: {events: 20}")
}

func TestTheNATSConsumerHasTheClustersObjectsWhateverHappens(t *testing.T) {
	server, sink := onNATS(t)
	consumerIsRight(t, sink, server.Kill, server.Start, func() *exampleConsumer {
		return startConsumer(t, exampleBinary(t, "nats"), "-url", server.URL())
	})
}

func TestTheConsumerInPythonHasTheClustersObjectsWhateverHappens(t *testing.T) {
	python, packages := python(t)
	server, sink := onNATS(t)
	consumerIsRight(t, sink, server.Kill, server.Start, func() *exampleConsumer {
		return startConsumer(t, "env", "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", python, filepath.Join(pythonExample, "main.py"), "--url", server.URL())
	})
}

func TestTheKafkaConsumerHasTheClustersObjectsWhateverHappens(t *testing.T) {
	brokers := kafkabroker.New(t)
	sink := kafkaSinks(kafkaEntry("live", brokers, "foldAfter: 1s\n    window: {events: 20}", "partitions: 3", "tombstones: true"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(cancel)
	away := func() { brokers.KillAll() }
	back := func() {
		if err := brokers.StartAll(ctx); err != nil {
			t.Fatal(err)
		}
	}
	consumerIsRight(t, sink, away, back, func() *exampleConsumer {
		announced(t, brokers, configMapTopic)
		return startConsumer(t, exampleBinary(t, "kafka"), "-brokers", strings.Join(brokers.Addrs(kafkabroker.Plaintext), ","), "-topic", configMapTopic)
	})
}

// consumerIsRight compares a consumer's objects with the API server's while nearly everything happens to it
// that docs/CONSUMERS.md has a rule for. away and back are of the broker.
func consumerIsRight(t *testing.T, sink string, away, back func(), begin func() *exampleConsumer) {
	t.Helper()
	cluster := testcluster.New(t)
	client := cluster.Dynamic(t)
	ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	d, unwatched := newDowntime(t, client, ns), newDowntime(t, client, other)
	entry := func(rest string) string {
		return fmt.Sprintf("\ncluster: test\nresources:\n  - {resource: configmaps, name: objects, %s, resync: 10s}\n", rest)
	}
	both := "namespaces: [" + ns + ", " + other + "]"
	ending := stateIn(t.TempDir()) + sink
	p := start(t, cluster, entry(both)+ending)
	p.ready()
	all := func() state { return serverState(t, client, configMaps, ns, other) }
	consumer := begin()
	consumer.has("at the start", all)

	// Versions get another digit: as strings the new ones would be older.
	for i, version := 0, ""; len(version) < 4; i++ {
		version = d.update("kept-0", fmt.Sprint("counted ", i))[1]
	}
	consumer.has("whose versions are longer", all)

	// Kills of both, and a broker that is away for so long that changes are folded.
	c := startChurn(t, cluster, ns, 2, "x")
	for i := range 3 {
		c.goesOn(t, 100)
		p.mustRun()
		p.kill()
		if i == 1 {
			consumer.child.Kill()
			consumer.again()
		}
		p.again()
		p.ready()
	}
	away()
	eventually(t, "changes are folded", func() error {
		if !strings.Contains(p.logs.String(), "changes are folded") {
			return errors.New("none are")
		}
		return nil
	})
	c.goesOn(t, 100)
	back()
	c.goesOn(t, 100)
	c.end()
	consumer.has("after kills", all)
	p.stored()

	// etcd is restored from a backup: later states have lower versions.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	saved, err := cluster.SaveEtcd(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d.pass()
	for i := range 100 {
		d.update("kept-0", fmt.Sprint("before ", i))
	}
	consumer.has("before the backup", all)
	if err := cluster.RestoreEtcd(ctx, saved); err != nil {
		t.Fatal(err)
	}
	consumer.has("after the backup", all)
	d.update("kept-1", "after")
	consumer.has("that changed after the backup", all)

	// A changed selection: what goes meanwhile, and what is selected no more, is known by a sweep alone. What
	// leaves the selection is still there, in the version of its deleted event, when the selection is wider again.
	p.stop()
	d.delete("kept-3")
	unwatched.delete("kept-3")
	p.configuration = entry(both+", labelSelector: hidden!=yes") + ending
	label(t, d, "kept-2")
	p.again()
	p.ready()
	visible := func() state {
		s := all()
		delete(s, "configmaps "+ns+"/kept-2")
		delete(s, "configmaps "+ns+"/kept-4")
		return s
	}
	label(t, d, "kept-4")
	consumer.has("of a selection", visible)
	p.stop()
	p.configuration = entry(both) + ending
	p.again()
	p.ready()
	consumer.has("of a wider selection", all)
	p.kill()

	// Who comes late reads the same from the start.
	consumer.child.Kill()
	consumer.again()
	consumer.has("for a consumer that comes late", all)
}

// label makes a configmap leave the selection hidden!=yes.
func label(t *testing.T, d *downtime, name string) {
	t.Helper()
	if _, err := d.in.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"hidden":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The served version is a part of the events' source, and not of what the state calls a selection: kbridge tells what
// differs, and announces nothing again.
func TestAnObjectThatIsToldInAnotherAPIVersionIsTheSameToAConsumer(t *testing.T) {
	cluster := testcluster.Shared(t)
	client := cluster.Dynamic(t)
	ns := cluster.CreateNamespace(t)
	server := natsserver.New(t, "")
	scalers := schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	for _, name := range []string{"kept", "updated", "deleted"} {
		o := object("autoscaling/v2", "HorizontalPodAutoscaler", ns, name, map[string]any{"spec": map[string]any{
			"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
		}})
		if _, err := client.Resource(scalers).Namespace(ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	version, dir := "", t.TempDir()
	again := func(p *process) {
		p.configuration = fmt.Sprintf("\ncluster: test\nresources:\n  - {group: autoscaling, version: %s, resource: horizontalpodautoscalers, namespaces: [%s]}\n", version, ns) +
			stateIn(dir) + natsSink(server, "")
		p.again()
		p.ready()
	}
	p := prepare(t, cluster.Kubeconfig(), "")
	version = "v1"
	again(p)
	p.stored()
	p.stop()
	before := len(readStream(t, server))
	version = "v2"
	again(p)
	if _, err := client.Resource(scalers).Namespace(ns).Patch(t.Context(), "updated", types.MergePatchType, []byte(`{"spec":{"maxReplicas":5}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Resource(scalers).Namespace(ns).Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	startConsumer(t, exampleBinary(t, "nats"), "-url", server.URL()).has("in two versions", func() state { return serverState(t, client, scalers, ns) })
	p.stop()
	for i, e := range readStream(t, server) {
		if want := []string{"v1", "v2"}[min(1, i/before)]; !strings.HasSuffix(e.Source, "/apis/autoscaling/"+want+"/horizontalpodautoscalers") {
			t.Errorf("event %d, %s of %s, has the source %s", i, e.Type, e.object(), e.Source)
		}
	}
	if n := len(readStream(t, server)) - before; n != 2 {
		t.Errorf("%d events in the other version, want an update and a deletion", n)
	}
}
