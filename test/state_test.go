package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/state/file"
)

func TestTheStateOfARunningKbridgeIsRefusedToAnother(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	dir := t.TempDir()
	d := newDowntime(t, cluster.Dynamic(t), ns)
	first := start(t, cluster, configMapsOf(ns)+stateIn(dir)+rawSink(server, ""))
	first.ready()
	first.stored()
	second := start(t, cluster, configMapsOf(ns)+stateIn(dir)+rawSink(server, ""))
	says := func(p *process, what string) {
		t.Helper()
		eventually(t, "it says: "+what, func() error {
			if !strings.Contains(p.logs.String(), what) {
				return errors.New(p.logs.String())
			}
			return nil
		})
	}
	says(second, "another process has the state open: waiting")
	if code := second.exitCode(); code != 1 {
		t.Errorf("the second one ended with %d, want 1", code)
	}
	// While it waits it obeys a signal.
	third := start(t, cluster, configMapsOf(ns)+stateIn(dir)+rawSink(server, ""))
	says(third, "another process has the state open: waiting")
	began := time.Now()
	third.child.Signal(syscall.SIGTERM)
	if code := third.exitCode(); code != 1 || !strings.Contains(third.logs.String(), "another process has it open") {
		t.Errorf("the third one ended with %d after %s", code, time.Since(began))
	}
	if said := second.logs.String(); !strings.Contains(said, filepath.Join(dir, file.Name)) || !strings.Contains(said, "another process has it open") {
		t.Errorf("the second one said\n%s", said)
	}
	d.update("kept-0", "1")
	holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
	first.stop()
	if n := len(objects(readStream(t, server))); n != 5*perKind+1 {
		t.Errorf("%d events, want %d: the second one published", n, 5*perKind+1)
	}
	// Now it is free.
	second.again()
	second.ready()
	second.stop()
}

func TestADamagedStateIsNamedAndLeftAsItIs(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	dir := t.TempDir()
	newDowntime(t, cluster.Dynamic(t), ns)
	p := start(t, cluster, configMapsOf(ns)+stateIn(dir)+rawSink(server, ""))
	p.ready()
	p.stored()
	p.stop()
	path := filepath.Join(dir, file.Name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	middle := bytes.Clone(whole)
	for i := len(middle) / 4; i < len(middle); i++ {
		middle[i] ^= 0x5a
	}
	// Only checksums tell of this one. A record stands behind its key, in old pages too.
	bit, key := bytes.Clone(whole), []byte(ns+"/kept-0")
	for at := bytes.Index(bit, key); at >= 0; {
		bit[at+len(key)+16] ^= 1
		next := bytes.Index(bit[at+len(key):], key)
		if next < 0 {
			break
		}
		at += len(key) + next
	}
	before := len(readStream(t, server))
	for what, damaged := range map[string][]byte{
		"a bit is wrong":            bit,
		"the middle is overwritten": middle,
		"half of it is there":       whole[:len(whole)/2],
		"it is another file":        []byte("kbridge was here\n"),
	} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		said := len(p.logs.String())
		p.again()
		if code := p.exitCode(); code != 1 {
			t.Errorf("%s: kbridge ended with %d, want 1", what, code)
		}
		if said := p.logs.String()[said:]; !strings.Contains(said, path) || !strings.Contains(said, "damaged") {
			t.Errorf("%s: kbridge said\n%s", what, said)
		}
		if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, damaged) {
			t.Errorf("%s: the file has been changed (%v)", what, err)
		}
	}
	if n := len(readStream(t, server)); n != before {
		t.Errorf("%d events were published meanwhile", n-before)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	p.again()
	p.ready()
	p.stop()
	if n := len(readStream(t, server)); n != before {
		t.Errorf("%d events repeated with the state in its place again", n-before)
	}
}

func TestASnapshotIsTakenEachResyncPeriodAndIsWhole(t *testing.T) {
	const rounds = 3
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	newDowntime(t, cluster.Dynamic(t), other)
	p := start(t, cluster, fmt.Sprintf(`
cluster: test
resources:
  - {resource: configmaps, namespaces: [%s, %s], resync: 10s}
`, ns, other)+stateIn(t.TempDir())+natsSink(server, "window: {events: 200}"))
	p.ready()
	c := startChurn(t, cluster, ns, 4, "x")
	eventually(t, "snapshots are taken", func() error {
		if n := p.metric("kbridge_published_total", `type="completed"`); n < 2*(1+rounds) {
			return fmt.Errorf("%v of %d completed", n, 2*(1+rounds))
		}
		return nil
	})
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns, other)
	holds(t, server, want)
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	per := map[string][]int{}
	for _, s := range snapshotsOf(t, events) {
		per[s.namespace] = append(per[s.namespace], s.count)
	}
	t.Logf("%d changes, %d events, objects in the snapshots: %v", len(changes), len(events), per)
	if len(per[ns]) < 1+rounds || len(per[other]) < 1+rounds {
		t.Errorf("too few snapshots: %v", per)
	}
	for _, n := range per[other] {
		if n != 5*perKind {
			t.Errorf("%d objects in a snapshot of what did not change, want %d", n, 5*perKind)
		}
	}
	open := map[string]string{}
	for i, e := range events {
		switch e.Type {
		case "dev.kbridge.snapshot.started":
			if was := open[e.Namespace]; was != "" {
				t.Errorf("event %d: snapshot %s begins while %s is under way", i, e.Snapshot, was)
			}
			open[e.Namespace] = e.Snapshot
		case "dev.kbridge.snapshot.completed":
			open[e.Namespace] = ""
		}
	}
	// Whoever comes with a snapshot's begin knows at its end what was there then.
	wholeSnapshots(t, events)
	live := make([]cloudEvent, 0, len(events))
	for _, e := range events {
		if e.short() != "synced" {
			live = append(live, e)
		}
	}
	everyConfirmedChange(t, changes, withoutNamespace(live, other))
}

// wholeSnapshots rebuilds the state from each snapshot's events and the changes
// between its markers, and compares it with that of a consumer that was there from
// the begin.
func wholeSnapshots(t *testing.T, events []cloudEvent) {
	t.Helper()
	for i, e := range events {
		if e.Type != "dev.kbridge.snapshot.started" {
			continue
		}
		late := state{}
		all := fold(events[:i])
		for _, e2 := range events[i:] {
			if e2.Namespace != e.Namespace {
				continue
			}
			if e2.Type == "dev.kbridge.snapshot.completed" && e2.Snapshot == e.Snapshot {
				break
			}
			if e2.marker() {
				continue
			}
			for _, s := range []state{late, all} {
				if e2.short() == "deleted" {
					delete(s, e2.object())
				} else {
					s[e2.object()] = [2]string{e2.UID, e2.ResourceVersion}
				}
			}
		}
		for key := range all {
			if !strings.Contains(key, " "+e.Namespace+"/") {
				delete(all, key)
			}
		}
		if err := difference(late, all); err != nil {
			t.Errorf("snapshot %s alone gives another state: %v", e.Snapshot, err)
		}
	}
}

func withoutNamespace(events []cloudEvent, ns string) []cloudEvent {
	var rest []cloudEvent
	for _, e := range events {
		if e.Namespace != ns {
			rest = append(rest, e)
		}
	}
	return rest
}

// createMany creates configmaps with eight writers.
func createMany(t *testing.T, cluster *testcluster.Cluster, ns string, count int, payload string) {
	t.Helper()
	in := cluster.Dynamic(t).Resource(configMaps).Namespace(ns)
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := w; i < count; i += 8 {
				o := object("v1", "ConfigMap", ns, fmt.Sprintf("c%04d", i), map[string]any{"data": map[string]any{"i": fmt.Sprint(i), "payload": payload}})
				if _, err := in.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	writers.Wait()
}

func TestAFirstListWithoutABrokerIsBoundedAndArrivesOnce(t *testing.T) {
	const (
		count  = 5000
		window = 4 << 20
	)
	cluster := testcluster.Shared(t)
	server := natsserver.Reserve(t, "")
	ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	payload := strings.Repeat("payload ", 500) // 20 MB in all, five times the window
	createMany(t, cluster, ns, count, payload)
	p := start(t, cluster, configMapsOf(ns, other)+stateIn(t.TempDir())+rawSink(server, "window: {bytes: 4MiB}"))
	// The list does not wait for the broker, and the watches go on.
	eventually(t, "all objects are listed", func() error {
		n, err := p.tryMetric("kbridge_objects")
		if err == nil && n < count {
			err = fmt.Errorf("%v of %d", n, count)
		}
		return err
	})
	d := &downtime{t: t, in: cluster.Dynamic(t).Resource(configMaps).Namespace(other), namespace: other}
	for i := range 20 {
		d.create(fmt.Sprintf("later-%d", i))
	}
	eventually(t, "the other watch sees what is created", func() error {
		if n := p.metric("kbridge_objects"); n != count+20 {
			return fmt.Errorf("%v objects", n)
		}
		return nil
	})
	peak := int64(0)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		p.mustRun()
		peak = max(peak, p.anonymousMemory())
		if used := p.metric("kbridge_window_bytes"); used > window {
			t.Fatalf("the window holds %v bytes, its limit is %d", used, window)
		}
	}
	index := int64(p.metric("kbridge_index_bytes"))
	t.Logf("RssAnon %d MiB at most without a broker; index %d MiB; window %d MiB", peak>>20, index>>20, window>>20)
	if limit := 4*index + 2*window + 40<<20; !raceEnabled && peak > limit {
		t.Errorf("%d MiB of memory, more than %d", peak>>20, limit>>20)
	}
	server.Start()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns, other)
	eventually(t, "all are acknowledged", func() error {
		if n := p.metric("kbridge_published_total", `type="completed"`); n < 2 {
			return fmt.Errorf("%v snapshots are completed", n)
		}
		return nil
	})
	p.ready()
	holds(t, server, want)
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	counts := map[string]int{}
	for _, s := range snapshotsOf(t, events) {
		counts[s.namespace] += s.count
	}
	if counts[ns] != count || len(objects(events)) != count+20 {
		t.Errorf("%d events, snapshots of %v objects, want %d in the first", len(events), counts, count)
	}
}
