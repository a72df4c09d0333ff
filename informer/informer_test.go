package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
	"github.com/kbridge-io/kbridge/internal/spill"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	widgets    = schema.GroupVersionResource{Group: "example.dev", Version: "v1", Resource: "widgets"}
)

// recorder is a Handler that keeps what it gets, and blocks while it is told to.
type recorder struct {
	verified  [][2]int // of how many objects, and how many differed
	mu        sync.Mutex
	deltas    []event.Delta
	positions []string
	lists     []string // the snapshots that lists began with
	restated  []*event.Object
	moved     *event.Resource                            // the last version of the resource that it moved to
	gate      chan struct{}                              // nil: open
	snapshot  func(ctx context.Context, id string) error // nil: nothing to do
}

func (r *recorder) Delta(ctx context.Context, d *event.Delta) error {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deltas = append(r.deltas, *d)
	return nil
}

func (r *recorder) ListBegins(snapshot string) {
	r.Position("")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists = append(r.lists, snapshot)
}

func (r *recorder) ListEnds(rv string) { r.Position(rv) }

// recorded is the name of the recorder's one sink.
const recorded = "recorded"

func (r *recorder) Sinks() []string { return []string{recorded} }

func (r *recorder) Snapshot(ctx context.Context, _, id string) error {
	if r.snapshot == nil {
		return nil
	}
	return r.snapshot(ctx, id)
}

func (r *recorder) Resumes(string) {}

func (r *recorder) Moves(to *event.Resource) {
	r.Position("")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = to
}

func (r *recorder) Verified(_ string, compared, differed int, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verified = append(r.verified, [2]int{compared, differed})
}

func (r *recorder) Restated(o *event.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restated = append(r.restated, o)
}

func (r *recorder) Position(rv string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.positions = append(r.positions, rv)
}

// take returns the deltas since the last call, each as `type namespace/name@rv`.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, d := range r.deltas {
		line := fmt.Sprintf("%s %s/%s", d.Type, d.Object.Namespace, d.Object.Name)
		if d.Inferred {
			line += " inferred"
		}
		lines = append(lines, line)
	}
	r.deltas = nil
	return lines
}

func (r *recorder) position() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.positions) == 0 {
		return ""
	}
	return r.positions[len(r.positions)-1]
}

// bench is an informer on a scripted API server, in virtual time. It can be stopped
// and started again with what it knew.
type bench struct {
	t        *testing.T
	api      *scriptedapi.Server
	client   *Client
	resource config.Resource
	aside    *spill.File // nil: bodies stay in memory
	history  event.History
	// Of the current run.
	recorder *recorder
	informer *Informer
	metrics  *Metrics
	logs     *strings.Builder
	views    []View
	stopRead func()
	deliver  func() // ends the delivery
	ended    chan error
}

// inBubble runs test in a bubble with an informer for the selection that is
// running and has come to rest. setup prepares the server before.
func inBubble(t *testing.T, r config.Resource, setup func(*scriptedapi.Server), test func(*bench)) {
	t.Helper()
	inBubbleWith(t, r, nil, setup, test)
}

// inBubbleWith is inBubble with a file for the bodies of the index.
func inBubbleWith(t *testing.T, r config.Resource, aside *spill.File, setup func(*scriptedapi.Server), test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := scriptedapi.New()
		defer api.Close()
		api.Register(configMaps, "ConfigMap", true)
		api.Register(secrets, "Secret", true)
		api.Register(widgets, "Widget", false)
		if setup != nil {
			setup(api)
		}
		client, err := NewClient(api.Config(), 1000, 1000, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		b := &bench{t: t, api: api, client: client, resource: r, aside: aside}
		b.start(nil, nil)
		defer func() { b.stop() }()
		b.rest()
		test(b)
	})
}

// start starts an informer after an earlier run that knew something. prepare may
// change the recorder before it is used.
func (b *bench) start(known *Known, prepare func(*recorder)) {
	b.recorder, b.metrics, b.logs, b.views = &recorder{}, NewMetrics(prometheus.NewRegistry()), &strings.Builder{}, nil
	if prepare != nil {
		prepare(b.recorder)
	}
	// They do not end with the test's context, which ends before its deferred calls.
	reading, stopRead := context.WithCancel(context.Background())
	delivery, stopDelivery := context.WithCancel(context.Background())
	b.stopRead, b.deliver = stopRead, stopDelivery
	var err error
	b.informer, err = New(Options{
		Client: b.client, Cluster: "test", History: &b.history, Resource: b.resource, Entry: b.resource.Entry(),
		Handler: func(v View) (Handler, *Known, error) {
			b.views = append(b.views, v)
			return b.recorder, ofNamespace(known, v.Namespace), nil
		},
		Delivery: delivery, Aside: b.aside, Metrics: b.metrics,
		Log: slog.New(slog.NewTextHandler(b.logs, nil)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.ended = make(chan error, 1)
	go func() { b.ended <- b.informer.Run(reading) }()
}

// ofNamespace is what is known of one namespace; empty for all.
func ofNamespace(k *Known, namespace string) *Known {
	if k == nil || namespace == "" {
		return k
	}
	part := *k
	part.Objects = slices.DeleteFunc(slices.Clone(k.Objects), func(o *event.Object) bool { return o.Namespace != namespace })
	return &part
}

// stop ends the informer and returns what it knew, as if all had been acknowledged.
func (b *bench) stop() *Known {
	b.t.Helper()
	b.stopRead()
	b.deliver()
	err := <-b.ended
	b.ended <- nil // it may be stopped again
	if err != nil {
		b.t.Errorf("Run: %v", err)
	}
	known := &Known{Listed: true, Position: b.recorder.position()}
	for _, v := range b.views {
		for _, key := range v.Index.Keys() {
			v.Index.With(key, func(o *event.Object) { known.Objects = append(known.Objects, o) })
		}
	}
	return known
}

// restart stops the informer and starts it with what it knew. while happens in
// between, and may change that.
func (b *bench) restart(while func(*Known)) {
	b.t.Helper()
	known := b.stop()
	b.api.ResetRequests()
	if while != nil {
		while(known)
	}
	b.start(known, nil)
	b.rest()
}

// rest lets the virtual time of all retries pass, until nothing moves.
func (b *bench) rest() {
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

func (r *recorder) expectNone(t *testing.T) {
	t.Helper()
	if got := r.take(); len(got) > 0 {
		t.Fatalf("deltas: %q, want none", got)
	}
}

func (b *bench) expect(want ...string) {
	b.t.Helper()
	got := b.recorder.take()
	if !slices.Equal(got, want) {
		b.t.Fatalf("deltas:\n got %q\nwant %q", got, want)
	}
}

// expectSet is expect where the order among objects is not given: a list has none.
func (b *bench) expectSet(want ...string) {
	b.t.Helper()
	got := b.recorder.take()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.t.Fatalf("deltas:\n got %q\nwant %q", got, want)
	}
}

// lists is how many lists were begun for a reason.
func (b *bench) lists(reason string) float64 {
	return testutil.ToFloat64(b.metrics.lists.WithLabelValues("configmaps", b.informer.Name(), reason))
}

// allLists is how many lists were begun.
func (b *bench) allLists() (n float64) {
	for _, reason := range listReasons {
		n += b.lists(reason)
	}
	return n
}

func configMap(namespace, name string, data map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"namespace": namespace, "name": name}, "data": data}
}

func selection(gvr schema.GroupVersionResource) config.Resource {
	r := config.DefaultResource()
	r.Group, r.Resource = gvr.Group, gvr.Resource
	return r
}

func setData(key string, value any) func(map[string]any) {
	return func(o map[string]any) {
		data, _ := o["data"].(map[string]any)
		data = maps.Clone(data)
		if data == nil {
			data = map[string]any{}
		}
		data[key] = value
		o["data"] = data
	}
}

// twoObjects is a server that has the configmaps default/a and default/b.
func twoObjects(api *scriptedapi.Server) {
	api.Create(configMaps, configMap("default", "a", nil))
	api.Create(configMaps, configMap("default", "b", nil))
}

// bothWays runs a test with a server that has WatchList and with one that has not.
func bothWays(t *testing.T, test func(t *testing.T, setup func(*scriptedapi.Server))) {
	t.Helper()
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchList=%v", on), func(t *testing.T) {
			test(t, func(api *scriptedapi.Server) { api.SetWatchList(on) })
		})
	}
}

func TestTheFirstListAddsWhatIsThereAndTheWatchGoesOn(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			first := b.recorder.deltas
			b.expectSet("added default/a", "added default/b")
			for _, d := range first {
				if d.Snapshot == "" || d.Snapshot != first[0].Snapshot {
					t.Errorf("%s: snapshot %q, want that of the first list %q", d.Object.Name, d.Snapshot, first[0].Snapshot)
				}
			}
			if b.informer.Err() != nil {
				t.Errorf("Err = %v after the first list", b.informer.Err())
			}
			if b.lists(listStart) != 1 || b.allLists() != 1 {
				t.Errorf("%v lists, %v of them at the start, want 1 at the start", b.allLists(), b.lists(listStart))
			}
			b.api.Create(configMaps, configMap("default", "c", nil))
			b.api.Update(configMaps, "default", "a", setData("k", "v"))
			deletion := b.api.Delete(configMaps, "default", "b")
			b.rest()
			live := b.recorder.deltas
			b.expect("added default/c", "updated default/a", "deleted default/b")
			if live[1].Old == nil || live[1].Old.ResourceVersion == live[1].Object.ResourceVersion {
				t.Errorf("the update has no old object of another version: %+v", live[1])
			}
			if live[2].Object.ResourceVersion != deletion {
				t.Errorf("a deletion that was seen has version %s, want the deletion's %s", live[2].Object.ResourceVersion, deletion)
			}
			if got := b.recorder.position(); got != deletion {
				t.Errorf("position %s, want %s", got, deletion)
			}
		})
	})
}

func TestObjectsAlwaysHaveAPIVersionAndKind(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			b.api.Update(configMaps, "default", "a", setData("k", "v"))
			b.rest()
			for _, d := range b.recorder.deltas {
				var o struct{ APIVersion, Kind string }
				if err := json.Unmarshal(d.Object.Body, &o); err != nil || o.APIVersion != "v1" || o.Kind != "ConfigMap" {
					t.Errorf("%s: apiVersion %q, kind %q (%v): %s", d.Object.Name, o.APIVersion, o.Kind, err, d.Object.Body)
				}
			}
			if n := len(b.recorder.deltas); n != 3 {
				t.Errorf("%d deltas, want 3", n)
			}
		})
	})
}

// gap stops delivery, changes the server, and lets the client find it.
type gap struct {
	name   string
	fault  func(api *scriptedapi.Server) // after the changes
	reason string                        // of the list that becomes necessary
}

var gaps = []gap{
	{"410 in the stream", func(api *scriptedapi.Server) {
		api.Compact()
		api.Up()
	}, listExpired},
	{"410 as an HTTP error", func(api *scriptedapi.Server) {
		api.SetExpiredAsHTTP(true)
		api.Compact()
		api.Up()
	}, listExpired},
	{"a server that was restarted", func(api *scriptedapi.Server) {
		api.Restart()
		api.Up()
	}, listExpired},
	{"500 on the list after a 410", func(api *scriptedapi.Server) {
		api.Compact()
		e := scriptedapi.Fail(500)
		api.FailNext(scriptedapi.List, configMaps, scriptedapi.Pass, e, e, e) // the probe passes
		api.Up()
	}, listExpired},
}

func TestAServerThatAnswersWithErrorsForAWhileIsNotListedAnew(t *testing.T) {
	for _, code := range []int{500, 503, 504, 429} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
				b.recorder.take()
				e := scriptedapi.Fail(code)
				b.api.FailNext(scriptedapi.List, configMaps, e, e) // the probe
				b.api.FailNext(scriptedapi.Watch, configMaps, e, scriptedapi.Fault{Drop: true}, e)
				b.api.CutWatches()
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.rest()
				b.expect("updated default/a")
				if n := b.lists(listFailed); n != 0 {
					t.Errorf("%v lists because of errors that passed, want none", n)
				}
			})
		})
	}
}

// Whatever fails, and for how long: while the server has the history it is asked for it.
func TestNothingButALostHistoryLeadsToAList(t *testing.T) {
	watches := func(f scriptedapi.Fault) func(*scriptedapi.Request) *scriptedapi.Fault {
		return func(r *scriptedapi.Request) *scriptedapi.Fault {
			if r.Verb == scriptedapi.Watch && r.GVR == configMaps {
				return &f
			}
			return nil
		}
	}
	all := func(f scriptedapi.Fault) func(*scriptedapi.Request) *scriptedapi.Fault {
		return func(*scriptedapi.Request) *scriptedapi.Fault { return &f }
	}
	for name, hook := range map[string]func(*scriptedapi.Request) *scriptedapi.Fault{
		"the server has an error of its own":      watches(scriptedapi.Fail(500)),
		"it is not there behind a proxy":          all(scriptedapi.Fail(503)),
		"connections are cut":                     all(scriptedapi.Fault{Drop: true}),
		"the token is refused":                    all(scriptedapi.Fail(401)),
		"nothing is permitted any more":           all(scriptedapi.Fail(403)),
		"the watch is forbidden, the list is not": watches(scriptedapi.Fail(403)),
		"the resource is not served":              watches(scriptedapi.Fail(404)),
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
					b.recorder.take()
					b.api.OnRequest(hook)
					b.api.CutWatches()
					b.api.Create(configMaps, configMap("default", "brief", nil))
					b.api.Update(configMaps, "default", "a", setData("k", "v"))
					b.api.Delete(configMaps, "default", "brief")
					time.Sleep(30 * time.Minute)
					b.recorder.expectNone(t)
					b.api.OnRequest(nil)
					b.rest()
					b.expect("added default/brief", "updated default/a", "deleted default/brief")
					if n := b.allLists(); n != 1 {
						t.Errorf("%v lists, want the first one alone", n)
					}
				})
			})
		})
	}
}

func TestAWatchThatBeganResetsThePauseBeforeTheNextOne(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		for range 12 {
			b.api.Compact()
			b.api.SendError(configMaps, nil)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			b.recorder.take()
			b.api.Update(configMaps, "default", "a", setData("k", "v"))
			synctest.Wait()
			b.expect("updated default/a")
		}
	})
}

// manyObjects is a server for missing.
func manyObjects(api *scriptedapi.Server) {
	twoObjects(api)
	api.Create(configMaps, configMap("default", "same", nil))
	api.Create(configMaps, configMap("default", "again", nil))
}

// missing changes what manyObjects made while nobody looks, and returns the check of
// what is found of it by comparison.
func missing(b *bench) (check func()) {
	oldUID := b.api.UID(configMaps, "default", "again")
	b.api.Down()
	b.api.Update(configMaps, "default", "a", setData("k", "1"))
	b.api.Update(configMaps, "default", "a", setData("k", "2"))
	b.api.Delete(configMaps, "default", "b")
	b.api.Create(configMaps, configMap("default", "c", nil))
	b.api.Delete(configMaps, "default", "again")
	b.api.Create(configMaps, configMap("default", "again", nil))
	b.api.Create(configMaps, configMap("default", "unseen", nil))
	b.api.Delete(configMaps, "default", "unseen")
	return func() {
		b.t.Helper()
		found := b.recorder.deltas
		again := slices.DeleteFunc(slices.Clone(found), func(d event.Delta) bool { return d.Object.Name != "again" })
		b.expectSet("updated default/a inferred", "deleted default/b inferred", "added default/c inferred",
			"deleted default/again inferred", "added default/again inferred")
		if again[0].Type != event.Deleted || again[0].Object.UID != oldUID || again[1].Object.UID == oldUID {
			b.t.Errorf("deleted and made anew: %v %s, then %v %s; the old uid is %s", again[0].Type, again[0].Object.UID, again[1].Type, again[1].Object.UID, oldUID)
		}
		for _, d := range found {
			if d.Type == event.Deleted && len(d.Object.Body) == 0 {
				b.t.Errorf("the missed delete of %s has no last state", d.Object.Name)
			}
			if d.Snapshot != "" {
				b.t.Errorf("%s %s is part of a snapshot", d.Type, d.Object.Name)
			}
		}
		b.api.Update(configMaps, "default", "c", setData("k", "v"))
		b.rest()
		b.expect("updated default/c")
	}
}

func TestAComparisonAfterAGapFindsExactlyTheDifferences(t *testing.T) {
	for _, g := range gaps {
		t.Run(g.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); manyObjects(api) }, func(b *bench) {
					b.recorder.take()
					check := missing(b)
					g.fault(b.api)
					b.rest()
					check()
					if got := b.lists(g.reason); got < 1 {
						t.Errorf("no list for reason %s was counted", g.reason)
					}
				})
			})
		})
	}
}

func TestACutConnectionGoesOnFromTheLastVersionWithoutAList(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.recorder.take()
		b.api.CutWatches()
		b.api.Update(configMaps, "default", "a", setData("k", "1"))
		b.rest()
		b.api.CutInFrame(configMaps)
		b.api.Update(configMaps, "default", "a", setData("k", "2"))
		b.rest()
		b.expect("updated default/a", "updated default/a")
		if n := b.allLists(); n != 1 {
			t.Errorf("%v lists, want the first one alone", n)
		}
	})
}

func TestAServerThatWentBackInTimeIsNoticedAndCompared(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			backup := b.api.Snapshot()
			b.api.Update(configMaps, "default", "a", setData("k", "lost"))
			b.api.Create(configMaps, configMap("default", "lost", nil))
			b.api.Delete(configMaps, "default", "b")
			b.rest()
			b.recorder.take()
			b.api.Restore(backup)
			b.rest()
			b.expectSet("updated default/a inferred", "deleted default/lost inferred", "added default/b inferred")
			if b.lists(listBehind) != 1 {
				t.Errorf("%v lists because the server was behind, want 1", b.lists(listBehind))
			}
			b.api.Update(configMaps, "default", "a", setData("k", "new"))
			b.rest()
			b.expect("updated default/a")
		})
	})
}

func TestABookmarkMovesThePosition(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.api.Advance(50)
		rv := b.api.Bookmark(configMaps)
		synctest.Wait()
		if got := b.recorder.position(); got != rv {
			t.Errorf("position %s, want the bookmark's %s", got, rv)
		}
	})
}

func TestThePositionIsVoidWhileAListIsHandedOver(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		want := []string{"", b.api.Version()}
		if !slices.Equal(b.recorder.positions, want) {
			t.Errorf("positions %q, want %q", b.recorder.positions, want)
		}
	})
}

func TestAListNeverAsksForAnyAge(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			for _, r := range b.api.Requests() {
				if r.Query.Get("resourceVersion") == "0" {
					t.Errorf("%s %s asks for version 0", r.Verb, r.Path)
				}
			}
		})
	})
}

func TestNamespacesAreWatchedEachForItself(t *testing.T) {
	r := selection(configMaps)
	r.Namespaces = []string{"one", "two"}
	inBubble(t, r, func(api *scriptedapi.Server) {
		for _, ns := range []string{"one", "two", "three"} {
			api.Create(configMaps, configMap(ns, "x", nil))
		}
	}, func(b *bench) {
		b.expectSet("added one/x", "added two/x")
		b.api.Update(configMaps, "two", "x", setData("k", "v"))
		b.api.Update(configMaps, "three", "x", setData("k", "v"))
		b.rest()
		b.expect("updated two/x")
		if n := b.api.Watches(configMaps); n != 2 {
			t.Errorf("%d watches, want one a namespace", n)
		}
	})
}

func TestExcludedNamespacesAreCountedAndLeftOut(t *testing.T) {
	r := selection(configMaps)
	r.ExcludeNamespaces = []string{"kube-system"}
	inBubble(t, r, func(api *scriptedapi.Server) {
		api.Create(configMaps, configMap("kube-system", "x", nil))
		api.Create(configMaps, configMap("shop", "x", nil))
	}, func(b *bench) {
		rv := b.api.Update(configMaps, "kube-system", "x", setData("k", "v"))
		b.rest()
		b.expect("added shop/x")
		if n := testutil.ToFloat64(b.metrics.excluded.WithLabelValues("configmaps", "configmaps")); n != 2 {
			t.Errorf("%v objects counted as excluded, want 2", n)
		}
		if got := b.recorder.position(); got != rv {
			t.Errorf("position %s, want that of the excluded change %s", got, rv)
		}
	})
}

func TestAnObjectThatLeavesTheSelectionIsDeleted(t *testing.T) {
	r := selection(configMaps)
	r.LabelSelector = "app=shop"
	label := func(value string) func(map[string]any) {
		return func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"] = map[string]any{"app": value}
		}
	}
	inBubble(t, r, func(api *scriptedapi.Server) {
		twoObjects(api)
		api.Update(configMaps, "default", "a", label("shop"))
	}, func(b *bench) {
		b.expect("added default/a")
		b.api.Update(configMaps, "default", "b", label("shop"))
		b.api.Update(configMaps, "default", "a", label("other"))
		b.api.Update(configMaps, "default", "a", label("shop"))
		b.rest()
		deltas := b.recorder.deltas
		b.expect("added default/b", "deleted default/a", "added default/a")
		if id := deltas[1].ID(); id != deltas[1].Object.UID+"."+deltas[1].Object.ResourceVersion+".deleted" {
			t.Errorf("id %s of a deletion under a selector must have the version: it can happen again", id)
		}
	})
}

func TestASecretsValueIsGoneBeforeAnythingSeesIt(t *testing.T) {
	for _, treatment := range []config.Secrets{config.SecretsRedact, config.SecretsInclude} {
		t.Run(string(treatment), func(t *testing.T) {
			r := selection(secrets)
			r.Secrets, r.Data = treatment, config.DataChange
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, r, func(api *scriptedapi.Server) {
					setup(api)
					s := configMap("default", "s", map[string]any{"pw": "aHVudGVyMg=="})
					s["metadata"].(map[string]any)["annotations"] = map[string]any{
						"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"pw":"aHVudGVyMg=="}}`,
						"example.com/url": "https://me:hunter2@example.com/", "owner": "me",
					}
					api.Create(secrets, s)
				}, func(b *bench) {
					b.api.Update(secrets, "default", "s", setData("more", "aHVudGVyMg=="))
					b.api.Delete(secrets, "default", "s")
					b.rest()
					deltas := b.recorder.deltas
					b.expect("added default/s", "updated default/s", "deleted default/s")
					for _, d := range deltas {
						for _, o := range []*event.Object{d.Object, d.Old} {
							if o == nil {
								continue
							}
							leaked := strings.Contains(string(o.Body), "aHVudGVyMg==")
							if want := treatment == config.SecretsInclude; leaked != want {
								t.Errorf("%s: value there: %v, want %v: %s", d.Type, leaked, want, o.Body)
							}
							if leaked := strings.Contains(string(o.Body), "hunter2"); leaked != (treatment == config.SecretsInclude) {
								t.Errorf("%s: its copy in an annotation there: %v: %s", d.Type, leaked, o.Body)
							}
							if !strings.Contains(string(o.Body), `"owner":"me"`) {
								t.Errorf("%s: an annotation without a copy is gone: %s", d.Type, o.Body)
							}
							if strings.Contains(string(o.Body), "last-applied") {
								t.Errorf("%s: the last-applied annotation is there: %s", d.Type, o.Body)
							}
						}
					}
				})
			})
		})
	}
}

func TestAResourceThatIsNotThereYetIsWaitedFor(t *testing.T) {
	gadgets := schema.GroupVersionResource{Group: "late.dev", Version: "v1", Resource: "gadgets"}
	inBubble(t, selection(gadgets), nil, func(b *bench) {
		if err := b.informer.Err(); err == nil || !strings.Contains(err.Error(), "does not have gadgets.late.dev") {
			t.Errorf("Err = %v, want it to name the resource", err)
		}
		b.api.Register(gadgets, "Gadget", false)
		b.api.Create(gadgets, map[string]any{"metadata": map[string]any{"name": "g"}})
		b.rest()
		b.expect("added /g")
		if err := b.informer.Err(); err != nil {
			t.Errorf("Err = %v after the first list", err)
		}
	})
}

func TestADocumentThatCanNotBeReadIsCountedAndAskedForAgain(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.recorder.take()
		mangled := false
		b.api.MangleFrames(configMaps, func(frame []byte) []byte {
			if mangled {
				return frame
			}
			mangled = true
			return []byte(`{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":oops}}}` + "\n")
		})
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		b.rest()
		b.expect("updated default/a")
		if n := testutil.ToFloat64(b.metrics.errors.WithLabelValues("configmaps", "configmaps")); n < 1 {
			t.Errorf("no error was counted")
		}
	})
}

func TestFramesOverSeveralLinesAreRead(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.recorder.take()
		b.api.MangleFrames(configMaps, func(frame []byte) []byte {
			var out bytes.Buffer
			if err := json.Indent(&out, frame, "", "  "); err != nil {
				t.Errorf("indent: %v", err)
			}
			return out.Bytes()
		})
		b.api.CutWatches()
		b.rest()
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		b.api.Delete(configMaps, "default", "b")
		b.rest()
		b.expect("updated default/a", "deleted default/b")
	})
}

func TestASlowHandlerHoldsTheWatchBackAndLosesNothing(t *testing.T) {
	inBubble(t, selection(configMaps), func(api *scriptedapi.Server) {
		twoObjects(api)
		api.SetWatchBuffer(10)
		api.SetHistory(50)
	}, func(b *bench) {
		b.recorder.take()
		gate := make(chan struct{})
		b.recorder.mu.Lock()
		b.recorder.gate = gate
		b.recorder.mu.Unlock()
		for i := range 500 {
			b.api.Update(configMaps, "default", "a", setData("k", fmt.Sprint(i)))
			if i%100 == 0 {
				b.rest() // the server ends the slow watch
			}
		}
		b.api.Delete(configMaps, "default", "b")
		b.rest()
		if held := len(b.recorder.take()); held != 0 {
			t.Fatalf("%d deltas got past a handler that blocks", held)
		}
		close(gate)
		b.rest()
		deltas := b.recorder.deltas
		last := deltas[len(deltas)-1]
		if !slices.ContainsFunc(deltas, func(d event.Delta) bool { return d.Type == event.Deleted && d.Object.Name == "b" }) {
			t.Error("the delete of b is missing")
		}
		state := map[string]string{}
		for _, d := range deltas {
			state[d.Object.Name] = string(d.Object.Body)
		}
		if !strings.Contains(state["a"], `"k":"499"`) {
			t.Errorf("the last state of a is missing; last delta %s %s", last.Type, last.Object.Body)
		}
	})
}
