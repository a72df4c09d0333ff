package chart

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/internal/testhelm"
)

// folder is the chart.
const folder = "../../deploy/helm/kbridge"

var update = flag.Bool("update", false, "write what is generated: values.schema.json, the table in README.md, the golden files")

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m, dualStack).Run()) }

// dualStack gives Services addresses of both kinds.
func dualStack(o *testcluster.Options) {
	o.ExtraArgs = append(o.ExtraArgs, "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112")
}

var helm = sync.OnceValues(func() (string, error) { return testhelm.Path(context.Background(), os.Stderr) })

// run runs Helm with values, away from the settings of whoever runs the test.
func run(t *testing.T, values string, args ...string) (stdout string, err error) {
	t.Helper()
	path, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append(args, "--values", "-")...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(values), &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w\n%s%s", args[0], err, out.String(), problems.String())
	}
	return out.String(), nil
}

// render returns what the chart makes of the values in the release kbridge of the namespace obs.
func render(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	return run(t, values, append([]string{"template", "kbridge", folder, "--namespace", "obs"}, args...)...)
}

// objects returns the objects that the chart makes.
func objects(t *testing.T, values string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	text, err := render(t, values, args...)
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, text)
}

func parseObjects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(strings.TrimPrefix(doc, "---\n")), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if len(o.Object) > 0 {
			list = append(list, o)
		}
	}
	return list
}

// find returns the one object of a kind, as the type T has it.
func find[T any](t *testing.T, list []*unstructured.Unstructured, kind string) T {
	t.Helper()
	var found []T
	for _, o := range list {
		if o.GetKind() == kind {
			found = append(found, convert[T](t, o))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s, want one", len(found), kind)
	}
	return found[0]
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

// withoutHooks is objects without what only looks before and after an installation.
func withoutHooks(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(objects(t, values), func(o *unstructured.Unstructured) bool {
		return o.GetAnnotations()["helm.sh/hook"] != ""
	})
}
