package informer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
)

func TestARestartGoesOnFromThePositionWithoutAList(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			var position string
			b.restart(func(known *Known) {
				position = known.Position
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.api.Delete(configMaps, "default", "b")
				b.api.Create(configMaps, configMap("default", "c", nil))
			})
			deltas := b.recorder.deltas
			b.expect("updated default/a", "deleted default/b", "added default/c")
			if deltas[0].Old == nil || deltas[1].Old == nil {
				t.Errorf("what was known is not the old object: %+v", deltas)
			}
			for _, r := range b.api.Requests() {
				switch {
				case r.GVR != configMaps || isComparison(&r):
				case r.Verb == scriptedapi.List && r.Query.Get("limit") != "1":
					t.Errorf("a list was asked for: %v", r.Query)
				case r.Verb == scriptedapi.Watch && (r.Query.Get("sendInitialEvents") != "" || r.Query.Get("resourceVersion") != position):
					t.Errorf("the watch began with %v, want version %s", r.Query, position)
				}
			}
			if n := b.allLists(); n != 0 {
				t.Errorf("%v lists were counted", n)
			}
			if len(b.recorder.lists) != 0 || slices.Contains(b.recorder.positions, "") {
				t.Errorf("the handler was told of the lists %q and the positions %q", b.recorder.lists, b.recorder.positions)
			}
			if err := b.informer.Err(); err != nil {
				t.Errorf("Err = %v", err)
			}
			if text := b.logs.String(); !strings.Contains(text, "msg=resumed resource=configmaps objects=2") || strings.Contains(text, "listed") {
				t.Errorf("the log says\n%s", text)
			}
			if n := testutil.ToFloat64(b.metrics.objects.WithLabelValues("configmaps", "configmaps")); n != 2 {
				t.Errorf("%v objects in the gauge, want 2", n)
			}
		})
	})
}

func TestARestartIntoAGapFindsExactlyTheDifferences(t *testing.T) {
	for _, g := range gaps {
		t.Run(g.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); manyObjects(api) }, func(b *bench) {
					var check func()
					b.restart(func(*Known) {
						check = missing(b)
						g.fault(b.api)
					})
					check()
					if b.lists(g.reason) < 1 || b.lists(listStart) != 0 {
						t.Errorf("lists: %v for reason %s, %v at the start", b.lists(g.reason), g.reason, b.lists(listStart))
					}
					if !slices.Equal(b.recorder.lists, []string{""}) {
						t.Errorf("the handler was told of the lists %q, want one without a snapshot", b.recorder.lists)
					}
				})
			})
		})
	}
}

func TestARestartAgainstAServerThatWentBackInTimeIsCompared(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			backup := b.api.Snapshot()
			b.api.Update(configMaps, "default", "a", setData("k", "lost"))
			b.api.Create(configMaps, configMap("default", "lost", nil))
			b.api.Delete(configMaps, "default", "b")
			b.rest()
			b.restart(func(*Known) { b.api.Restore(backup) })
			b.expectSet("updated default/a inferred", "deleted default/lost inferred", "added default/b inferred")
			if b.lists(listBehind) != 1 || b.allLists() != 1 {
				t.Errorf("%v lists, %v of them because the server was behind, want 1", b.allLists(), b.lists(listBehind))
			}
			b.api.Update(configMaps, "default", "a", setData("k", "new"))
			b.rest()
			b.expect("updated default/a")
		})
	})
}

func TestAServerThatWasAwayForLongIsNotListedAnew(t *testing.T) {
	for name, away := range map[string]func(b *bench){
		"during a restart": func(b *bench) {
			known := b.stop()
			b.api.Down()
			b.start(known, nil)
		},
		"after it": func(b *bench) {
			b.restart(nil)
			b.api.Down()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
				away(b)
				time.Sleep(10 * time.Minute)
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.api.FailNext(scriptedapi.List, configMaps, scriptedapi.Fail(500)) // it is not quite there yet
				b.api.Up()
				b.rest()
				b.expect("updated default/a")
				if n := b.allLists(); n != 0 {
					t.Errorf("%v lists, want the watch to go on", n)
				}
			})
		})
	}
}

func TestAResumptionThatFailsIsTriedAgain(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			b.restart(func(*Known) {
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.api.FailNext(scriptedapi.Watch, configMaps, scriptedapi.Fail(403))
			})
			b.expect("updated default/a")
			if b.allLists() != 0 {
				t.Errorf("%v lists, want none", b.allLists())
			}
		})
	})
}

func TestAStateWithoutAPositionIsComparedAtOnce(t *testing.T) {
	for _, position := range []string{"", "0"} {
		t.Run(fmt.Sprintf("%q", position), func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); manyObjects(api) }, func(b *bench) {
					var check func()
					b.restart(func(known *Known) {
						known.Position = position
						check = missing(b)
						b.api.Up()
					})
					if err := b.informer.Err(); err != nil {
						t.Errorf("Err = %v after the list", err)
					}
					if n := testutil.ToFloat64(b.metrics.synced.WithLabelValues("configmaps", "configmaps")); n != 1 {
						t.Errorf("kbridge_synced is %v after the list", n)
					}
					if !slices.Equal(b.recorder.lists, []string{""}) {
						t.Errorf("the handler was told of the lists %q, want one without a snapshot", b.recorder.lists)
					}
					if b.lists(listStart) != 1 || b.allLists() != 1 {
						t.Errorf("%v lists, %v of them at the start, want 1", b.allLists(), b.lists(listStart))
					}
					check()
				})
			})
		})
	}
}

// refuse forbids lists and watches of configmaps.
func refuse(r *scriptedapi.Request) *scriptedapi.Fault {
	if r.GVR != configMaps {
		return nil
	}
	f := scriptedapi.Fail(403)
	return &f
}

func TestWhatIsAwaitedIsToldWhereAStateHasNoPosition(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.restart(func(known *Known) {
			known.Position = ""
			b.api.OnRequest(refuse)
		})
		if err := b.informer.Err(); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("Err = %v, want the server's refusal", err)
		}
		b.api.OnRequest(nil)
		b.rest()
		b.expect()
		if err := b.informer.Err(); err != nil {
			t.Errorf("Err = %v", err)
		}
	})
}

func TestAFirstListThatWasCutShortGoesOnUnderItsSnapshot(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); manyObjects(api) }, func(b *bench) {
			b.restart(func(known *Known) {
				*known = Known{Snapshot: "s1", Objects: slices.DeleteFunc(known.Objects, func(o *event.Object) bool { return o.Name == "same" })}
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.api.Delete(configMaps, "default", "again")
			})
			deltas := b.recorder.deltas
			// What was announced is not announced again, and what has changed since is no part
			// of the snapshot any more.
			b.expectSet("added default/same", "updated default/a inferred", "deleted default/again inferred")
			for _, d := range deltas {
				if want := map[bool]string{true: "s1"}[d.Type == event.Added]; d.Snapshot != want {
					t.Errorf("%s %s is of snapshot %q, want %q", d.Type, d.Object.Name, d.Snapshot, want)
				}
			}
			if !slices.Equal(b.recorder.lists, []string{"s1"}) {
				t.Errorf("the handler was told of the lists %q, want one under the snapshot's id", b.recorder.lists)
			}
			if err := b.informer.Err(); err != nil {
				t.Errorf("Err = %v", err)
			}
			// It is a first list no longer.
			b.api.Down()
			b.api.Create(configMaps, configMap("default", "later", nil))
			b.api.Compact()
			b.api.Up()
			b.rest()
			b.expect("added default/later inferred")
		})
	})
}

func TestAnotherBodyForTheSameStateIsToldAndMakesNoDelta(t *testing.T) {
	replaced := func(o *event.Object, old, other string) *event.Object {
		changed := *o
		changed.Body = bytes.Replace(o.Body, []byte(old), []byte(other), 1)
		return &changed
	}
	inBubble(t, selection(configMaps), manyObjects, func(b *bench) {
		b.restart(func(known *Known) {
			known.Position = ""
			for i, o := range known.Objects {
				switch o.Name {
				case "a": // of another API version, and as long
					known.Objects[i] = replaced(o, `"apiVersion":"v1"`, `"apiVersion":"v0"`)
				case "b": // under other rules
					known.Objects[i] = replaced(o, `"metadata":{`, `"secret":"hunter2","metadata":{`)
				}
			}
		})
		b.expect()
		var names []string
		for _, o := range b.recorder.restated {
			names = append(names, o.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("restated are %q, want a and b", names)
		}
		index := b.views[0].Index
		size := 0
		for _, key := range index.Keys() {
			index.With(key, func(o *event.Object) {
				size += len(o.Body)
				if bytes.Contains(o.Body, []byte(`"v0"`)) || bytes.Contains(o.Body, []byte("hunter2")) {
					t.Errorf("the index still has %s", o.Body)
				}
			})
		}
		if got := testutil.ToFloat64(b.metrics.bytes.WithLabelValues("configmaps", "configmaps")); got != float64(size) {
			t.Errorf("%v bytes in the gauge, want %d", got, size)
		}
	})
}

func TestStoredSecretsAreScannedAgainAsTheirRulesLeftThem(t *testing.T) {
	const redacted, whole = `{"kind":"Secret","metadata":{"name":"s","annotations":{"copy":"hunter2","owner":"me"}},"data":{"pw":"cmVkYWN0ZWQ="}}`,
		`{"kind":"Secret","metadata":{"name":"s","annotations":{"copy":"hunter2","owner":"me"}},"data":{"pw":"aHVudGVyMg=="}}`
	inBubble(t, selection(secrets), nil, func(b *bench) {
		view := b.views[0]
		if !strings.HasPrefix(view.Rules, "2 redact=true ") {
			t.Errorf("the rules are called %q: bodies of those that compared nothing are not scanned again", view.Rules)
		}
		for _, c := range []struct{ name, rules, body, want string }{
			{"annotations that were not compared", "1 redact=true drop=[]", redacted, `"metadata":{"name":"s"}`},
			{"the same, with include meanwhile", "1 redact=false drop=[]", redacted, `"metadata":{"name":"s"}`},
			{"what was included", "1 redact=false drop=[]", whole, `"annotations":{"owner":"me"}`},
			{"annotations that were compared", "2 redact=true drop=[]", redacted, `"annotations":{"copy":"hunter2","owner":"me"}`},
		} {
			o := view.Rescan(c.rules, &event.Object{Name: "s", Body: []byte(c.body)})
			if body, err := o.JSON(); err != nil || !strings.Contains(string(body), c.want) || strings.Contains(string(body), "aHVudGVyMg==") {
				t.Errorf("%s: got %s, %v, want %s", c.name, body, err, c.want)
			}
		}
	})
	inBubble(t, selection(configMaps), nil, func(b *bench) {
		if !strings.HasPrefix(b.views[0].Rules, "1 redact=false ") {
			t.Errorf("the rules are called %q: all bodies would be scanned again for nothing", b.views[0].Rules)
		}
	})
}

func TestTheStoredListIsGivenUntilTheViewHasBegunWithIt(t *testing.T) {
	v := &view{handler: &recorder{}, health: newHealth(), onBegun: func(bool) {}}
	v.load(&Known{Listed: true, Position: "7"})
	lw := &listWatch{view: v}
	on := true
	for range 2 { // the Reflector may begin anew before it has handed over the list
		if _, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: &on}); !errors.Is(err, errResume) {
			t.Fatalf("the watch with initial events: %v", err)
		}
		list, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil || list.(*objectList).ResourceVersion != "7" || len(list.(*objectList).Items) != 0 {
			t.Fatalf("the list: %v, %v", list, err)
		}
	}
	if err := v.Replace(nil, "7"); err != nil || v.resume != "" || !v.begun {
		t.Errorf("after the list: %v, resume %q, begun %v", err, v.resume, v.begun)
	}
}

// expectCluster has the client watch for another cluster; the causes are told to it.
func (b *bench) expectCluster() (replaced *[]error) {
	replaced = &[]error{}
	b.client.Expect(b.api.ClusterUID(), func(err error) { *replaced = append(*replaced, err) })
	return replaced
}

func TestAnotherClusterIsNoticedBeforeAnythingOfItIsCompared(t *testing.T) {
	for name, begin := range map[string]func(b *bench){
		"at a watch": func(b *bench) { b.api.ReplaceCluster() },
		"at a list after a 410": func(b *bench) {
			b.api.CutWatches()
			b.api.FailNext(scriptedapi.Watch, configMaps, scriptedapi.ExpiredEvent())
			b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
				if r.Verb == scriptedapi.Watch && r.GVR == configMaps && r.Query.Get("sendInitialEvents") == "" {
					b.api.OnRequest(nil)
					b.api.ReplaceCluster()
					f := scriptedapi.Expired()
					return &f
				}
				return nil
			})
		},
		"at a restart": func(b *bench) { b.restart(func(*Known) { b.api.ReplaceCluster() }) },
		"at a restart without a position": func(b *bench) {
			b.restart(func(known *Known) { known.Position = ""; b.api.ReplaceCluster() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
					b.recorder.take()
					replaced := b.expectCluster()
					b.rest()
					begin(b)
					b.rest()
					b.expect()
					if len(*replaced) != 1 || !strings.Contains((*replaced)[0].Error(), "another cluster answers at http://kubernetes.test") {
						t.Errorf("told %v, want once that another cluster answers", *replaced)
					}
				})
			})
		})
	}
}

func TestAClusterThatMayNotBeAskedForItsIdentityIsTrusted(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		replaced := b.expectCluster()
		b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if r.Verb != scriptedapi.Get {
				return nil
			}
			f := scriptedapi.Fail(403)
			return &f
		})
		b.restart(func(*Known) { b.api.Update(configMaps, "default", "a", setData("k", "v")) })
		b.expect("updated default/a")
		if len(*replaced) != 0 {
			t.Errorf("told %v", *replaced)
		}
	})
}

func TestManyWatchesAskOnceWhoTheClusterIs(t *testing.T) {
	r := selection(configMaps)
	r.Namespaces = []string{"one", "two", "three"}
	inBubble(t, r, nil, func(b *bench) {
		b.expectCluster()
		b.api.ResetRequests()
		b.api.CutWatches()
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if n := b.api.Count(scriptedapi.Watch, configMaps); n != 3 {
			t.Fatalf("%d watches, want 3", n)
		}
		if n := b.api.Count(scriptedapi.Get, scriptedapi.Namespaces); n != 1 {
			t.Errorf("the cluster was asked %d times", n)
		}
	})
}

// walk is a snapshot that a handler was asked for.
type walk struct {
	id         string
	at         time.Duration // since the start
	concurrent bool
}

// walks records the snapshots that a recorder is asked for, which take so long.
func walks(found *[]walk, took time.Duration) func(*recorder) {
	return func(r *recorder) {
		began, running := time.Now(), 0
		r.snapshot = func(ctx context.Context, id string) error {
			r.mu.Lock()
			*found = append(*found, walk{id, time.Since(began).Truncate(time.Second), running > 0})
			running++
			r.mu.Unlock()
			defer func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				running--
			}()
			select {
			case <-time.After(took):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func TestASnapshotThatWasNotCompletedComesFirstAndThenOneAtATime(t *testing.T) {
	r := selection(configMaps)
	r.Namespaces, r.Resync, r.OnStart = []string{"one", "two"}, time.Minute, config.OnStartSnapshot
	inBubble(t, r, func(api *scriptedapi.Server) {
		api.Create(configMaps, configMap("one", "x", nil))
		api.Create(configMaps, configMap("two", "x", nil))
	}, func(b *bench) {
		known := b.stop()
		known.Again = map[string]string{recorded: "again"}
		var found []walk
		b.start(known, walks(&found, 10*time.Second))
		time.Sleep(2*time.Minute + 30*time.Second)
		synctest.Wait()
		var at []time.Duration
		ids := map[string]int{}
		for _, w := range found {
			if w.concurrent {
				t.Errorf("snapshot %s ran beside another", w.id)
			}
			at = append(at, w.at)
			ids[w.id]++
		}
		s := time.Second
		if want := []time.Duration{0, 10 * s, 80 * s, 90 * s, 140 * s, 150 * s}; !slices.Equal(at, want) {
			t.Errorf("snapshots at %v, want %v", at, want)
		}
		if ids["again"] != 2 || len(ids) != len(found)-1 {
			t.Errorf("ids %v: want the one that was not completed for each namespace, and then different ones", ids)
		}
	})
}

func TestAStartBeginsASnapshotOnlyWhereItIsAskedToAndResumes(t *testing.T) {
	for _, c := range []struct {
		onStart config.OnStart
		change  func(*Known)
		want    int
	}{
		{config.OnStartResume, nil, 0},
		{config.OnStartSnapshot, nil, 1},
		{config.OnStartSnapshot, func(k *Known) { k.Position = "" }, 1},
		{config.OnStartSnapshot, func(k *Known) { *k = Known{} }, 0}, // its first list is one
	} {
		r := selection(configMaps)
		r.OnStart = c.onStart
		inBubble(t, r, twoObjects, func(b *bench) {
			known := b.stop()
			if c.change != nil {
				c.change(known)
			}
			var found []walk
			b.start(known, walks(&found, 0))
			b.rest()
			if len(found) != c.want {
				t.Errorf("%s: snapshots %v, want %d", c.onStart, found, c.want)
			}
		})
	}
}

func TestNoSnapshotBeginsBeforeTheFirstListHasEnded(t *testing.T) {
	r := selection(configMaps)
	r.Resync = time.Minute
	inBubble(t, r, twoObjects, func(b *bench) {
		b.stop()
		b.api.OnRequest(refuse)
		var found []walk
		b.start(nil, walks(&found, 0))
		time.Sleep(10*time.Minute + 30*time.Second)
		synctest.Wait()
		if len(found) != 0 {
			t.Fatalf("snapshots %v of what is not known: they say that nothing is there", found)
		}
		b.api.OnRequest(nil)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if len(found) < 2 {
			t.Errorf("snapshots %v after the list, want one a minute", found)
		}
	})
}

func TestASnapshotEndsWithTheInformer(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		known := b.stop()
		known.Again = map[string]string{recorded: "again"}
		var found []walk
		b.start(known, walks(&found, 1000*time.Hour))
		b.rest()
		began := time.Now()
		b.stop()
		if len(found) != 1 || time.Since(began) > time.Second {
			t.Errorf("snapshots %v; the stop took %s", found, time.Since(began))
		}
	})
}

func TestTheIndexHasNoStateBeforeTheHandlerHasItsDelta(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.recorder.take()
		gate := make(chan struct{})
		b.recorder.mu.Lock()
		b.recorder.gate = gate
		b.recorder.mu.Unlock()
		version := b.api.Update(configMaps, "default", "a", setData("k", "v"))
		b.rest() // the handler holds the delta
		type seen struct {
			version string
			deltas  int
		}
		got := make(chan seen, 1)
		go b.views[0].Index.With("default/a", func(o *event.Object) {
			b.recorder.mu.Lock()
			defer b.recorder.mu.Unlock()
			got <- seen{o.ResourceVersion, len(b.recorder.deltas)}
		})
		for range 1000 {
			runtime.Gosched() // it waits for a mutex, which virtual time does not know of
		}
		close(gate)
		if s := <-got; s.version != version || s.deltas != 1 {
			t.Errorf("the index had version %s when %d deltas were handed over, want %s after 1", s.version, s.deltas, version)
		}
		b.views[0].Index.With("default/unknown", func(o *event.Object) {
			if o != nil {
				t.Errorf("the index has %v", o)
			}
		})
	})
}

func TestAStopDoesNotDeadlockWhileADeltaWaitsAndASnapshotReads(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		known := b.stop()
		reading := make(chan struct{})
		var walked error
		known.Again = map[string]string{recorded: "again"}
		b.start(known, func(r *recorder) {
			r.gate = make(chan struct{})
			r.snapshot = func(ctx context.Context, _ string) error {
				<-reading
				b.views[0].Index.Keys()
				walked = ctx.Err()
				return walked
			}
		})
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		b.rest()
		close(reading)
		b.stopRead() // the delta still waits: what was read is delivered
		select {
		case <-b.ended:
			t.Fatal("Run ended while a delta that was read waited for room")
		default:
		}
		b.stop() // nobody takes deltas any more
		if !errors.Is(walked, context.Canceled) {
			t.Errorf("the snapshot ended with %v", walked)
		}
		if len(b.recorder.deltas) != 0 {
			t.Errorf("deltas %v", b.recorder.take())
		}
	})
}

func TestAHandlerThatCanNotBeMadeEndsRunWithNothingLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := scriptedapi.New()
		defer api.Close()
		api.Register(configMaps, "ConfigMap", true)
		client, err := NewClient(api.Config(), 1000, 1000, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		r := selection(configMaps)
		r.Namespaces = []string{"one", "two"}
		cause := errors.New("the state can not be read")
		i, err := New(Options{
			Client: client, Resource: r, Entry: r.Entry(), Delivery: t.Context(), Metrics: NewMetrics(prometheus.NewRegistry()),
			Log: slog.New(slog.DiscardHandler),
			Handler: func(v View) (Handler, *Known, error) {
				if v.Namespace == "two" {
					return nil, nil, cause
				}
				return &recorder{}, nil, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Run(t.Context()); !errors.Is(err, cause) || !strings.Contains(err.Error(), "resource configmaps: ") {
			t.Errorf("Run: %v", err)
		}
		if n := api.Watches(configMaps); n != 0 {
			t.Errorf("%d watches are open", n)
		}
	})
}
