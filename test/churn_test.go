package test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	coreEvents  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	clusterRole = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
)

func object(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}
	if namespace != "" {
		o["metadata"].(map[string]any)["namespace"] = namespace
	}
	for k, v := range fields {
		o[k] = v
	}
	return &unstructured.Unstructured{Object: o}
}

// change is one write that the API server confirmed.
type change struct {
	kind, name, uid, version string
	at                       time.Time // when the API server had answered
}

// id is that of the change's event.
func (c change) id() string {
	if c.kind == "deleted" {
		return c.uid + ".deleted"
	}
	return c.uid + "." + c.version
}

// churn writes configmaps in a namespace until it is stopped, and remembers what
// the API server confirmed. Deletes of an object carry no version of their own.
type churn struct {
	client    dynamic.ResourceInterface
	namespace string
	payload   string

	mu      sync.Mutex
	changes []change
	written sync.WaitGroup
	stop    context.CancelFunc
}

// startChurn starts as many writers as there are workers, each with objects of its own: it
// creates one, updates it a few times, deletes it or leaves it, and goes on.
func startChurn(t *testing.T, cluster *testcluster.Cluster, namespace string, workers int, payload string) *churn {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &churn{
		client:    cluster.Dynamic(t).Resource(configMaps).Namespace(namespace),
		namespace: namespace, payload: payload, stop: stop,
	}
	for w := range workers {
		c.written.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%d", w, i)
				if i%3 == 1 {
					name = fmt.Sprintf("w%d-again", w) // each time another object of that name
				}
				c.life(ctx, name, i%3 != 0)
			}
		})
	}
	t.Cleanup(func() { c.end() })
	return c
}

// end stops the writers and returns what was confirmed, in order per object.
func (c *churn) end() []change {
	c.stop()
	c.written.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.changes)
}

// goesOn waits until n more changes are confirmed.
func (c *churn) goesOn(t *testing.T, n int) {
	t.Helper()
	goal := c.count() + n
	eventually(t, "the churn goes on", func() error {
		if n := c.count(); n < goal {
			return fmt.Errorf("%d of %d", n, goal)
		}
		return nil
	})
}

func (c *churn) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.changes)
}

func (c *churn) note(kind string, o *unstructured.Unstructured, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, change{kind, o.GetName(), string(o.GetUID()), version, time.Now()})
}

// life is one object's. While the API server is away a write is tried again; whether
// the lost one was stored the next read tells.
func (c *churn) life(ctx context.Context, name string, deleted bool) {
	made, ok := c.until(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		o, err := c.client.Create(ctx, object("v1", "ConfigMap", c.namespace, name, map[string]any{"data": map[string]any{"step": "0", "payload": c.payload}}), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return c.client.Get(ctx, name, metav1.GetOptions{})
		}
		return o, err
	})
	if !ok {
		return
	}
	c.note("added", made, made.GetResourceVersion())
	for step := 1; step <= 3; step++ {
		patch := fmt.Appendf(nil, `{"data":{"step":"%d"}}`, step)
		o, ok := c.until(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
			return c.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		})
		if !ok {
			return
		}
		c.note("updated", o, o.GetResourceVersion())
	}
	if !deleted {
		return
	}
	if _, ok := c.until(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		err := c.client.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return nil, err
	}); ok {
		c.note("deleted", made, "")
	}
}

// until tries again until the API server answers or ctx ends.
func (c *churn) until(ctx context.Context, do func(ctx context.Context) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, bool) {
	for {
		// A request is not cut short: the API server could still carry it out, after the
		// churn has ended and its result was looked at.
		request, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		o, err := do(request)
		cancel()
		if err == nil {
			return o, true
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// state is what a consumer that applies events one by one ends up with: uid and
// version per name.
type state map[string][2]string

// replay applies events as a consumer would, and reports what no consumer should
// see: an event id twice, an object's events out of order, an update of an object
// that was not added, another uid without a delete before.
func replay(t *testing.T, events []cloudEvent) state {
	t.Helper()
	s := state{}
	seen := map[string]int{}
	gone := map[string]uint32{} // the epoch by uid: in another one it may be back
	for i, e := range events {
		if e.marker() {
			continue
		}
		key := e.object()
		id := e.Source + "/" + e.ID
		if first, ok := seen[id]; ok {
			t.Errorf("event %d repeats event %d: %s", i, first, id)
		}
		seen[id] = i
		if e.msgID != e.dedupID() {
			t.Errorf("event %d: Nats-Msg-Id %q, want %q", i, e.msgID, e.dedupID())
		}
		old, known := s[key]
		switch e.short() {
		case "added":
			if known {
				t.Errorf("event %d adds %s, which is there with version %s", i, key, old[1])
			}
		case "updated":
			if !known || old[0] != e.UID {
				t.Errorf("event %d updates %s of uid %s, but the consumer has %v", i, key, e.UID, old)
			}
			if known && !newer(e.ResourceVersion, old[1]) {
				t.Errorf("event %d updates %s to version %s after %s", i, key, e.ResourceVersion, old[1])
			}
		case "synced":
			if !known || old != [2]string{e.UID, e.ResourceVersion} {
				t.Errorf("event %d says again %s as %s of uid %s, but the consumer has %v", i, key, e.ResourceVersion, e.UID, old)
			}
		case "deleted":
			if !known || old[0] != e.UID {
				t.Errorf("event %d deletes %s of uid %s, but the consumer has %v", i, key, e.UID, old)
			}
			gone[e.UID] = e.Epoch
		default:
			t.Errorf("event %d is of type %q", i, e.Type)
		}
		if e.short() == "deleted" {
			delete(s, key)
			continue
		}
		if epoch, is := gone[e.UID]; is && epoch == e.Epoch {
			t.Errorf("event %d: %s of uid %s comes back after its delete", i, key, e.UID)
		}
		s[key] = [2]string{e.UID, e.ResourceVersion}
	}
	return s
}

// snapshotSeen is a snapshot that was completed.
type snapshotSeen struct {
	id, namespace string
	count         int
}

// snapshotsOf returns the snapshots that were completed, in the order of their ends,
// and reports what is wrong with them: events outside of the markers, an object
// twice, another number than was told, two at a time.
func snapshotsOf(t *testing.T, events []cloudEvent) []snapshotSeen {
	t.Helper()
	var whole []snapshotSeen
	open := map[string]map[string]bool{} // by id: the objects
	ended := map[string]bool{}
	for i, e := range events {
		said, begun := open[e.Snapshot]
		switch {
		case e.Snapshot == "":
		case e.Type == "dev.kbridge.snapshot.started":
			// One that a crash cut short may say again that it begins.
			if ended[e.Snapshot] {
				t.Errorf("event %d: snapshot %s begins again after its end", i, e.Snapshot)
			}
			if !begun {
				open[e.Snapshot] = map[string]bool{}
			}
		case !begun:
			t.Errorf("event %d: %s of snapshot %s, which is not under way", i, e.Type, e.Snapshot)
		case e.Type == "dev.kbridge.snapshot.completed":
			var data struct{ Count int }
			if err := json.Unmarshal(e.Data, &data); err != nil {
				t.Fatal(err)
			}
			if data.Count != len(said) {
				t.Errorf("event %d: snapshot %s is completed with the count %d, and %d objects were said", i, e.Snapshot, data.Count, len(said))
			}
			whole = append(whole, snapshotSeen{e.Snapshot, e.Namespace, data.Count})
			ended[e.Snapshot] = true
			delete(open, e.Snapshot)
		default:
			if said[e.object()] {
				t.Errorf("event %d: snapshot %s has %s twice", i, e.Snapshot, e.object())
			}
			said[e.object()] = true
		}
	}
	return whole
}

// distinct are the events as a consumer sees them that knows ids: each once. It
// reports an id whose event is not the same each time.
func distinct(t *testing.T, events []cloudEvent) []cloudEvent {
	t.Helper()
	first := map[string]cloudEvent{}
	var once []cloudEvent
	for _, e := range events {
		id := e.Source + "/" + e.ID
		f, repeated := first[id]
		if !repeated {
			first[id] = e
			once = append(once, e)
			continue
		}
		// A deletion that was found by comparison has the state before as its last one.
		found := e.short() == "deleted" && f.Inferred != e.Inferred
		if f.Type != e.Type || !found && !e.marker() && string(f.Data) != string(e.Data) {
			t.Errorf("%s is once %s %s and once %s %s", id, f.Type, f.Data, e.Type, e.Data)
		}
	}
	return once
}

// newer compares versions of this API server, which are numbers.
func newer(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

// serverState is what the API server has of a resource in some namespaces.
func serverState(t *testing.T, client dynamic.Interface, gvr schema.GroupVersionResource, namespaces ...string) state {
	t.Helper()
	s := state{}
	for _, ns := range namespaces {
		list, err := client.Resource(gvr).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			s[gvr.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = [2]string{string(o.GetUID()), o.GetResourceVersion()}
		}
	}
	return s
}

// difference says in what two states differ, briefly.
func difference(got, want state) error {
	var wrong []string
	for key, w := range want {
		if g, ok := got[key]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s is missing", key))
		} else if g != w {
			wrong = append(wrong, fmt.Sprintf("%s is %v, want %v", key, g, w))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s should not be there", key))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%d of %d objects differ: %q", len(wrong), len(want), wrong[:min(len(wrong), 5)])
}

// everyConfirmedChange checks that each confirmed write came as an event, once, and
// nothing else did. The events are those of the namespace's configmaps.
func everyConfirmedChange(t *testing.T, changes []change, events []cloudEvent) {
	t.Helper()
	got := map[string]int{}
	for _, e := range events {
		if !e.marker() {
			got[e.ID]++
		}
	}
	for _, c := range changes {
		id := c.id()
		if got[id] != 1 {
			t.Errorf("%s %s came %d times (id %s)", c.name, c.kind, got[id], id)
		}
		delete(got, id)
	}
	// A write whose answer was lost, with an API server or a test that ended, was
	// perhaps stored: its event may be there. Nothing else may.
	if len(got) > 16 {
		t.Errorf("%d events that no write explains", len(got))
	}
}
