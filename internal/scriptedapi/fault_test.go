package scriptedapi

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

func TestErrorsAreWhatClientGoTakesThemFor(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			fault Fault
			is    func(error) bool
		}{
			{Fail(401), apierrors.IsUnauthorized},
			{Fail(403), apierrors.IsForbidden},
			{Fail(404), apierrors.IsNotFound},
			{Fail(500), apierrors.IsInternalError},
			{Fail(503), apierrors.IsServiceUnavailable},
			{Fail(504), apierrors.IsTimeout},
			{Expired(), apierrors.IsResourceExpired},
			{Throttle(0), apierrors.IsTooManyRequests},
		} {
			b.FailNext(List, pods, c.fault)
			if _, err := b.list(metav1.ListOptions{}); !c.is(err) {
				t.Errorf("list: %v", err)
			}
			b.FailNext(Watch, pods, c.fault)
			if _, err := b.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{}); !c.is(err) {
				t.Errorf("watch: %v", err)
			}
		}
		b.mustList(metav1.ListOptions{})
	})
}

func TestClientGoWaitsAsLongAsA429Says(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.FailNext(List, pods, Throttle(7*time.Second), Throttle(5*time.Second))
		begin := time.Now()
		b.mustList(metav1.ListOptions{})
		if d := time.Since(begin); d != 12*time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

func TestRefusedConnectionsLookAsIfNothingListened(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.mustList(metav1.ListOptions{})
		b.Refuse(2)
		for range 2 {
			_, err := b.list(metav1.ListOptions{})
			if !utilnet.IsConnectionRefused(err) || !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("refused: %v", err)
			}
		}
		b.mustList(metav1.ListOptions{})
		b.Down()
		if _, err := b.list(metav1.ListOptions{}); !utilnet.IsConnectionRefused(err) {
			t.Errorf("down: %v", err)
		}
		b.Up()
		b.mustList(metav1.ListOptions{})
	})
}

func TestAListMayBreakOffInItsBody(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, NewObject("shop", "a"))
		b.FailNext(List, pods, Fault{CutAfter: 50})
		if _, err := b.list(metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
			t.Errorf("cut list: %v", err)
		}
	})
}

func TestAnswersMayBeSlow(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		o := NewObject("shop", "a")
		o["data"] = strings.Repeat("x", 10*paceBytes)
		b.Create(pods, o)
		b.FailNext(List, pods, Fault{Delay: time.Minute, Pace: time.Second})
		begin := time.Now()
		b.mustList(metav1.ListOptions{})
		if d := time.Since(begin); d < 70*time.Second || d > 75*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestAHookSeesRequestsAndGoesBeforeTheQueue(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.FailNext("", schema.GroupVersionResource{}, Fail(500))
		b.OnRequest(func(req *Request) *Fault {
			if req.Verb == List && req.Namespace == "shop" {
				b.Create(pods, NewObject("shop", "a")) // a hook may change the cluster
				f := Fail(403)
				return &f
			}
			return nil
		})
		_, err := b.client.Resource(pods).Namespace("shop").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("hook: %v", err)
		}
		if _, err := b.list(metav1.ListOptions{}); !apierrors.IsInternalError(err) {
			t.Errorf("queue: %v", err)
		}
		b.FailNext(List, pods, Fault{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		})})
		if l := b.mustList(metav1.ListOptions{}); l.GetResourceVersion() != "7" {
			t.Errorf("handler: %v", l)
		}
	})
}

// Each of these happens to a Reflector that has synced, while a pod is updated, one deleted and one created.
func TestAReflectorComesThrough(t *testing.T) {
	change := func(b *bench) {
		b.Update(pods, "shop", "a", nil)
		b.Delete(pods, "shop", "b")
		b.Create(pods, NewObject("shop", "c"))
	}
	for name, happen := range map[string]func(b *bench){
		"nothing":         change,
		"cut watches":     func(b *bench) { b.CutWatches(); change(b) },
		"ended watches":   func(b *bench) { b.EndWatches(pods); change(b) },
		"cut in a frame":  func(b *bench) { b.CutInFrame(pods); change(b) },
		"restart":         func(b *bench) { b.Restart(); change(b) },
		"410 in a stream": func(b *bench) { b.SendError(pods, nil); change(b) },
		"410 as HTTP":     func(b *bench) { b.FailNext(Watch, pods, Expired()); b.CutWatches(); change(b) },
		"410 as an event": func(b *bench) { b.FailNext(Watch, pods, ExpiredEvent()); b.CutWatches(); change(b) },
		"compaction":      func(b *bench) { b.CutWatches(); change(b); b.Compact() },
		"refused":         func(b *bench) { b.Refuse(3); b.CutWatches(); change(b) },
		"down for long":   func(b *bench) { b.Down(); change(b); b.Compact(); time.Sleep(time.Minute); b.Up() },
		"another cluster": func(b *bench) { b.ReplaceCluster(); b.Create(pods, NewObject("shop", "z")); b.Compact() },
		"half a frame":    func(b *bench) { b.FailNext(Watch, pods, Fault{CutInFrame: 1}); b.CutWatches(); change(b) },
		"some bytes":      func(b *bench) { b.FailNext(Watch, pods, Fault{CutAfter: 700}); b.CutWatches(); change(b) },
		"no answer":       func(b *bench) { b.FailNext(Watch, pods, Fault{Drop: true}); b.CutWatches(); change(b) },
		"500 after a 410": func(b *bench) {
			b.SetWatchList(false)
			b.FailNext(List, pods, Fail(500), Fail(503))
			b.SendError(pods, nil)
			change(b)
		},
		"429 on the watch": func(b *bench) { b.FailNext(Watch, pods, Throttle(time.Second), Throttle(0)); b.CutWatches(); change(b) },
		"a broken frame": func(b *bench) {
			b.SendRaw(pods, []byte(`{"type":"MODIFIED","object":{"a":}}`+"\n"))
			change(b)
			b.CutWatches()
		},
		"pretty frames": func(b *bench) { b.MangleFrames(pods, Pretty); change(b) },
		"slow frames":   func(b *bench) { b.FailNext(Watch, pods, Fault{Pace: time.Second}); b.CutWatches(); change(b) },
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, b *bench) {
				b.Create(pods, NewObject("shop", "a"))
				b.Create(pods, NewObject("shop", "b"))
				m, stop := b.reflect()
				defer stop()
				b.settles(m)
				happen(b)
				b.settles(m)
				synctest.Wait()
				if n := b.Watches(pods); n != 1 {
					t.Errorf("%d watches", n)
				}
			})
		})
	}
}

func TestAWatchMayBeSilent(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		m, stop := b.reflect()
		defer stop()
		b.Silence(pods)
		b.Create(pods, NewObject("shop", "a"))
		b.Bookmark(pods)
		time.Sleep(3 * time.Minute)
		if m.state() != "map[]" {
			t.Errorf("a silent watch delivered %s", m.state())
		}
		time.Sleep(10 * time.Minute) // past the timeout that the Reflector asks for
		b.settles(m)
	})
}

func TestAnUnansweredRequestEndsWithItsClientOrTheServer(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.FailNext(List, pods, Fault{Hang: true}, Fault{Delay: time.Hour})
		results := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := b.list(metav1.ListOptions{})
				results <- err
			}()
		}
		time.Sleep(time.Minute)
		if len(results) != 0 {
			t.Errorf("answered: %v", <-results)
		}
		b.Close()
		if err := <-results; err == nil {
			t.Error("no error from a server that is closed")
		}
		<-results // the other one's, whatever it is
	})
}

func TestAfterARestoreVersionsAreGivenOutTwice(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, NewObject("shop", "a"))
		backup := b.Snapshot()
		again := b.Create(pods, NewObject("shop", "b"))
		future := b.Update(pods, "shop", "b", nil)
		before := b.UID(pods, "shop", "b")

		b.Restore(backup)
		if names(b.mustList(metav1.ListOptions{})) != "a" || b.ClusterUID() == "" {
			t.Error("not the old state")
		}
		w := b.watch(metav1.ListOptions{ResourceVersion: future, AllowWatchBookmarks: true})
		defer w.Stop()
		if v := b.Create(pods, NewObject("shop", "b")); v != again || b.UID(pods, "shop", "b") == before {
			t.Errorf("version %s, uid %s", v, b.UID(pods, "shop", "b"))
		}
		b.Bookmark(pods)
		b.Update(pods, "shop", "b", nil)
		wantEvents(t, w) // neither an error nor what happens up to that version
		v := b.Update(pods, "shop", "b", nil)
		wantEvents(t, w, "MODIFIED b@"+v)
	})
}

func TestAnotherClusterIsKnownByItsKubeSystem(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, NewObject("shop", "a"))
		w := b.watch(metav1.ListOptions{ResourceVersion: b.Version()})
		before := b.ClusterUID()
		b.ReplaceCluster()
		if b.ClusterUID() == before {
			t.Error("the same UID")
		}
		if n := len(b.mustList(metav1.ListOptions{}).Items); n != 0 {
			t.Errorf("%d pods", n)
		}
		wantEvents(t, w, "END")
	})
}

func TestACRDMayGoAndComeBack(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		ri := b.client.Resource(widgets)
		b.Create(widgets, NewObject("shop", "a"))
		w, err := ri.Watch(t.Context(), metav1.ListOptions{ResourceVersion: b.Version()})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.Unregister(widgets)
		wantEvents(t, w, "DELETED a@"+b.Version(), "END")
		if _, err := ri.List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("list: %v", err)
		}
		if _, err := ri.Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("watch: %v", err)
		}
		b.Register(widgets, "Widget", true)
		l, err := ri.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(l.Items) != 0 {
			t.Errorf("registered again: %v, %v", l, err)
		}
	})
}

func TestRequestsAreRecorded(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.mustList(metav1.ListOptions{Limit: 1})
		reqs := b.Requests()
		if len(reqs) != 1 || reqs[0].Path != "/api/v1/pods" || reqs[0].Query.Get("limit") != "1" || reqs[0].Method != http.MethodGet {
			t.Errorf("requests %+v", reqs)
		}
		b.ResetRequests()
		if b.Count(List, pods) != 0 {
			t.Error("not reset")
		}
	})
}

func TestAReflectorSeesWhatHappenedAndNoMore(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		v1 := b.Create(pods, NewObject("shop", "a"))
		m, stop := b.reflect()
		defer stop()
		v2 := b.Update(pods, "shop", "a", nil)
		synctest.Wait()
		b.CutWatches()
		v3 := b.Delete(pods, "shop", "a")
		b.settles(m)
		want := []string{"replace 1@" + v1, "update a@" + v2, "delete a@" + v3}
		if got := m.take(); !slices.Equal(got, want) {
			t.Errorf("calls\n got %q\nwant %q", got, want)
		}
		if n := b.Count(List, pods); n != 0 {
			t.Errorf("%d lists", n)
		}
	})
}
