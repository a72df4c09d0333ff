package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// tryIt are the commands of the README's section, in order.
func tryIt(t *testing.T) (commands []string) {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n## Try it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// TestTheREADMEsExperimentWorks types what the README says, in a folder of its own and on
// ports of its own. What is typed for kubectl is asked of the API server where there is none.
func TestTheREADMEsExperimentWorks(t *testing.T) {
	const run, tailIt = "bin/kbridge run --config examples/quickstart.yaml --embedded", "bin/kbridge tail --config examples/quickstart.yaml"
	want := []string{
		"make demo", "make build", run, tailIt,
		"kubectl create configmap hello --from-literal=who=world", "kill -9 $(pgrep -f 'kbridge run')", "kubectl delete configmap hello", run,
	}
	if got := tryIt(t); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Fatalf("the README has the commands %q, want %q: change the test with it", got, want)
	}
	cluster := testcluster.New(t) // the quickstart is of all namespaces
	dir := t.TempDir()
	for _, sub := range []string{"bin", "examples"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(kbridgeBinary(t), filepath.Join(dir, "bin", "kbridge")); err != nil {
		t.Fatal(err)
	}
	quickstart, err := os.ReadFile("../examples/quickstart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	own := bytes.Replace(quickstart, []byte("127.0.0.1:8080"), []byte(freeAddress(t)), 1)
	if err := os.WriteFile(filepath.Join(dir, "examples", "quickstart.yaml"), own, 0o600); err != nil {
		t.Fatal(err)
	}
	typed := func(command string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", "exec "+command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(), "HOME="+dir)
		return cmd
	}
	begin := func(command string) (*child.Process, *syncBuffer) {
		t.Helper()
		out := &syncBuffer{}
		cmd := typed(command)
		cmd.Stdout, cmd.Stderr = out, out
		p, err := child.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p, out
	}
	says := func(out *syncBuffer, what string) {
		t.Helper()
		eventually(t, "it says "+what, func() error {
			for line := range strings.Lines(out.String()) {
				if strings.Join(strings.Fields(line), " ") == what || strings.Contains(strings.Join(strings.Fields(line), " "), what) {
					return nil
				}
			}
			return errors.New(out.String())
		})
	}
	kubectl := func(command string, instead func() error) {
		t.Helper()
		if _, err := exec.LookPath("kubectl"); err != nil {
			if err := instead(); err != nil {
				t.Fatal(err)
			}
			return
		}
		if out, err := typed(command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	hello := cluster.Dynamic(t).Resource(configMaps).Namespace("default")

	first, log := begin(run)
	says(log, "msg=listed resource=configmaps")
	_, tail := begin(tailIt)
	says(tail, "kbridge: reading stream KBRIDGE")
	kubectl(want[4], func() error {
		_, err := hello.Create(t.Context(), object("v1", "ConfigMap", "default", "hello", map[string]any{"data": map[string]any{"who": "world"}}), metav1.CreateOptions{})
		return err
	})
	says(tail, "added configmaps default/hello")
	first.Kill() // as the third command does, to this one alone
	kubectl(want[6], func() error { return hello.Delete(t.Context(), "hello", metav1.DeleteOptions{}) })
	second, log := begin(run)
	says(log, "msg=resumed resource=configmaps")
	says(tail, "deleted configmaps default/hello")
	second.Kill()
	if n := strings.Count(tail.String(), "default/hello"); n != 2 {
		t.Errorf("tail has %d lines of it:\n%s", n, tail.String())
	}
}

func TestTheQuickstartsPermissionsAreThoseThatItNeeds(t *testing.T) {
	file, err := os.ReadFile("../examples/rbac/quickstart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for line := range strings.Lines(string(file)) {
		if !strings.HasPrefix(line, "#") {
			has = append(has, line)
		}
	}
	needs, err := exec.Command(kbridgeBinary(t), "rbac", "--config", "../examples/quickstart.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(has, ""); got != string(needs) {
		t.Errorf("examples/rbac/quickstart.yaml is stale: %s", fmt.Sprintf("it has\n%s\nand needs\n%s", got, needs))
	}
}
