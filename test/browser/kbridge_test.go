package browser

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

var binary struct {
	sync.Once
	dir, path string
	err       error
}

// kbridge builds the command once for all tests.
func kbridge(t *testing.T) string {
	t.Helper()
	binary.Do(func() {
		if binary.dir, binary.err = os.MkdirTemp("", "kbridge-browser-"); binary.err != nil {
			return
		}
		binary.path = filepath.Join(binary.dir, "kbridge")
		args := []string{"build", "-ldflags", "-X main.version=v0.9.0", "-o", binary.path, "github.com/kbridge-io/kbridge/cmd/kbridge"}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			binary.err = fmt.Errorf("build kbridge: %w\n%s", err, out)
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// daemon is a kbridge that runs.
type daemon struct {
	t      *testing.T
	child  *child.Process
	log    *buffer
	origin string
}

var served = regexp.MustCompile(`msg="serving metrics and health" address=(\S+)`)

// run starts kbridge and waits until it is ready. Its configuration has an HTTP server on a port that the kernel picks.
func run(t *testing.T, cluster *testcluster.Cluster, configuration string) *daemon {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "kbridge.yaml")
	if err := os.WriteFile(file, []byte(configuration+"\nserver: {address: '127.0.0.1:0'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, log: &buffer{}}
	cmd := exec.Command(kbridge(t), "run", "--config", file, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, d.log, d.log // so that the state's folder can be a short one
	var err error
	if d.child, err = child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.child.Kill()
		if t.Failed() {
			t.Logf("kbridge's log:\n%s", d.log)
		}
	})
	d.eventually("it listens", func() bool {
		m := served.FindStringSubmatch(d.log.String())
		if m != nil {
			d.origin = "http://" + m[1]
		}
		return m != nil
	})
	d.eventually("it is ready", func() bool { return d.status("/readyz") == http.StatusOK })
	return d
}

// Each request has its own connection, so that none is left when a test ends.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}

func (d *daemon) status(path string) int {
	resp, err := client.Get(d.origin + path)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func (d *daemon) eventually(what string, check func() bool) {
	d.t.Helper()
	for end := time.Now().Add(patience); !check(); time.Sleep(50 * time.Millisecond) {
		if !d.child.Running() {
			d.t.Fatalf("kbridge ended: %v", d.child.Wait())
		}
		if time.Now().After(end) {
			d.t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// stop ends kbridge, which has to end in order.
func (d *daemon) stop() {
	d.t.Helper()
	d.child.Signal(syscall.SIGTERM)
	select {
	case <-d.child.Done():
	case <-time.After(patience):
		d.t.Fatal("kbridge does not end")
	}
	if err := d.child.Wait(); err != nil {
		d.t.Errorf("kbridge ended with %v", err)
	}
}

// buffer collects a process's output while it is read.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Clone(b.text.String())
}
