package test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/state/file"
)

func TestAFullDiskStopsNoEventsAndIsCaughtUpWith(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	dir := t.TempDir()
	d := newDowntime(t, cluster.Dynamic(t), ns)
	p := start(t, cluster, configMapsOf(ns)+stateIn(dir)+rawSink(server, ""))
	p.ready()
	p.stored()
	// No file of the process may grow any more: what a full disk does too.
	info, err := os.Stat(filepath.Join(dir, file.Name))
	if err != nil {
		t.Fatal(err)
	}
	limitFiles(t, p.child.PID(), uint64(info.Size()))
	commits := p.metric("kbridge_state_commits_total")
	in := cluster.Dynamic(t).Resource(configMaps).Namespace(ns)
	for i := range 40 {
		large := object("v1", "ConfigMap", ns, fmt.Sprintf("large-%d", i), map[string]any{"data": map[string]any{"step": incompressible(t, 40_000)}})
		if _, err := in.Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
	eventually(t, "/readyz says that the state can not be stored", func() error {
		if body, err := p.get("/readyz"); err == nil || !strings.Contains(body, "state") {
			return fmt.Errorf("%w: %s", err, body)
		}
		return nil
	})
	failed := p.metric("kbridge_state_errors_total")
	eventually(t, "kbridge_state_errors_total grows", func() error {
		if n := p.metric("kbridge_state_errors_total"); n <= failed {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	if _, err := p.get("/healthz"); err != nil {
		t.Errorf("/healthz: %v: a restart would mend nothing", err)
	}
	// Events go on.
	d.update("kept-0", "full")
	d.delete("kept-1")
	holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))

	limitFiles(t, p.child.PID(), ^uint64(0))
	p.ready()
	p.stored()
	if n := p.metric("kbridge_state_commits_total"); n <= commits {
		t.Errorf("%v batches stored, as before", n)
	}
	before := len(readStream(t, server))
	p.kill()
	d.update("kept-2", "after")
	p.again()
	p.ready()
	holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
	p.stop()
	if after := readStream(t, server)[before:]; len(after) != 1 || after[0].Name != "kept-2" || after[0].Inferred {
		t.Errorf("after a kill: %d events, want the update of kept-2: %v", len(after), after)
	}
}

// limitFiles lets no file of a process grow past so many bytes. What it gets is not
// the signal, which Go ignores, but the error.
func limitFiles(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	const fileSize = 1 // RLIMIT_FSIZE
	limit := struct{ soft, hard uint64 }{bytes, ^uint64(0)}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), fileSize, uintptr(unsafe.Pointer(&limit)), 0, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
}

// incompressible is text that takes its size on a disk.
func incompressible(t *testing.T, size int) string {
	t.Helper()
	b := make([]byte, size*3/4)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}
