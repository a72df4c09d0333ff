package chart

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// prometheusOperator is where the custom resources of Prometheus Operator are defined. The module is downloaded and not
// built; its checksum is what go.sum would have.
const (
	prometheusOperator         = "github.com/prometheus-operator/prometheus-operator@v0.88.0"
	prometheusOperatorChecksum = "h1:3T/dCQdk7CUVRqVfwRHoC5g66fC/ML6XQQLtQVL6Q5o="
)

// TestAnAPIServerTakesEachObject sends all that the cases make to an API server that is strict about fields and keeps
// nothing, as kubectl apply --dry-run=server --validate=strict does.
func TestAnAPIServerTakesEachObject(t *testing.T) {
	cluster := testcluster.Shared(t)
	definePrometheusOperator(t, cluster)
	for _, namespace := range []string{"obs", "monitoring", "shop", "billing"} {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": namespace, "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
		}}}
		if _, err := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			for _, o := range objects(t, values) {
				mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
				if err != nil {
					t.Errorf("%s: %v", o.GetKind(), err)
					continue
				}
				client := cluster.Dynamic(t).Resource(mapping.Resource).Namespace(o.GetNamespace())
				if mapping.Scope.Name() == meta.RESTScopeNameRoot && o.GetNamespace() != "" {
					t.Errorf("%s %s is of no namespace, and names one", o.GetKind(), o.GetName())
				}
				if _, err := client.Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// definePrometheusOperator defines the custom resources that the chart may make.
func definePrometheusOperator(t *testing.T, cluster *testcluster.Cluster) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", prometheusOperator).Output()
	if err != nil {
		t.Fatalf("download the definitions of Prometheus Operator: %v\n%s", err, out)
	}
	var module struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	if module.Sum != prometheusOperatorChecksum {
		t.Fatalf("%s has the checksum %s, want %s", prometheusOperator, module.Sum, prometheusOperatorChecksum)
	}
	crds := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, name := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		data, err := os.ReadFile(filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			t.Fatal(err)
		}
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		resource := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: name})
		if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := resource.List(ctx, metav1.ListOptions{})
			return err == nil, nil
		}); err != nil {
			t.Fatalf("%s are not served: %v", name, err)
		}
	}
}
