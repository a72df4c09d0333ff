package scriptedapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

func TestAWatchDeliversEveryChangeSinceItsVersion(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		start := b.Version()
		v1 := b.Create(pods, NewObject("shop", "a"))
		uid := b.UID(pods, "shop", "a")
		b.Create(deploys, NewObject("shop", "other"))
		w := b.watch(metav1.ListOptions{ResourceVersion: start})
		defer w.Stop()
		synctest.Wait()
		v2 := b.Update(pods, "shop", "a", func(o map[string]any) { o["spec"] = map[string]any{"nodeName": "n1"} })
		v3 := b.Delete(pods, "shop", "a")
		v4 := b.Create(pods, NewObject("shop", "a"))
		wantEvents(t, w, "ADDED a@"+v1, "MODIFIED a@"+v2, "DELETED a@"+v3, "ADDED a@"+v4)
		if b.UID(pods, "shop", "a") == uid {
			t.Error("a recreated object has the uid of the old one")
		}
	})
}

func TestADeletedEventHasTheLastState(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, Parse(`{"metadata":{"namespace":"shop","name":"a"},"spec":{"nodeName":"n1"}}`))
		w := b.watch(metav1.ListOptions{ResourceVersion: b.Version()})
		defer w.Stop()
		synctest.Wait()
		v := b.Delete(pods, "shop", "a")
		o := (<-w.ResultChan()).Object.(*unstructured.Unstructured)
		if node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); node != "n1" || o.GetResourceVersion() != v {
			t.Errorf("deleted %v", o)
		}
	})
}

func TestLeavingASelectionIsADeletionWithTheStateBefore(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		label := func(v string) func(map[string]any) {
			return func(o map[string]any) { o["metadata"].(map[string]any)["labels"] = map[string]any{"app": v} }
		}
		b.Create(pods, NewObject("shop", "a", "app", "y"))
		b.Create(pods, NewObject("billing", "b", "app", "x"))
		w, err := b.client.Resource(pods).Namespace("shop").Watch(t.Context(),
			metav1.ListOptions{ResourceVersion: b.Version(), LabelSelector: "app=x"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		v1 := b.Update(pods, "shop", "a", label("x"))
		b.Update(pods, "billing", "b", nil)
		v2 := b.Update(pods, "shop", "a", nil)
		v3 := b.Update(pods, "shop", "a", label("y"))
		b.Update(pods, "shop", "a", nil)
		synctest.Wait()
		for _, want := range []string{"ADDED x " + v1, "MODIFIED x " + v2, "DELETED x " + v3} {
			e := <-w.ResultChan()
			o := e.Object.(*unstructured.Unstructured)
			if got := fmt.Sprint(e.Type, " ", o.GetLabels()["app"], " ", o.GetResourceVersion()); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		wantEvents(t, w)
	})
}

func TestAWatchListShowsTheObjectsThenABookmarkThenChanges(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		v1 := b.Create(pods, NewObject("shop", "a"))
		yes := true
		w := b.watch(metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		defer w.Stop()
		if e := <-w.ResultChan(); short(e) != "ADDED a@"+v1 {
			t.Errorf("first %s", short(e))
		}
		e := <-w.ResultChan()
		o := e.Object.(*unstructured.Unstructured)
		if short(e) != "BOOKMARK @"+v1 || o.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("second %s %v", short(e), o)
		}
		v2 := b.Update(pods, "shop", "a", nil)
		b.Create(deploys, NewObject("shop", "d"))
		v3 := b.Bookmark(pods)
		wantEvents(t, w, "MODIFIED a@"+v2, "BOOKMARK @"+v3)
	})
}

func TestAnOldServerRefusesAWatchListAndTheReflectorLists(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, NewObject("shop", "a"))
		m, stop := b.reflect()
		b.settles(m)
		if n := b.Count(List, pods); n != 0 {
			t.Errorf("%d lists with WatchList on", n)
		}
		stop()

		b.SetWatchList(false)
		yes := true
		_, err := b.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &yes,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		if !apierrors.IsInvalid(err) {
			t.Errorf("watch list: %v", err)
		}
		m, stop = b.reflect()
		defer stop()
		b.settles(m)
		if n := b.Count(List, pods); n != 1 {
			t.Errorf("%d lists with WatchList off", n)
		}
	})
}

func TestAWatchEndsCleanlyAtItsTimeout(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		seconds := int64(300)
		begin := time.Now()
		w := b.watch(metav1.ListOptions{ResourceVersion: b.Version(), TimeoutSeconds: &seconds})
		if e, ok := <-w.ResultChan(); ok {
			t.Errorf("event %v", e)
		}
		if d := time.Since(begin); d != 300*time.Second {
			t.Errorf("ended after %v", d)
		}
		if n := b.Watches(); n != 0 {
			t.Errorf("%d watches left", n)
		}
	})
}

func TestBookmarksComeByThemselvesOnlyWhereTheyAreAllowed(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.SetBookmarks(time.Minute)
		with := b.watch(metav1.ListOptions{ResourceVersion: b.Version(), AllowWatchBookmarks: true})
		without := b.watch(metav1.ListOptions{ResourceVersion: b.Version()})
		defer with.Stop()
		defer without.Stop()
		v := b.Advance(7)
		time.Sleep(time.Minute + time.Second)
		wantEvents(t, with, "BOOKMARK @"+v)
		wantEvents(t, without)
	})
}

func TestAWatchFromAForgottenVersionEndsIn410(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.SetHistory(2)
		v1 := b.Create(pods, NewObject("shop", "a"))
		v2 := b.Update(pods, "shop", "a", nil)
		v3 := b.Update(pods, "shop", "a", nil)
		w := b.watch(metav1.ListOptions{ResourceVersion: v1})
		defer w.Stop()
		wantEvents(t, w, "MODIFIED a@"+v2, "MODIFIED a@"+v3)
		b.Update(pods, "shop", "a", nil)

		old := b.watch(metav1.ListOptions{ResourceVersion: v1})
		e := <-old.ResultChan()
		if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) {
			t.Errorf("inside the stream: %v", err)
		}
		wantEvents(t, old, "END")
		b.SetExpiredAsHTTP(true)
		_, err := b.client.Resource(pods).Watch(t.Context(), metav1.ListOptions{ResourceVersion: v1})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("as HTTP: %v", err)
		}
	})
}

func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.SetWatchBuffer(10)
		b.Create(pods, NewObject("shop", "a"))
		w := b.watch(metav1.ListOptions{ResourceVersion: b.Version()})
		fill := func(o map[string]any) { o["data"] = strings.Repeat("x", 8192) } // more than a client's read buffer
		for range 9 {
			b.Update(pods, "shop", "a", fill)
			synctest.Wait()
		}
		if n := b.Watches(pods); n != 1 {
			t.Fatalf("%d watches with the buffer not yet full", n)
		}
		for range 10 {
			b.Update(pods, "shop", "a", fill)
			synctest.Wait()
		}
		if n := b.Watches(pods); n != 0 {
			t.Errorf("%d watches with the buffer full", n)
		}
		events, ended := drain(w)
		if !ended || len(events) > 10 {
			t.Errorf("%d events, ended: %v", len(events), ended)
		}
	})
}

func TestOpaqueVersionsOnlyCompareForEquality(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.SetOpaqueVersions(true)
		v1 := b.Create(pods, NewObject("shop", "a"))
		v2 := b.Update(pods, "shop", "a", nil)
		if _, err := resourceversion.CompareResourceVersion(v1, v2); err == nil {
			t.Errorf("%s and %s compare", v1, v2)
		}
		w := b.watch(metav1.ListOptions{ResourceVersion: v1})
		defer w.Stop()
		wantEvents(t, w, "MODIFIED a@"+v2)
	})
}

func TestAFrameMayHaveSeveralLines(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		frames := 0
		b.MangleFrames(pods, func(f []byte) []byte {
			frames += strings.Count(string(Pretty(f)), "\n")
			if !json.Valid(Pretty(f)) {
				t.Errorf("not JSON: %s", Pretty(f))
			}
			return Pretty(f)
		})
		w := b.watch(metav1.ListOptions{ResourceVersion: b.Version()})
		defer w.Stop()
		synctest.Wait()
		v := b.Create(pods, NewObject("shop", "a"))
		wantEvents(t, w, "ADDED a@"+v)
		if frames < 5 {
			t.Errorf("%d lines", frames)
		}
	})
}

func TestAnInformerRunsAndEndsInABubble(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		v1 := b.Create(pods, NewObject("shop", "a"))
		var seen []string
		note := func(what string, obj any) {
			seen = append(seen, what+" "+obj.(*unstructured.Unstructured).GetResourceVersion())
		}
		stop := make(chan struct{})
		f := dynamicinformer.NewDynamicSharedInformerFactory(b.client, 0)
		informer := f.ForResource(pods).Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { note("add", o) },
			UpdateFunc: func(_, o any) { note("update", o) },
			DeleteFunc: func(o any) { note("delete", o) },
		}); err != nil {
			t.Fatal(err)
		}
		f.Start(stop)
		f.WaitForCacheSync(stop)
		v2 := b.Update(pods, "shop", "a", nil)
		v3 := b.Delete(pods, "shop", "a")
		synctest.Wait()
		close(stop)
		f.Shutdown()
		if want := []string{"add " + v1, "update " + v2, "delete " + v3}; !slices.Equal(seen, want) {
			t.Errorf("seen %q, want %q", seen, want)
		}
	})
}

func TestAWatchListFromTheFutureIsAnErrorInTheStream(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		yes := true
		w := b.watch(metav1.ListOptions{SendInitialEvents: &yes, ResourceVersion: "99999",
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		wantEvents(t, w, "ERROR 504 Timeout", "END")
	})
}
