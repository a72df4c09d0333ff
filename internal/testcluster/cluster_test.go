package testcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kbridge-io/kbridge/internal/testbuild"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

const readerToken = "reader-token"

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) != "" {
		startAndHang()
	}
	goleak.VerifyTestMain(Main(m, func(o *Options) {
		o.Users = []User{{Name: "reader", Token: readerToken, Groups: []string{"readers", "staff"}}}
	}))
}

func TestTheServerTellsTheVersionOfTheToolModule(t *testing.T) {
	c := Shared(t)
	v, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config()).ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	module, err := testbuild.FindModule("cluster")
	if err != nil {
		t.Fatal(err)
	}
	want, err := readVersions(module)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(assetsVariable) != "" {
		t.Logf("the servers of %s are %s", assetsVariable, v.GitVersion)
	} else if v.GitVersion != want.kubernetes {
		t.Errorf("the server says %q, test/cluster/go.mod says %q", v.GitVersion, want.kubernetes)
	}
	if v.Major == "" || v.Minor == "" {
		t.Errorf("no major or minor version in %+v", v)
	}
}

func TestTheKubeconfigFileLogsTheAdministratorIn(t *testing.T) {
	c := Shared(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if got := whoAmI(t, dynamic.NewForConfigOrDie(cfg)); got != "admin [system:masters system:authenticated]" {
		t.Errorf("logged in as %s", got)
	}
}

func TestAUserMayDoNothingUntilRBACSaysSo(t *testing.T) {
	c := Shared(t)
	ns := c.CreateNamespace(t)
	user := dynamic.NewForConfigOrDie(c.UserConfig(readerToken))
	if got := whoAmI(t, user); got != "reader [readers staff system:authenticated]" {
		t.Errorf("logged in as %s", got)
	}
	if _, err := user.Resource(configMaps).Namespace(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("listing without a role: %v, want Forbidden", err)
	}
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	role := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
		"metadata": map[string]any{"name": "list-configmaps"},
		"rules":    []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}, "verbs": []any{"list"}}},
	}}
	if _, err := c.Dynamic(t).Resource(roles).Namespace(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"name": "readers"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "list-configmaps"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}},
	}}
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	if _, err := c.Dynamic(t).Resource(bindings).Namespace(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The server's authorizer reads roles through a watch, and so learns of this one a little later.
	eventually(t, "the user may list", func() error {
		_, err := user.Resource(configMaps).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := user.Resource(configMaps).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing all namespaces: %v, want Forbidden", err)
	}
}

func TestAnAppliedCustomResourceIsServedAndDiscoveredAtOnce(t *testing.T) {
	c := Shared(t)
	gvr := c.ApplyCRD(t, "widgets.example.com", "gears", "Gear", Namespaced)
	ns := c.CreateNamespace(t)
	gear := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "widgets.example.com/v1", "kind": "Gear",
		"metadata": map[string]any{"name": "g"}, "anything": map[string]any{"teeth": int64(12)},
	}}
	made, err := c.Dynamic(t).Resource(gvr).Namespace(ns).Create(t.Context(), gear, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if teeth, _, _ := unstructured.NestedInt64(made.Object, "anything", "teeth"); teeth != 12 {
		t.Errorf("the server dropped an unknown field: %v", made.Object)
	}
	list, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config()).ServerResourcesForGroupVersion("widgets.example.com/v1")
	if err != nil || len(list.APIResources) != 1 || !list.APIResources[0].Namespaced {
		t.Errorf("discovery: %v, %v", list, err)
	}
	if again := c.ApplyCRD(t, "widgets.example.com", "gears", "Gear", Namespaced); again != gvr {
		t.Errorf("applied again: %v, want %v", again, gvr)
	}
	c.ApplyCRD(t, "widgets.example.com", "factories", "Factory", ClusterScoped)
}

func TestObjectsSurviveAKillOfEachServer(t *testing.T) {
	c := New(t)
	ns := c.CreateNamespace(t)
	createConfigMap(t, c, ns, "before")
	url := c.URL

	c.APIServer.Kill()
	if c.APIServer.Running() {
		t.Fatal("the API server runs after Kill")
	}
	if err := answers(t.Context(), c.URL+"/readyz", "", nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a dead server's port: %v, want a refused connection", err)
	}
	if err := c.APIServer.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustHave(t, c, ns, "before")
	if c.URL != url {
		t.Errorf("the server moved from %s to %s", url, c.URL)
	}

	c.Etcd.Kill()
	if err := c.Etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server finds etcd again", func() error {
		_, err := c.Dynamic(t).Resource(configMaps).Namespace(ns).Get(t.Context(), "before", metav1.GetOptions{})
		return err
	})

	watch, err := c.Dynamic(t).Resource(configMaps).Namespace(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	began := time.Now()
	if err := c.APIServer.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the restart took %s: the server waits for its clients to end their watches", took)
	}
	for e := range watch.ResultChan() {
		t.Logf("the watch saw %s before it ended", e.Type)
	}
	mustHave(t, c, ns, "before")
}

func TestRestoringEtcdBringsTheEarlierStateBack(t *testing.T) {
	c := New(t)
	ns := c.CreateNamespace(t)
	createConfigMap(t, c, ns, "early")
	snapshot, err := c.SaveEtcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	late := createConfigMap(t, c, ns, "late")
	for i := range 100 { // more than the API server writes when it starts
		late = createConfigMap(t, c, ns, "late-"+strconv.Itoa(i))
	}

	if err := c.RestoreEtcd(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	mustHave(t, c, ns, "early")
	client := c.Dynamic(t).Resource(configMaps).Namespace(ns)
	if _, err := client.Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object made after the snapshot: %v, want NotFound", err)
	}
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if version(t, list.GetResourceVersion()) >= version(t, late) {
		t.Errorf("the server is at version %s, not before %s: versions did not go back", list.GetResourceVersion(), late)
	}
}

func TestNothingIsLeftAfterStop(t *testing.T) {
	c, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		t.Errorf("the kubeconfig before Stop: %v", err)
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	if _, err := os.Stat(c.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder after Stop: %v", err)
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", u.Host)
	if err != nil {
		t.Fatalf("the port is not free after Stop: %v", err)
	}
	l.Close()
}

func TestAServerThatEndsAtOnceIsReportedWithItsLog(t *testing.T) {
	before := clusterFolders(t)
	began := time.Now()
	c, err := Start(t.Context(), Options{ExtraArgs: []string{"--no-such-flag"}})
	if err == nil {
		_ = c.Stop()
		t.Fatal("started with an unknown flag")
	}
	for _, want := range []string{"start kube-apiserver", "ended by itself", "exit status 1", "kube-apiserver.log", "unknown flag: --no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s to notice", took)
	}
	if after := clusterFolders(t); len(after) > len(before) {
		t.Errorf("the failed start left a folder: %v, before %v", after, before)
	}
}

const orphanVariable = "KBRIDGE_TESTCLUSTER_START_AND_HANG"

// startAndHang is this test binary's other life: a test process that is killed while it has a cluster.
func startAndHang() {
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(orphan{
		Dir: c.dir, Pids: []int{c.Etcd.PID(), c.APIServer.PID()},
	})
	select {}
}

type orphan struct {
	Dir  string
	Pids []int
}

func TestTheServersDieWithAKilledTestProcessAndTheNextRemovesItsFolder(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("needs Linux: elsewhere nothing tells a child that its parent died")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanVariable+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(out).ReadBytes('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	var o orphan
	if err := json.Unmarshal(line, &o); err != nil {
		t.Fatalf("the other process said %q: %v, %v", line, err, readErr)
	}
	eventually(t, "both servers are gone", func() error {
		for _, pid := range o.Pids {
			if err := syscall.Kill(pid, 0); err == nil && !isZombie(pid) {
				return errors.New("process " + strconv.Itoa(pid) + " still runs")
			}
		}
		return nil
	})

	removeAbandoned(os.TempDir())
	if _, err := os.Stat(o.Dir); err != nil {
		t.Fatalf("a folder that may be a starting cluster's was removed: %v", err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(o.Dir, old, old); err != nil {
		t.Fatal(err)
	}
	inUse := Shared(t).dir
	if err := os.Chtimes(inUse, old, old); err != nil {
		t.Fatal(err)
	}
	removeAbandoned(os.TempDir())
	if _, err := os.Stat(o.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the killed process's folder: %v, want it gone", err)
	}
	if _, err := os.Stat(inUse); err != nil {
		t.Errorf("the folder of a running cluster: %v", err)
	}
}

// isZombie tells whether a process has ended and only waits for its parent, in a container perhaps for ever.
func isZombie(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func clusterFolders(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempDirPattern))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func createConfigMap(t *testing.T, c *Cluster, ns, name string) (resourceVersion string) {
	t.Helper()
	cm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
	}}
	made, err := c.Dynamic(t).Resource(configMaps).Namespace(ns).Create(t.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetResourceVersion()
}

func mustHave(t *testing.T, c *Cluster, ns, name string) {
	t.Helper()
	if _, err := c.Dynamic(t).Resource(configMaps).Namespace(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("get %s: %v", name, err)
	}
}

func whoAmI(t *testing.T, client *dynamic.DynamicClient) string {
	t.Helper()
	review := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}}
	got, err := client.Resource(schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}).
		Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := unstructured.NestedString(got.Object, "status", "userInfo", "username")
	groups, _, _ := unstructured.NestedStringSlice(got.Object, "status", "userInfo", "groups")
	return name + " [" + strings.Join(groups, " ") + "]"
}

func version(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("never true: %s; at last: %v", what, err)
}
