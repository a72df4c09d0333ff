package testcluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

var fixture = testserver.Fixture[*Cluster]{
	Name: "test cluster", Package: "testcluster",
	TooLate: "; if the servers were being built, `make cluster` does it without a limit",
}

// New starts a cluster for one test, and stops it when the test has ended. A test that failed shows the end of the
// servers' logs. It never skips: without a cluster the test fails.
func New(t testing.TB, opts ...func(*Options)) *Cluster {
	t.Helper()
	return fixture.New(t, startWith(opts))
}

// TestingM is a *testing.M, or something that runs it.
type TestingM = testserver.TestingM

// Main lets the tests of a package share one cluster, which starts with the first call of Shared, and stops after the
// last test. It goes into TestMain, with or without goleak:
//
//	func TestMain(m *testing.M) { os.Exit(testcluster.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testcluster.Main(m)) }
func Main(m TestingM, opts ...func(*Options)) TestingM { return fixture.Main(m, startWith(opts)) }

// Shared returns the cluster that the package's tests share; both its servers run. Main must be in TestMain. A test
// keeps to namespaces and API groups of its own, and one that stops a server uses New.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	return fixture.Shared(t)
}

func startWith(opts []func(*Options)) func(context.Context) (*Cluster, error) {
	return func(ctx context.Context) (*Cluster, error) {
		var o Options
		for _, opt := range opts {
			opt(&o)
		}
		return Start(ctx, o)
	}
}

// Dynamic returns an administrator's client for any resource.
func (c *Cluster) Dynamic(t testing.TB) *dynamic.DynamicClient {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatalf("create a dynamic client: %v", err)
	}
	return client
}

// CreateNamespace makes a namespace with a name of its own and returns the name. It stays until the cluster stops:
// nothing in this cluster would empty it.
func (c *Cluster) CreateNamespace(t testing.TB) string {
	t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": "test-"},
	}}
	made, err := c.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	return made.GetName()
}

// CRDScope says whether the objects of a custom resource have a namespace.
type CRDScope string

// The two scopes, as the API server spells them.
const (
	Namespaced    CRDScope = "Namespaced"
	ClusterScoped CRDScope = "Cluster"
)

// ApplyCRD defines a custom resource, version v1, whose objects may have any fields, and waits until the API server
// serves it and its discovery lists it. Applying the same again changes nothing.
func (c *Cluster) ApplyCRD(t testing.TB, group, plural, kind string, scope CRDScope) schema.GroupVersionResource {
	t.Helper()
	name := plural + "." + group
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": name},
		"spec": map[string]any{
			"group": group,
			"scope": string(scope),
			"names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "x-kubernetes-preserve-unknown-fields": true,
				}},
			}},
		},
	}}
	client := c.Dynamic(t)
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Resource(crds).Apply(t.Context(), name, crd, metav1.ApplyOptions{FieldManager: "testcluster", Force: true}); err != nil {
		t.Fatalf("apply the custom resource %s: %v", name, err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		t.Fatalf("create a discovery client: %v", err)
	}
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
	var last error
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		if _, last = client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); last != nil {
			return false, nil
		}
		last = discovered(disco, gvr)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("wait until the custom resource %s is served: %v; the last answer: %v", name, err, last)
	}
	return gvr
}

func discovered(disco *discovery.DiscoveryClient, gvr schema.GroupVersionResource) error {
	_, lists, err := disco.ServerGroupsAndResources()
	for _, list := range lists {
		if list.GroupVersion != gvr.GroupVersion().String() {
			continue
		}
		for _, r := range list.APIResources {
			if r.Name == gvr.Resource {
				return nil
			}
		}
	}
	return fmt.Errorf("discovery does not list %s (its own error: %w)", gvr, err)
}
