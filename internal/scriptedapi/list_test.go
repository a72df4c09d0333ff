package scriptedapi

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
)

func TestAListHasTheObjectsOfItsSelectionAndTheClustersVersion(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, NewObject("shop", "a", "app", "x"))
		b.Create(pods, NewObject("shop", "b", "app", "y"))
		b.Create(pods, NewObject("billing", "c", "app", "x"))
		b.Create(deploys, NewObject("shop", "d"))
		b.SetSelectableFields(pods, "spec.nodeName")
		b.Update(pods, "shop", "b", func(o map[string]any) { o["spec"] = map[string]any{"nodeName": "n1"} })

		l := b.mustList(metav1.ListOptions{})
		if names(l) != "c a b" || l.GetResourceVersion() != b.Version() || l.GetKind() != "PodList" {
			t.Errorf("list %q %q of %s", l.GetKind(), names(l), l.GetResourceVersion())
		}
		for sel, want := range map[metav1.ListOptions]string{
			{LabelSelector: "app=x"}:                       "c a",
			{LabelSelector: "app notin (x)"}:               "b",
			{FieldSelector: "metadata.name=a"}:             "a",
			{FieldSelector: "metadata.namespace!=shop"}:    "c",
			{FieldSelector: "spec.nodeName=n1"}:            "b",
			{LabelSelector: "app=x", ResourceVersion: "0"}: "c a",
		} {
			if got := names(b.mustList(sel)); got != want {
				t.Errorf("%v: %q, want %q", sel, got, want)
			}
		}
		one, err := b.client.Resource(pods).Namespace("billing").List(t.Context(), metav1.ListOptions{})
		if err != nil || names(one) != "c" {
			t.Errorf("namespace: %v, %v", one, err)
		}
		if _, err := b.list(metav1.ListOptions{FieldSelector: "spec.x=1"}); !apierrors.IsBadRequest(err) {
			t.Errorf("unknown field: %v", err)
		}
		if n := b.Count(List, pods); n != 9 {
			t.Errorf("%d lists recorded", n)
		}
	})
}

func TestOnlyItemsOfCustomResourcesCarryTheirType(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Create(pods, NewObject("shop", "a"))
		b.Create(widgets, NewObject("shop", "a"))
		if body := b.read("/api/v1/pods"); strings.Contains(body, `"kind":"Pod"`) || !strings.Contains(body, `"kind":"PodList"`) {
			t.Errorf("pods: %s", body)
		}
		if body := b.read("/apis/example.com/v1/namespaces/shop/widgets"); !strings.Contains(body, `"kind":"Widget"`) {
			t.Errorf("widgets: %s", body)
		}
	})
}

func TestPagesShowOneVersionUntilItIsForgotten(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		for _, n := range []string{"a", "b", "c", "d"} {
			b.Create(pods, NewObject("shop", n))
		}
		first := b.mustList(metav1.ListOptions{Limit: 2})
		if names(first) != "a b" || *first.GetRemainingItemCount() != 2 {
			t.Fatalf("first page %q", names(first))
		}
		b.Delete(pods, "shop", "c")
		b.Create(pods, NewObject("shop", "e"))

		second := b.mustList(metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
		if names(second) != "c d" || second.GetResourceVersion() != first.GetResourceVersion() || second.GetContinue() != "" {
			t.Errorf("second page %q of %s", names(second), second.GetResourceVersion())
		}
		b.Compact()
		_, err := b.list(metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("after compaction: %v", err)
		}
		again := err.(apierrors.APIStatus).Status().ListMeta.Continue
		if rest := b.mustList(metav1.ListOptions{Continue: again}); names(rest) != "d e" {
			t.Errorf("inconsistent continuation %q", names(rest))
		}
	})
}

func TestAVersionSaysHowOldAListMayBe(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		old := b.Create(pods, NewObject("shop", "a"))
		b.Create(pods, NewObject("shop", "b"))
		exact := metav1.ResourceVersionMatchExact
		for _, c := range []struct {
			opts metav1.ListOptions
			want string
		}{
			{metav1.ListOptions{ResourceVersion: old}, "a b"},
			{metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: exact}, "a"},
			{metav1.ListOptions{ResourceVersion: old, Limit: 10}, "a"},
			{metav1.ListOptions{ResourceVersion: "0", Limit: 1}, "a b"},
		} {
			if got := names(b.mustList(c.opts)); got != c.want {
				t.Errorf("%+v: %q, want %q", c.opts, got, c.want)
			}
		}
		b.SetZeroVersion(old)
		if l := b.mustList(metav1.ListOptions{ResourceVersion: "0"}); names(l) != "a" || l.GetResourceVersion() != old {
			t.Errorf("stale list %q of %s", names(l), l.GetResourceVersion())
		}
		_, err := b.list(metav1.ListOptions{ResourceVersion: "99999"})
		if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
			t.Errorf("from the future: %v", err)
		}
		_, err = b.list(metav1.ListOptions{ResourceVersion: "abc"})
		if !apierrors.IsInvalid(err) {
			t.Errorf("not a version: %v", err)
		}
		b.Compact()
		_, err = b.list(metav1.ListOptions{ResourceVersion: old, ResourceVersionMatch: exact})
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("exact and compacted: %v", err)
		}
	})
}

func TestDiscoveryShowsWhatIsRegistered(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		d, err := discovery.NewDiscoveryClientForConfig(b.Config())
		if err != nil {
			t.Fatal(err)
		}
		if v, err := d.ServerVersion(); err != nil || v.GitVersion == "" {
			t.Errorf("version %v, %v", v, err)
		}
		lists, err := d.ServerPreferredResources()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, l := range lists {
			for _, r := range l.APIResources {
				got[l.GroupVersion+"/"+r.Name] = r.Kind
			}
		}
		want := map[string]string{"v1/namespaces": "Namespace", "v1/pods": "Pod",
			"apps/v1/deployments": "Deployment", "example.com/v1/widgets": "Widget"}
		if len(got) != len(want) {
			t.Errorf("resources %v", got)
		}
		for k := range want {
			if got[k] != want[k] {
				t.Errorf("%s is %q", k, got[k])
			}
		}
		b.Unregister(widgets)
		if _, err := d.ServerResourcesForGroupVersion("example.com/v1"); !apierrors.IsNotFound(err) {
			t.Errorf("unregistered group: %v", err)
		}
	})
}

func TestOneObjectIsFoundOrIsNot(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		ns, err := b.client.Resource(Namespaces).Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil || string(ns.GetUID()) != b.ClusterUID() {
			t.Errorf("kube-system %v, %v", ns, err)
		}
		_, err = b.client.Resource(pods).Namespace("shop").Get(t.Context(), "a", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("no such pod: %v", err)
		}
	})
}

func TestPutKeepsTheIdentityOfAnObject(t *testing.T) {
	scripted(t, func(t *testing.T, b *bench) {
		b.Put(pods, NewObject("shop", "a"))
		uid := b.UID(pods, "shop", "a")
		v := b.Put(pods, NewObject("shop", "a", "app", "x"))
		o := unstructured.Unstructured{Object: b.Get(pods, "shop", "a")}
		if string(o.GetUID()) != uid || o.GetResourceVersion() != v || o.GetLabels()["app"] != "x" || metadata(o.Object)["creationTimestamp"] == nil {
			t.Errorf("object %v", o)
		}
		if b.Get(pods, "shop", "b") != nil {
			t.Error("an object that was never created")
		}
		if body := b.read("/readyz"); body != "ok" {
			t.Errorf("readyz: %s", body)
		}
		if body := b.read("/apis/apps"); !strings.Contains(body, `"preferredVersion":{"groupVersion":"apps/v1"`) {
			t.Errorf("group: %s", body)
		}
	})
}
