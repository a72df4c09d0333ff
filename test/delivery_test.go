package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// natsSink is the one sink, which goes to the server's stream KBRIDGE.
func natsSink(server *natsserver.Server, extra string) string {
	return "\nsinks:" + natsEntry("live", server, extra, "")
}

// rawSink is natsSink with a stream that shows what is published again.
func rawSink(server *natsserver.Server, extra string) string {
	return "\nsinks:" + natsEntry("live", server, extra, ", duplicates: 100ms")
}

// natsEntry is one of the sinks.
func natsEntry(name string, server *natsserver.Server, extra, stream string) string {
	return fmt.Sprintf(`
  - name: %s
    %s
    nats:
      urls: ['%s']
      stream: {maxBytes: 2GiB%s}
`, name, extra, server.URL(), stream)
}

// stateIn keeps the state in the folder.
func stateIn(dir string) string { return fmt.Sprintf("\nstate: {file: {dir: '%s'}}\n", dir) }

// configMapsOf selects the configmaps of some namespaces.
func configMapsOf(namespaces ...string) string {
	return fmt.Sprintf(`
cluster: test
kubernetes: {qps: 500, burst: 1000}
resources:
  - {resource: configmaps, namespaces: [%s]}
`, strings.Join(namespaces, ", "))
}

func TestEveryVerbOnEveryKindOfObjectArrivesOnceAndInOrder(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	widgets := cluster.ApplyCRD(t, "delivery.kbridge.dev", "widgets", "Widget", testcluster.Namespaced)
	p := start(t, cluster, fmt.Sprintf(`
cluster: test
resources:
  - {group: apps, resource: deployments, namespaces: [%[1]s]}
  - {resource: pods, namespaces: [%[1]s]}
  - {group: core, resource: events, namespaces: [%[1]s]}
  - {group: delivery.kbridge.dev, resource: widgets, namespaces: [%[1]s]}
  - {group: rbac.authorization.k8s.io, version: v1, resource: clusterroles, labelSelector: 'test=%[1]s'}
  - {resource: secrets, namespaces: [%[1]s]}
`, ns)+natsSink(server, ""))
	p.ready()

	podSpec := map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.example/app:1"}}}
	kinds := []struct {
		gvr     schema.GroupVersionResource
		subject string
		object  *unstructured.Unstructured
	}{
		{deployments, "k8s.test.apps.deployments." + ns + ".web", object("apps/v1", "Deployment", ns, "web", map[string]any{"spec": map[string]any{
			"replicas": int64(2), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": podSpec},
		}})},
		{pods, "k8s.test.core.pods." + ns + ".p-1", object("v1", "Pod", ns, "p-1", map[string]any{"spec": podSpec})},
		{coreEvents, "k8s.test.core.events." + ns + ".e%2E1", object("v1", "Event", ns, "e.1", map[string]any{
			"involvedObject": map[string]any{"kind": "Pod", "name": "p-1", "namespace": ns}, "reason": "Tested", "message": "ünïcödé \"quoted\" <&>", "type": "Normal",
		})},
		{widgets, "k8s.test.delivery%2Ekbridge%2Edev.widgets." + ns + ".w", object("delivery.kbridge.dev/v1", "Widget", ns, "w", map[string]any{"spec": map[string]any{
			"size": int64(9007199254740993), "ratio": 0.1, "nothing": map[string]any{}, "list": []any{nil, true, "x"},
		}})},
		{clusterRole, "k8s.test.rbac%2Eauthorization%2Ek8s%2Eio.clusterroles._." + ns + "%3Areader", object("rbac.authorization.k8s.io/v1", "ClusterRole", "", ns+":reader", map[string]any{
			"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}, "verbs": []any{"get"}}},
		})},
		{secrets, "k8s.test.core.secrets." + ns + ".s", object("v1", "Secret", ns, "s", map[string]any{"data": map[string]any{"pw": "aHVudGVyMg=="}})},
	}
	client := cluster.Dynamic(t)
	bodies := map[string]*unstructured.Unstructured{} // by event id: what a GET gave at that version
	var want []string
	expect := func(subject, kind, version string) {
		want = append(want, subject+" "+kind+" "+version)
	}
	for _, k := range kinds {
		in := client.Resource(k.gvr).Namespace(k.object.GetNamespace())
		k.object.SetLabels(map[string]string{"test": ns})
		made, err := in.Create(t.Context(), k.object, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("create %s: %v", k.gvr.Resource, err)
		}
		got, err := in.Get(t.Context(), made.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bodies[string(got.GetUID())+"."+got.GetResourceVersion()] = got
		expect(k.subject, "added", got.GetResourceVersion())
		for i := range 3 {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"step":"%d"}}}`, i)
			if _, err := in.Patch(t.Context(), made.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatalf("patch %s: %v", k.gvr.Resource, err)
			}
			if got, err = in.Get(t.Context(), made.GetName(), metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			bodies[string(got.GetUID())+"."+got.GetResourceVersion()] = got
			expect(k.subject, "updated", got.GetResourceVersion())
		}
		now := int64(0)
		if err := in.Delete(t.Context(), made.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatalf("delete %s: %v", k.gvr.Resource, err)
		}
		if k.gvr == pods {
			// A pod's deletion begins as an update: the API server sets its deletionTimestamp.
			expect(k.subject, "updated", "")
		}
		expect(k.subject, "deleted", "")
		again := k.object.DeepCopy()
		if made, err = in.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create %s again: %v", k.gvr.Resource, err)
		}
		bodies[string(made.GetUID())+"."+made.GetResourceVersion()] = made
		expect(k.subject, "added", made.GetResourceVersion())
	}
	var events []cloudEvent
	eventually(t, "all events are stored", func() error {
		events = readStream(t, server)
		if n := len(objects(events)); n < len(want) {
			return fmt.Errorf("%d of %d", n, len(want))
		}
		return nil
	})
	p.stop()
	events = readStream(t, server)
	perObject := map[string][]string{}
	for _, e := range objects(events) {
		version := e.ResourceVersion
		if e.short() == "deleted" || strings.Contains(string(e.Data), "deletionTimestamp") {
			version = "" // the deletion's own, which no GET can tell
		}
		perObject[e.natsSubject] = append(perObject[e.natsSubject], e.natsSubject+" "+e.short()+" "+version)
	}
	var got []string
	for _, k := range kinds {
		got = append(got, perObject[k.subject]...)
	}
	if len(objects(events)) != len(want) || !slices.Equal(got, want) {
		t.Errorf("%d events\n got %q\nwant %q", len(events), got, want)
	}
	replay(t, events)
	for _, e := range events {
		if strings.Contains(string(e.Data), "aHVudGVyMg==") {
			t.Errorf("the Secret's value is in event %s", e.ID)
		}
		body, ok := bodies[e.ID]
		if !ok {
			continue // a delete
		}
		compareBody(t, e, body)
	}
}

// compareBody compares an event's data with what a GET gave, less what is dropped.
func compareBody(t *testing.T, e cloudEvent, body *unstructured.Unstructured) {
	t.Helper()
	want := body.DeepCopy()
	want.SetManagedFields(nil)
	if e.Resource == "secrets" {
		want.Object["data"] = map[string]any{"pw": "cmVkYWN0ZWQ="}
	}
	encoded, err := json.Marshal(want.Object)
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	if err := json.Unmarshal(e.Data, &g); err != nil {
		t.Fatalf("event %s: %v", e.ID, err)
	}
	if err := json.Unmarshal(encoded, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("event %s has another body than a GET:\n got %s\nwant %s", e.ID, e.Data, encoded)
	}
	if strings.Contains(string(encoded), "9007199254740993") && !strings.Contains(string(e.Data), "9007199254740993") {
		t.Errorf("event %s lost digits of a large number: %s", e.ID, e.Data)
	}
}

func TestFiveThousandObjectsThatAreThereAtTheStartArriveOnceEach(t *testing.T) {
	const count = 5000
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	in := cluster.Dynamic(t).Resource(configMaps).Namespace(ns)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < count; i += 8 {
				if _, err := in.Create(t.Context(), object("v1", "ConfigMap", ns, fmt.Sprintf("c%04d", i), map[string]any{"data": map[string]any{"i": fmt.Sprint(i)}}), metav1.CreateOptions{}); err != nil {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
	p := start(t, cluster, configMapsOf(ns)+natsSink(server, ""))
	p.ready()
	eventually(t, "all are acknowledged", func() error {
		if n := p.metric("kbridge_published_total", `type="added"`); n < count {
			return fmt.Errorf("%v of %d", n, count)
		}
		return nil
	})
	p.stop()
	events := readStream(t, server)
	if taken := snapshotsOf(t, events); len(taken) != 1 || taken[0].count != count || len(objects(events)) != count {
		t.Errorf("%d events and snapshots %v, want one of %d objects", len(events), taken, count)
	}
	for _, e := range objects(events) {
		if e.short() != "added" || e.Snapshot == "" {
			t.Fatalf("%s %s with snapshot %q: want added, and the snapshot of the first list", e.Name, e.Type, e.Snapshot)
		}
	}
	if err := difference(replay(t, events), serverState(t, cluster.Dynamic(t), configMaps, ns)); err != nil {
		t.Error(err)
	}
}

func TestAnAPIServerThatIsKilledAndRestartedLosesAndRepeatsNothing(t *testing.T) {
	cluster := testcluster.New(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+natsSink(server, ""))
	p.ready()
	c := startChurn(t, cluster, ns, 4, "x")
	var kills []time.Time
	for range 3 {
		c.goesOn(t, 200)
		kills = append(kills, time.Now())
		cluster.APIServer.Kill()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := cluster.APIServer.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	c.goesOn(t, 100)
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	eventually(t, "the consumer's state is the API server's", func() error {
		return difference(fold(readStream(t, server)), want)
	})
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	// What changed in the moment between the last delivered event and the kill may be
	// folded by the comparison that follows: then it is one event, marked, for several
	// changes. No object and no deletion may be missing.
	added, deleted, inferred := map[string]bool{}, map[string]bool{}, 0
	for _, e := range events {
		switch e.short() {
		case "added":
			added[e.UID] = true
		case "deleted":
			deleted[e.UID] = true
		}
		if e.Inferred {
			inferred++
		}
	}
	live := map[string]bool{}
	for _, v := range want {
		live[v[0]] = true
	}
	// An object that came and went between the kill and the list that followed is known
	// to nobody: a restarted API server has no history. Nothing else may be unseen.
	insideGap := func(at time.Time) int {
		return slices.IndexFunc(kills, func(k time.Time) bool { return at.After(k) && at.Before(k.Add(15*time.Second)) })
	}
	born, unseen := map[string]time.Time{}, 0
	for _, ch := range changes {
		if live[ch.uid] && !added[ch.uid] {
			t.Errorf("%s is there and was never announced", ch.name)
		}
		if !live[ch.uid] && added[ch.uid] && !deleted[ch.uid] {
			t.Errorf("%s was announced, is gone, and has no deleted event", ch.name)
		}
		if ch.kind == "added" {
			born[ch.uid] = ch.at
		}
		if ch.kind == "deleted" && !added[ch.uid] {
			unseen++
			if gap := insideGap(born[ch.uid]); gap < 0 || gap != insideGap(ch.at) {
				t.Errorf("%s was there outside of the gaps and was never announced", ch.name)
			}
		}
	}
	t.Logf("%d confirmed changes, %d events, %d of them inferred, %d objects came and went inside a gap", len(changes), len(events), inferred, unseen)
}

func TestANATSServerThatIsKilledUnderLoadLosesNothing(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+natsSink(server, ""))
	p.ready()
	c := startChurn(t, cluster, ns, 8, "x")
	for range 5 {
		c.goesOn(t, 200)
		server.Kill()
		c.goesOn(t, 50)
		server.Start()
	}
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	eventually(t, "the consumer's state is the API server's", func() error {
		return difference(fold(readStream(t, server)), want)
	})
	p.stop()
	events := readStream(t, server)
	replay(t, events)
	everyConfirmedChange(t, changes, events)
}

func TestSIGHUPEndsNothing(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+natsSink(server, ""))
	p.ready()
	p.child.Signal(syscall.SIGHUP)
	eventually(t, "the log says that nothing is done", func() error {
		if !strings.Contains(p.logs.String(), "SIGHUP: nothing is done") {
			return errors.New(p.logs.String())
		}
		return nil
	})
	if _, err := p.get("/healthz"); err != nil {
		t.Error(err)
	}
	p.stop()
}

func TestSIGTERMUnderLoadLosesNothingThatWasRead(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	c := startChurn(t, cluster, ns, 8, "x")
	p := start(t, cluster, configMapsOf(ns)+natsSink(server, ""))
	p.ready()
	c.goesOn(t, 1000)
	// The broker stands still for a moment, so that much is under way at the signal.
	server.Pause()
	eventually(t, "events are under way", func() error {
		if n := p.metric("kbridge_window_events"); n < 50 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	time.AfterFunc(time.Second, server.Resume)
	p.stop()
	changes := c.end()
	events := readStream(t, server)
	replay(t, events)
	// The watch delivers in the order of versions. So what was read is all up to some
	// version, and a change below the newest event's without an event was lost.
	newest, first := "", ""
	for _, e := range events {
		if newer(e.ResourceVersion, newest) {
			newest = e.ResourceVersion
		}
		if e.Snapshot == "" && (first == "" || newer(first, e.ResourceVersion)) {
			first = e.ResourceVersion // the first live one; what was before came in the list
		}
	}
	got := map[string]bool{}
	for _, e := range events {
		got[e.ID] = true
	}
	checked := 0
	for _, ch := range changes {
		if ch.kind == "deleted" || newer(ch.version, newest) || newer(first, ch.version) {
			continue
		}
		checked++
		if !got[ch.uid+"."+ch.version] {
			t.Errorf("%s at version %s was read, as version %s was, and is lost", ch.name, ch.version, newest)
		}
	}
	if checked < 100 {
		t.Errorf("only %d changes were checked", checked)
	}
}

func TestAMinuteWithoutTheBrokerKeepsMemoryBounded(t *testing.T) {
	const (
		outage = 60 * time.Second
		window = 16 << 20
		// What the process may grow by: the window, as much again that the garbage
		// collector has not collected yet, and what the transport buffers for a watch
		// that is held back.
		bound = 2*window + 24<<20
	)
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+natsSink(server, "window: {bytes: 16MiB}"))
	p.ready()
	c := startChurn(t, cluster, ns, 8, strings.Repeat("payload ", 2500)) // 20 KB
	c.goesOn(t, 300)
	before := p.anonymousMemory()
	server.Kill()
	peak, full := int64(0), false
	for end := time.Now().Add(outage); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		p.mustRun()
		peak = max(peak, p.anonymousMemory())
		full = full || p.metric("kbridge_window_waiting") > 0
		if used := p.metric("kbridge_window_bytes"); used > window {
			t.Fatalf("the window holds %v bytes, its limit is %d", used, window)
		}
	}
	if !full {
		t.Fatalf("the window was never full: %d changes were too few for this test to show anything", c.count())
	}
	// The index grows with the objects that the churn leaves: that is not the outage's.
	index := int64(p.metric("kbridge_index_bytes"))
	t.Logf("RssAnon %d MiB before, %d MiB at most in %s without the broker; index %d MiB; window %d MiB", before>>20, peak>>20, outage, index>>20, window>>20)
	if !raceEnabled && peak > before+bound+2*index {
		t.Errorf("memory grew from %d to %d MiB, more than %d", before>>20, peak>>20, (bound+2*index)>>20)
	}
	server.Start()
	c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	eventually(t, "the consumer's state is the API server's", func() error {
		return difference(fold(readStream(t, server)), want)
	})
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
}
