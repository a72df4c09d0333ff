package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// withoutWatchList is an API server as there are still many: it lists for those who
// want to begin, so that both verbs are needed at once.
func withoutWatchList(o *testcluster.Options) {
	o.ExtraArgs = append(o.ExtraArgs, "--feature-gates=WatchList=false")
}

func TestTheRolesThatRbacPrintsAreEnoughAndNoPartOfThemIsTooMuch(t *testing.T) {
	cluster := testcluster.New(t, withoutWatchList)
	a, b := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	file := writeConfig(t, fmt.Sprintf(`
resources:
  - {resource: pods, excludeNamespaces: [%[1]s]}
  - {resource: pods, namespaces: [%[1]s]}
  - {group: apps, resource: deployments, namespaces: [%[1]s]}
  - {resource: secrets, namespaces: [%[1]s, %[2]s]}
sinks: [{name: out, stdout: {}}]
server: {address: '127.0.0.1:0'}
`, a, b))

	t.Run("all of them", func(t *testing.T) {
		account := newAccount(t, cluster)
		for _, o := range account.roles(t, file) {
			account.create(t, o)
		}
		account.runs(t, file, isReady)
	})
	t.Run("a part of them that is granted later", func(t *testing.T) {
		account := newAccount(t, cluster)
		roles := account.roles(t, file)
		whole := roles[0].DeepCopy()
		for _, w := range weaker(t, whole) {
			if w.missing == `cannot watch resource "pods" in API group ""` {
				roles[0].Object["rules"] = w.rules
			}
		}
		for _, o := range roles {
			account.create(t, o)
		}
		granted := false
		account.runs(t, file, func(answer string) bool {
			if !granted && strings.Contains(answer, `cannot watch resource "pods"`) {
				clusterRoles := cluster.Dynamic(t).Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles"))
				if _, err := clusterRoles.Update(t.Context(), whole, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				granted = true
			}
			return granted
		}, isReady)
	})
	tried := 0
	// Each part that can be left out: a verb for a resource in a role.
	for i, o := range newAccount(t, cluster).roles(t, file) {
		for _, left := range weaker(t, o) {
			tried++
			t.Run(left.missing+left.where, func(t *testing.T) {
				account := newAccount(t, cluster)
				for j, o := range account.roles(t, file) {
					if j == i {
						o.Object["rules"] = left.rules
					}
					account.create(t, o)
				}
				account.runs(t, file, left.isAllThatIsMissing)
			})
		}
	}
	if tried != 9 { // list and watch on pods, deployments and twice on secrets, and get on kube-system
		t.Errorf("%d parts were left out, want 9", tried)
	}
}

func isReady(answer string) bool { return answer == "ok\n" }

// account is a service account of its own namespace.
type account struct {
	cluster   *testcluster.Cluster
	namespace string
}

func newAccount(t *testing.T, cluster *testcluster.Cluster) account {
	t.Helper()
	a := account{cluster, cluster.CreateNamespace(t)}
	a.create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "kbridge", "namespace": a.namespace},
	}})
	return a
}

// roles are the objects that `kbridge rbac` prints for the account.
func (a account) roles(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	var out, log bytes.Buffer
	if code := execute(t.Context(), []string{"rbac", "--config", file, "--namespace", a.namespace}, &out, &log); code != 0 {
		t.Fatalf("exit code %d: %s", code, log.String())
	}
	var objects []*unstructured.Unstructured
	for doc := range strings.SplitSeq(out.String(), "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
}

func (a account) create(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	gvk := o.GroupVersionKind()
	gvr := schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"}
	if _, err := a.cluster.Dynamic(t).Resource(gvr).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig is the file with which a client is the account.
func (a account) kubeconfig(t *testing.T) string {
	t.Helper()
	client, err := clientcorev1.NewForConfig(a.cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	token, err := client.ServiceAccounts(a.namespace).CreateToken(t.Context(), "kbridge", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(kubeconfig, a.cluster.UserConfig(token.Status.Token)); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// runs runs kbridge as the account until /readyz has answered as it should, in each of
// the ways in turn.
func (a account) runs(t *testing.T, file string, should ...func(answer string) bool) {
	t.Helper()
	kubeconfig := a.kubeconfig(t)
	r := start(t, "run", "--config", file, "--kubeconfig", kubeconfig, "--data-dir", t.TempDir())
	defer r.end(t)
	r.log.waitFor(t, "serving metrics and health")
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(r.log.String())[1]
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		body := get(t, "http://"+address+"/readyz")
		if should[0](body) {
			if should = should[1:]; len(should) == 0 {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz says:\n%s\n%s", body, r.log.String())
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// weakened are the rules of a role without a part of them.
type weakened struct {
	rules          []any
	missing, where string // how the API server names the part
}

// isAllThatIsMissing says that an answer names the part in each line, and at least once
// where it is missing: an entry for single namespaces may need what is granted for all.
func (w weakened) isAllThatIsMissing(answer string) bool {
	for line := range strings.Lines(answer) {
		if line != "starting\n" && !strings.Contains(line, w.missing) {
			return false
		}
	}
	return strings.Contains(answer, w.missing+w.where)
}

// weaker returns each way to take one verb for one resource away from a role. It is
// empty for a binding.
func weaker(t *testing.T, o *unstructured.Unstructured) []weakened {
	t.Helper()
	var role rbacv1.Role
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		t.Fatal(err)
	}
	// A rule for each part.
	var parts []rbacv1.PolicyRule
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				part := rule.DeepCopy()
				part.Resources, part.Verbs = []string{resource}, []string{verb}
				parts = append(parts, *part)
			}
		}
	}
	var all []weakened
	for i, part := range parts {
		w := weakened{missing: fmt.Sprintf("cannot %s resource %q in API group %q", part.Verbs[0], part.Resources[0], part.APIGroups[0])}
		switch {
		case len(part.ResourceNames) > 0:
			w.where = fmt.Sprintf(" in the namespace %q", part.ResourceNames[0])
		case role.Namespace != "":
			w.where = fmt.Sprintf(" in the namespace %q", role.Namespace)
		default:
			w.where = " at the cluster scope"
		}
		for _, rest := range slices.Delete(slices.Clone(parts), i, i+1) {
			rule, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rest)
			if err != nil {
				t.Fatal(err)
			}
			w.rules = append(w.rules, rule)
		}
		all = append(all, w)
	}
	return all
}
