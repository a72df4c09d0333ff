package test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

var (
	roles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

// grantConfigMaps lets the user kbridge list and watch the configmaps of a namespace.
func grantConfigMaps(t *testing.T, cluster *testcluster.Cluster, ns string) {
	t.Helper()
	apply := func(gvr schema.GroupVersionResource, kind string, fields map[string]any) {
		t.Helper()
		o := object("rbac.authorization.k8s.io/v1", kind, ns, "watcher", fields)
		if _, err := cluster.Dynamic(t).Resource(gvr).Namespace(ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	apply(roles, "Role", map[string]any{
		"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list", "watch"}}},
	})
	apply(roleBindings, "RoleBinding", map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "watcher"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "kbridge"}},
	})
}

func TestPermissionsThatAreRevokedAndGivenBackAreTold(t *testing.T) {
	cluster := testcluster.New(t, func(o *testcluster.Options) {
		o.Users = []testcluster.User{{Name: "kbridge", Token: "kbridge-token"}}
	})
	client := cluster.Dynamic(t)
	ns := cluster.CreateNamespace(t)
	grant := func() { grantConfigMaps(t, cluster, ns) }
	create := func(name string) {
		t.Helper()
		if _, err := client.Resource(configMaps).Namespace(ns).Create(t.Context(), object("v1", "ConfigMap", ns, name, nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	grant()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, cluster.UserConfig("kbridge-token")); err != nil {
		t.Fatal(err)
	}
	server := natsserver.New(t, "")
	p := prepare(t, kubeconfig, configMapsOf(ns)+natsSink(server, ""))
	p.again()
	p.ready()
	create("before")

	if err := client.Resource(roleBindings).Namespace(ns).Delete(t.Context(), "watcher", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	restartAPIServer(t, cluster) // watches that are open go on without permission, for up to ten minutes
	down := func(reason string) func() error {
		return func() error {
			if n := p.metric("kbridge_watches_down", `entry="configmaps"`, `reason="`+reason+`"`); n != 1 {
				return fmt.Errorf("%v watches are down", n)
			}
			return nil
		}
	}
	eventually(t, "a metric says that the watch is forbidden", down("forbidden"))
	create("meanwhile")
	eventually(t, "/readyz says so", func() error {
		body, err := p.get("/readyz")
		if err == nil || !strings.Contains(body, "resource configmaps: cannot watch in namespace "+ns+": ") || !strings.Contains(body, "forbidden") || !strings.Contains(body, ", since 20") {
			return errors.Join(err, errors.New(body))
		}
		return nil
	})
	if up := p.metric("kbridge_watch_up"); up != 0 {
		t.Errorf("kbridge_watch_up is %v", up)
	}
	grant()
	p.ready()
	want := serverState(t, client, configMaps, ns)
	eventually(t, "what was made meanwhile is told", func() error {
		return difference(replay(t, readStream(t, server)), want)
	})
	eventually(t, "the log says that it goes on", func() error {
		if !strings.Contains(p.logs.String(), `msg="watching again"`) {
			return errors.New("it does not")
		}
		return nil
	})
	if n := strings.Count(p.logs.String(), "reason=forbidden"); n != 1 {
		t.Errorf("the log says %d times that it is forbidden", n)
	}
	p.stop()
}

func TestACustomResourceThatMovesToAnotherVersionIsFollowed(t *testing.T) {
	cluster := testcluster.Shared(t)
	client := cluster.Dynamic(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	const group, plural = "moves.kbridge.dev", "gizmos"
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	version := func(name string, served, storage bool) any {
		return map[string]any{"name": name, "served": served, "storage": storage, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}
	}
	define := func(versions ...any) schema.GroupVersionResource {
		t.Helper()
		crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, map[string]any{"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": "Gizmo"}, "versions": versions,
		}})
		if _, err := client.Resource(crds).Apply(t.Context(), crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			t.Fatal(err)
		}
		gvr := schema.GroupVersionResource{Group: group, Version: versions[len(versions)-1].(map[string]any)["name"].(string), Resource: plural}
		eventually(t, "the version is served", func() error {
			_, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{Limit: 1})
			return err
		})
		return gvr
	}
	alpha := define(version("v1alpha1", true, true))
	for i := range 5 {
		if _, err := client.Resource(alpha).Namespace(ns).Create(t.Context(), object(group+"/v1alpha1", "Gizmo", ns, fmt.Sprint("g-", i), nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, cluster, fmt.Sprintf("\ncluster: test\nresources:\n  - {group: %s, resource: %s, namespaces: [%s]}\n", group, plural, ns)+stateIn(t.TempDir())+rawSink(server, ""))
	p.ready()
	holds(t, server, serverState(t, client, alpha, ns))

	stable := define(version("v1alpha1", false, false), version("v1", true, true))
	if err := client.Resource(stable).Namespace(ns).Delete(t.Context(), "g-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(stable).Namespace(ns).Create(t.Context(), object(group+"/v1", "Gizmo", ns, "g-5", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := serverState(t, client, stable, ns)
	holds(t, server, want)
	p.ready()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	told := map[string]int{}
	for _, e := range objects(events) {
		told[e.object()]++
		if e.short() == "deleted" {
			continue // it is seen on the old watch, or missing from the list of the new version
		}
		if got := strings.Contains(e.Source, "/v1/"); got != strings.HasSuffix(e.object(), "/g-5") {
			t.Errorf("%s %s is of %s", e.short(), e.object(), e.Source)
		}
	}
	for name, n := range told {
		if want := map[bool]int{true: 2, false: 1}[strings.HasSuffix(name, "/g-0")]; n != want {
			t.Errorf("%s was told %d times", name, n)
		}
	}
	// A restart knows it.
	p.stop()
	p.again()
	p.ready()
	if after := readStream(t, server); len(after) != len(events) {
		t.Errorf("a restart tells %d events more", len(after)-len(events))
	}
	p.stop()
}

func TestManyNamespacesHaveOneWatchWhereThatIsAllowed(t *testing.T) {
	cluster := testcluster.New(t, func(o *testcluster.Options) {
		o.Users = []testcluster.User{{Name: "kbridge", Token: "kbridge-token"}}
	})
	client := cluster.Dynamic(t)
	server := natsserver.New(t, "")
	namespaces := make([]string, config.ManyNamespaces+2)
	for i := range namespaces {
		namespaces[i] = cluster.CreateNamespace(t)
	}
	create := func(ns, name string) {
		t.Helper()
		if _, err := client.Resource(configMaps).Namespace(ns).Create(t.Context(), object("v1", "ConfigMap", ns, name, nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(ns, name string) {
		t.Helper()
		if err := client.Resource(configMaps).Namespace(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	last, other := namespaces[len(namespaces)-1], namespaces[len(namespaces)-2]
	for _, ns := range []string{namespaces[0], namespaces[1], last, other} {
		create(ns, "a")
		create(ns, "b")
	}
	dir := t.TempDir()
	p := start(t, cluster, configMapsOf(namespaces[:len(namespaces)-1]...)+stateIn(dir)+rawSink(server, ""))
	p.ready()
	told := func(from int) (lines []string) {
		t.Helper()
		for _, e := range objects(readStream(t, server))[from:] {
			lines = append(lines, fmt.Sprint(e.short(), " ", e.Namespace, "/", e.Name, map[bool]string{true: " inferred"}[e.Inferred]))
		}
		slices.Sort(lines)
		return lines
	}
	expect := func(when string, from int, want ...string) {
		t.Helper()
		slices.Sort(want)
		eventually(t, "the events "+when, func() error {
			if got := told(from); !slices.Equal(got, want) {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
	if !strings.Contains(p.logs.String(), `msg="one watch of all namespaces serves the entry's"`) {
		t.Error("it is not said that there is one watch")
	}
	if n := p.metric("kbridge_lists_total", `reason="start"`); n != 1 {
		t.Errorf("%v lists are made at the start", n)
	}
	create(last, "c") // of a namespace that is not selected
	create(namespaces[0], "c")
	var want []string
	for _, ns := range []string{namespaces[0], namespaces[1], other} {
		want = append(want, "added "+ns+"/a", "added "+ns+"/b")
	}
	want = append(want, "added "+namespaces[0]+"/c")
	expect("of the first run", 0, want...)
	p.stop()

	// Another list: one namespace has come, one has gone, and what has changed meanwhile is told.
	remove(namespaces[0], "a")
	p.configuration = configMapsOf(append(slices.Clone(namespaces[1:len(namespaces)-2]), namespaces[0], last)...) + stateIn(dir) + rawSink(server, "")
	p.again()
	p.ready()
	expect("of the second run", len(want), "deleted "+namespaces[0]+"/a inferred", "added "+last+"/a inferred", "added "+last+"/b inferred", "added "+last+"/c inferred")
	remove(other, "a") // of a namespace that is selected no more
	remove(last, "a")
	expect("while it runs", len(want)+4, "deleted "+last+"/a")
	p.stop()

	// Who may watch single namespaces watches single namespaces.
	for _, ns := range namespaces[1:] {
		grantConfigMaps(t, cluster, ns)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, cluster.UserConfig("kbridge-token")); err != nil {
		t.Fatal(err)
	}
	q := prepare(t, kubeconfig, configMapsOf(namespaces[1:]...)+"\nsinks: [{name: out, stdout: {}}]\n")
	q.again()
	q.ready()
	if n := q.metric("kbridge_lists_total", `reason="start"`); n != config.ManyNamespaces+1 {
		t.Errorf("%v lists are made at the start, want one for each namespace", n)
	}
	q.stop()
}
