package main

import (
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a cluster of so many objects, to client-go and to the bench.
func start(t *testing.T, kind *objects.Kind, count int) (*rest.Config, control.Client) {
	t.Helper()
	s := newServer()
	cluster := httptest.NewServer(s.cluster())
	driver := httptest.NewServer(s.control())
	t.Cleanup(func() {
		s.mu.Lock()
		close(s.ended)
		s.mu.Unlock()
		cluster.Close()
		driver.Close()
	})
	c := control.Client{URL: driver.URL}
	if err := c.Reset(t.Context(), control.Cluster{Resource: kind.Resource, Objects: count}); err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: cluster.URL, QPS: -1}, c
}

func gvr(k *objects.Kind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// seen is what an informer's handlers were told.
type seen struct {
	mu      sync.Mutex
	added   map[string]string // key to version
	updated []*unstructured.Unstructured
}

func (s *seen) count() (added, updated int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.added), len(s.updated)
}

// informer runs client-go's own informer against the server.
func informer(t *testing.T, config *rest.Config, kind *objects.Kind) *seen {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	got := &seen{added: map[string]string{}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	i := factory.ForResource(gvr(kind)).Informer()
	if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			o := obj.(*unstructured.Unstructured)
			got.mu.Lock()
			defer got.mu.Unlock()
			got.added[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
		},
		UpdateFunc: func(_, obj any) {
			got.mu.Lock()
			defer got.mu.Unlock()
			got.updated = append(got.updated, obj.(*unstructured.Unstructured))
		},
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	return got
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

func TestAnInformerGetsAllObjectsByWatchListAndThenEachChange(t *testing.T) {
	for _, kind := range objects.Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			const count, changes = 100, 250
			config, c := start(t, kind, count)
			got := informer(t, config, kind)
			eventually(t, "all objects", func() bool { n, _ := got.count(); return n == count })
			if status, err := c.Status(t.Context()); err != nil || status.Lists != 1 {
				t.Fatalf("served %d lists, want 1 (%v)", status.Lists, err)
			}
			if err := c.Prepare(t.Context(), control.Changes{Count: changes}); err != nil {
				t.Fatal(err)
			}
			sent, err := c.Send(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if sent.Bytes == 0 || sent.Ended.Before(sent.Began) {
				t.Errorf("sent %+v", sent)
			}
			eventually(t, "all changes", func() bool { _, n := got.count(); return n == changes })
			touched := map[string]int{}
			for _, o := range got.updated {
				touched[o.GetNamespace()+"/"+o.GetName()]++
			}
			if len(touched) != count {
				t.Errorf("%d objects changed, want all %d", len(touched), count)
			}
		})
	}
}

func TestChangesCanKeepToFewObjects(t *testing.T) {
	config, c := start(t, objects.Pods, 500)
	got := informer(t, config, objects.Pods)
	eventually(t, "all objects", func() bool { n, _ := got.count(); return n == 500 })
	if err := c.Prepare(t.Context(), control.Changes{Count: 100, Objects: 10}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all changes", func() bool { _, n := got.count(); return n == 100 })
	touched := map[string]bool{}
	for _, o := range got.updated {
		touched[o.GetNamespace()+"/"+o.GetName()] = true
	}
	if len(touched) != 10 {
		t.Errorf("%d objects changed, want 10", len(touched))
	}
}

func TestAPacedChangeSaysWhenItWasSent(t *testing.T) {
	config, c := start(t, objects.Pods, 50)
	got := informer(t, config, objects.Pods)
	eventually(t, "all objects", func() bool { n, _ := got.count(); return n == 50 })
	before := time.Now().UnixNano()
	if _, err := c.Pace(t.Context(), control.Paced{Changes: control.Changes{Count: 20}, PerSecond: 10_000}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all changes", func() bool { _, n := got.count(); return n == 20 })
	last := before
	for _, o := range got.updated {
		stamp, err := objects.SentAt([]byte(`"` + objects.SentKey + `":"` + o.GetAnnotations()[objects.SentKey] + `"`))
		if err != nil || stamp < last {
			t.Fatalf("sent at %d, after %d: %v", stamp, last, err)
		}
		last = stamp
	}
}

func TestAPagedListHasEachObjectOnce(t *testing.T) {
	config, _ := start(t, objects.Pods, 25)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	pages := 0
	for o := (metav1.ListOptions{Limit: 10}); ; {
		list, err := client.Resource(gvr(objects.Pods)).List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, item := range list.Items {
			names[item.GetNamespace()+"/"+item.GetName()] = true
		}
		if o.Continue = list.GetContinue(); o.Continue == "" {
			break
		}
	}
	if len(names) != 25 || pages != 3 {
		t.Errorf("%d objects on %d pages, want 25 on 3", len(names), pages)
	}
}

func TestAWatchFromAnOldVersionHasExpired(t *testing.T) {
	config, _ := start(t, objects.Pods, 5)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Resource(gvr(objects.Pods)).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "100000001"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if status, ok := event.Object.(*metav1.Status); !ok || status.Code != 410 {
		t.Errorf("got %s %v, want a Status with 410", event.Type, event.Object)
	}
}

func TestDiscoveryHasEachKind(t *testing.T) {
	config, _ := start(t, objects.Pods, 0)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, list := range lists {
		found += len(list.APIResources)
	}
	if found != len(objects.Kinds) {
		t.Errorf("found %d resources, want %d", found, len(objects.Kinds))
	}
}

func TestChangesVisitEachObjectBeforeOneTwice(t *testing.T) {
	for _, n := range []int{1, 7, 1000, 7919, 2 * 7919, 200_000} {
		visited := make([]bool, n)
		for k := range n {
			i := next(k, n)
			if visited[i] {
				t.Fatalf("of %d objects, %d is visited twice", n, i)
			}
			visited[i] = true
		}
	}
}
