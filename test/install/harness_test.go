//go:build install && linux

package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// patience is how long anything that must come may take, on a slow machine.
const patience = 2 * time.Minute

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// release is one installation of the chart, in a namespace of its own that takes only pods which follow the restricted
// Pod Security standard.
type release struct {
	t         *testing.T
	namespace string
}

const releaseName = "kbridge"

// pod is the name of the release's pod.
const pod = releaseName + "-0"

func newRelease(t *testing.T, namespace string) *release {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := cluster.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &release{t, namespace}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.describe())
		}
		if out, err := r.helm("", "uninstall", releaseName, "--ignore-not-found", "--wait"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return r
}

// helm runs Helm in the release's namespace, with values where there are any, and returns what it prints.
func (r *release) helm(values string, args ...string) (string, error) {
	args = append(args, "--namespace", r.namespace, "--kubeconfig", cluster.path("admin.kubeconfig"))
	if values != "" {
		args = append(args, "--values", "-")
	}
	cmd := exec.Command(cluster.made.helm, args...)
	home := cluster.path("helm")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdin = strings.NewReader(values)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("helm %s: %w", args[0], err)
	}
	return string(out), err
}

func (r *release) mustHelm(values string, args ...string) string {
	r.t.Helper()
	began := time.Now()
	out, err := r.helm(values, args...)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	r.t.Logf("helm %s: %s", args[0], time.Since(began).Round(100*time.Millisecond))
	return out
}

// install installs the chart and waits until it is ready.
func (r *release) install(values string) string {
	r.t.Helper()
	return r.mustHelm(values, "install", releaseName, chart, "--wait", "--timeout", "2m")
}

// upgrade goes over to other values and waits until they are in force.
func (r *release) upgrade(values string) string {
	r.t.Helper()
	return r.mustHelm(values, "upgrade", releaseName, chart, "--reset-values", "--wait", "--timeout", "2m")
}

// get returns the pod, or nil where there is none.
func (r *release) get() *corev1.Pod {
	r.t.Helper()
	p, err := cluster.client.CoreV1().Pods(r.namespace).Get(context.Background(), pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func isReady(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// awaitReady waits until a pod other than the given one is ready, and returns it.
func (r *release) awaitReady(not *corev1.Pod) *corev1.Pod {
	r.t.Helper()
	var p *corev1.Pod
	eventually(r.t, "the pod is ready", func() error {
		p = r.get()
		if !isReady(p) || not != nil && p.UID == not.UID {
			return errors.New("it is not")
		}
		return nil
	})
	return p
}

// awaitRestart waits until the container of the pod has been started again and is ready.
func (r *release) awaitRestart(before *corev1.Pod) {
	r.t.Helper()
	eventually(r.t, "the container is started again", func() error {
		p := r.get()
		if !isReady(p) || p.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID {
			return errors.New("it is not")
		}
		return nil
	})
}

// exec runs a command in the container, as kubectl exec does.
func (r *release) exec(ctx context.Context, stdout *bytes.Buffer, command ...string) error {
	req := cluster.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(r.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: releaseName, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(cluster.config, "GET", req.URL().String())
	if err != nil {
		return err
	}
	var problems bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: &problems}); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, problems.String())
	}
	return nil
}

// mustExec returns what the command prints.
func (r *release) mustExec(command ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	if err := r.exec(ctx, &out, command...); err != nil {
		r.t.Fatal(err)
	}
	return out.String()
}

// logs returns what the container has written, or the one before it.
func (r *release) logs(previous bool) string {
	out, err := cluster.client.CoreV1().Pods(r.namespace).GetLogs(pod, &corev1.PodLogOptions{Container: releaseName, Previous: previous}).DoRaw(context.Background())
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// events returns what Kubernetes says of the pod, as kubectl describe shows it.
func (r *release) events() string {
	list, err := cluster.client.CoreV1().Events(r.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&text, "%s %s %s: %s\n", e.Type, e.Reason, e.InvolvedObject.Name, e.Message)
	}
	return text.String()
}

// describe is what is known of a release whose test has failed.
func (r *release) describe() string {
	logs := r.logs(false)
	return fmt.Sprintf("events in %s:\n%slog of the pod:\n%s", r.namespace, r.events(), logs[max(0, len(logs)-4000):])
}

// process is the id of kbridge's process in the pod. This test shares its namespace of processes with the node.
func (r *release) process(p *corev1.Pod) int {
	r.t.Helper()
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, file := range commands {
		command, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(command, []byte("/usr/local/bin/kbridge\x00run\x00")) {
			continue
		}
		dir := filepath.Dir(file)
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err == nil && bytes.Contains(groups, []byte(p.UID)) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				r.t.Fatal(err)
			}
			return pid
		}
	}
	r.t.Fatalf("no process of kbridge in the pod %s", p.UID)
	return 0
}

// kill ends kbridge as kill -9 does.
func (r *release) kill(p *corev1.Pod) {
	r.t.Helper()
	if err := syscall.Kill(r.process(p), syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "b"}}
}

func (r *release) createConfigMap(namespace, name string) {
	r.t.Helper()
	if _, err := cluster.client.CoreV1().ConfigMaps(namespace).Create(r.t.Context(), configMap(name), metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}
