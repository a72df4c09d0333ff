package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// longestDelay is how long after its confirmation the stream had a change.
func longestDelay(t *testing.T, changes []change, events []cloudEvent) (longest time.Duration, of change) {
	t.Helper()
	stored := map[string]time.Time{}
	for _, e := range slices.Backward(events) {
		stored[e.ID] = e.stored
	}
	for _, c := range changes {
		at, ok := stored[c.id()]
		if !ok {
			continue // everyConfirmedChange says so
		}
		if d := at.Sub(c.at); d > longest {
			longest, of = d, c
		}
	}
	return longest, of
}

func TestASinkThatIsDeadDoesNotHoldUpAnotherAndCatchesUp(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed meanwhile: %t", killed), func(t *testing.T) {
			const outage = 30 * time.Second
			cluster := testcluster.Shared(t)
			healthy, dead := natsserver.New(t, ""), natsserver.New(t, "")
			ns := cluster.CreateNamespace(t)
			p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+"\nsinks:"+
				natsEntry("healthy", healthy, "", "")+
				natsEntry("dead", dead, "foldAfter: 1s\n    window: {events: 100}", ""))
			p.ready()
			p.stored()
			c := startChurn(t, cluster, ns, 4, "x")
			c.goesOn(t, 200)
			dead.Kill()
			behind := func(sign string, ok func(float64) bool) {
				eventually(t, "the dead sink is behind on "+sign, func() error {
					n, err := p.tryMetric("kbridge_behind_objects", `sink="dead"`)
					if err == nil && !ok(n) {
						err = fmt.Errorf("%v objects", n)
					}
					return err
				})
			}
			began, kills := time.Now(), []time.Time(nil)
			behind("something", func(n float64) bool { return n > 0 })
			if killed {
				time.Sleep(outage / 2)
				p.kill()
				kills = append(kills, time.Now())
				p.again()
				behind("something", func(n float64) bool { return n > 0 })
			}
			time.Sleep(time.Until(began.Add(outage)))
			folded := p.metric("kbridge_folded_total", `sink="dead"`)
			dead.Start()
			c.goesOn(t, 100)
			changes := c.end()
			want := serverState(t, cluster.Dynamic(t), configMaps, ns)
			holds(t, healthy, want)
			holds(t, dead, want)
			behind("nothing", func(n float64) bool { return n == 0 })
			folded = max(folded, p.metric("kbridge_folded_total", `sink="dead"`))
			if n := p.metric("kbridge_folded_total", `sink="healthy"`); n != 0 || folded == 0 {
				t.Errorf("%v changes were folded for the dead sink, %v for the healthy one", folded, n)
			}
			p.stop()

			events := readStream(t, healthy)
			if err := difference(replay(t, events), want); err != nil {
				t.Error(err)
			}
			everyConfirmedChange(t, changes, events)
			longest, of := longestDelay(t, changes, events)
			t.Logf("%d changes; the healthy sink had each within %s (%s, %s after the outage began)", len(changes), longest, of.name, of.at.Sub(began))
			if longest > 10*time.Second {
				t.Errorf("%s %s took %s to the healthy sink", of.name, of.kind, longest)
			}

			events = knownDeletes(t, readStream(t, dead), changes, kills)
			if err := difference(replay(t, events), want); err != nil {
				t.Error(err)
			}
			deletesAreComplete(t, events, want)
			t.Logf("the dead sink got %d events, %v changes were folded", len(events), folded)
		})
	}
}

// knownDeletes leaves out deletions of objects that were never announced. After a
// kill kbridge does not know whether the last acknowledgements before it came, and
// tells of a deletion too many rather than of one too few; but not of an object that
// was made only after the last kill.
func knownDeletes(t *testing.T, events []cloudEvent, changes []change, kills []time.Time) []cloudEvent {
	t.Helper()
	born, announced := map[string]time.Time{}, map[string]bool{}
	for _, c := range changes {
		if c.kind == "added" {
			born[c.uid] = c.at
		}
	}
	wrong := 0
	known := slices.DeleteFunc(slices.Clone(events), func(e cloudEvent) bool {
		announced[e.UID] = announced[e.UID] || e.short() != "deleted"
		if announced[e.UID] {
			return false
		}
		at, confirmed := born[e.UID]
		// What was made before kbridge was back counts as before the kill: it may have been sent.
		back := func(killed time.Time) bool { return at.Before(killed.Add(10 * time.Second)) }
		if confirmed && !slices.ContainsFunc(kills, back) {
			if wrong++; wrong <= 5 {
				t.Errorf("%s of uid %s is deleted, was never announced, and was made after the last kill", e.object(), e.UID)
			}
		}
		return true
	})
	if wrong > 0 {
		t.Errorf("%d of %d deletions of what was never announced have no kill to explain them", wrong, len(events)-len(known))
	}
	return known
}

// deletesAreComplete checks that what was announced and is gone has its deletion.
func deletesAreComplete(t *testing.T, events []cloudEvent, want state) {
	t.Helper()
	live, deleted := map[string]bool{}, map[string]bool{}
	for _, v := range want {
		live[v[0]] = true
	}
	for _, e := range events {
		if e.short() == "deleted" {
			deleted[e.UID] = true
			if live[e.UID] {
				t.Errorf("%s is there and was deleted for the consumer", e.object())
			}
		}
	}
	for _, e := range objects(events) {
		if !live[e.UID] && !deleted[e.UID] {
			t.Errorf("%s of uid %s was announced, is gone, and has no deleted event", e.object(), e.UID)
		}
	}
}

func TestANewSinkGetsASnapshotAndTheOldOneNothingAgain(t *testing.T) {
	cluster := testcluster.Shared(t)
	old, added := natsserver.New(t, ""), natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	d := newDowntime(t, cluster.Dynamic(t), ns)
	base := configMapsOf(ns) + stateIn(t.TempDir()) + "\nsinks:"
	oldEntry, newEntry := natsEntry("old", old, "", ", duplicates: 100ms"), natsEntry("new", added, "", ", duplicates: 100ms")
	p := start(t, cluster, base+oldEntry)
	p.ready()
	p.stored()
	before := len(readStream(t, old))
	p.stop()
	d.pass()
	p.configuration = base + oldEntry + newEntry
	p.again()
	p.ready()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	holds(t, old, want)
	holds(t, added, want)
	if n := p.metric("kbridge_lists_total"); n != 0 {
		t.Errorf("%v lists", n)
	}
	p.stored()
	p.stop()
	d.check(readStream(t, old)[before:], false)
	events := readStream(t, added)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	if taken := snapshotsOf(t, events); len(taken) != 1 || taken[0].count == 0 {
		t.Errorf("the new sink has the snapshots %v", taken)
	}

	// The old sink goes, and comes back later: it is as new then.
	p.configuration = base + newEntry
	p.again()
	p.ready()
	d.update("kept-0", "5")
	want = serverState(t, cluster.Dynamic(t), configMaps, ns)
	holds(t, added, want)
	p.stop()
	if n := len(readStream(t, added)); n != len(events)+1 {
		t.Errorf("%d events after one update, there were %d before", n, len(events))
	}
	before = len(readStream(t, old))
	p.configuration = base + oldEntry + newEntry
	p.again()
	p.ready()
	holds(t, old, want)
	p.stored()
	p.stop()
	again := readStream(t, old)[before:]
	if taken := snapshotsOf(t, again); len(taken) != 1 || taken[0].count != len(want) {
		t.Errorf("the sink that came back has the snapshots %v, want one of %d objects", taken, len(want))
	}
	if err := difference(replay(t, again), want); err != nil {
		t.Error(err)
	}
	if n := len(readStream(t, added)); n != len(events)+1 {
		t.Errorf("%d events repeated to the other sink", n-len(events)-1)
	}
}

func TestAChangedSelectionDeletesNothingThatIsThere(t *testing.T) {
	cluster := testcluster.New(t)
	server := natsserver.New(t, "")
	ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	for _, name := range []string{ns, other} {
		newDowntime(t, cluster.Dynamic(t), name)
	}
	selection := func(rest string) string {
		return "\ncluster: test\nresources:\n  - {resource: configmaps, " + rest + "}\n"
	}
	ending := stateIn(t.TempDir()) + rawSink(server, "")
	p := prepare(t, cluster.Kubeconfig(), "")
	for _, rest := range []string{
		"namespaces: [" + ns + "], fieldSelector: metadata.name=kept-1", // and then more than that
		"namespaces: [" + ns + ", " + other + "]",
		"namespaces: [" + other + "]",
		"namespaces: [" + other + "], labelSelector: no=such",
		"namespaces: [" + ns + "], fieldSelector: metadata.name=kept-0",
		"namespaces: [" + ns + ", " + other + "], drop: [data]",
		"namespaces: [" + ns + ", " + other + "], types: [added, deleted]",
	} {
		p.configuration = selection(rest) + ending
		p.again()
		p.ready()
		p.stored()
		p.stop()
		// The next start has to list, and compares the list with what it knows of the same
		// selection.
		restartAPIServer(t, cluster)
	}
	events := readStream(t, server)
	for _, e := range objects(events) {
		if e.short() != "added" {
			t.Errorf("%s %s", e.Type, e.object())
		}
	}
	snapshotsOf(t, events)
	if err := difference(fold(events), serverState(t, cluster.Dynamic(t), configMaps, ns, other)); err != nil {
		t.Error(err)
	}
}

// What a first snapshot announces has been told under the same ids before, and JetStream
// remembers them: a consumer that sweeps must not lose what is there.
func TestAFirstSnapshotIsWholeAlthoughTheStreamKnowsItsIDs(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	d := newDowntime(t, cluster.Dynamic(t), ns)
	of := func(extra string) string {
		return fmt.Sprintf("\ncluster: test\nresources:\n  - {resource: configmaps, namespaces: [%s]%s}\n", ns, extra)
	}
	for name, c := range map[string]struct {
		first, second func(server *natsserver.Server, dir string) string
	}{
		"after a restart without state": {
			func(s *natsserver.Server, _ string) string { return of("") + natsSink(s, "") },
			func(s *natsserver.Server, _ string) string { return of("") + natsSink(s, "") },
		},
		"after the selector was changed": {
			func(s *natsserver.Server, dir string) string { return of("") + stateIn(dir) + natsSink(s, "") },
			func(s *natsserver.Server, dir string) string {
				return of(", labelSelector: 'none!=such'") + stateIn(dir) + natsSink(s, "")
			},
		},
		"after the sink was renamed": {
			func(s *natsserver.Server, dir string) string { return of("") + stateIn(dir) + natsSink(s, "") },
			func(s *natsserver.Server, dir string) string {
				return of("") + stateIn(dir) + "\nsinks:" + natsEntry("renamed", s, "", "")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, dir := natsserver.New(t, ""), t.TempDir()
			p := start(t, cluster, c.first(server, dir))
			p.ready()
			d.update("kept-0", name)
			holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
			p.stop()
			p.configuration = c.second(server, dir)
			p.again()
			p.ready()
			eventually(t, "a second snapshot is completed", func() error {
				n := 0
				for _, e := range readStream(t, server) {
					if e.Type == "dev.kbridge.snapshot.completed" {
						n++
					}
				}
				if n < 2 {
					return fmt.Errorf("%d are", n)
				}
				return nil
			})
			p.stop()
			if err := difference(fold(readStream(t, server)), serverState(t, cluster.Dynamic(t), configMaps, ns)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Two entries of one resource have disjoint scopes: the end of one's snapshot says nothing
// of the other's objects.
func TestASnapshotOfOneEntrySweepsNothingOfAnother(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	newDowntime(t, cluster.Dynamic(t), ns)
	newDowntime(t, cluster.Dynamic(t), other)
	p := start(t, cluster, fmt.Sprintf(`
cluster: test
resources:
  - {resource: configmaps, namespaces: [%[1]s], resync: 10s}
  - {resource: configmaps, excludeNamespaces: [%[1]s], fieldSelector: metadata.name!=kube-root-ca.crt, resync: 10s}
`, ns)+stateIn(t.TempDir())+natsSink(server, ""))
	p.ready()
	eventually(t, "snapshots of both are completed", func() error {
		if n := p.metric("kbridge_published_total", `type="completed"`); n < 6 {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	p.stop()
	has, want := fold(readStream(t, server)), serverState(t, cluster.Dynamic(t), configMaps, ns, other)
	for key := range has {
		if !strings.Contains(key, " "+ns+"/") && !strings.Contains(key, " "+other+"/") {
			delete(has, key) // of namespaces that other tests have
		}
	}
	for key := range want {
		if strings.HasSuffix(key, "/kube-root-ca.crt") {
			delete(want, key)
			delete(has, key)
		}
	}
	if err := difference(has, want); err != nil {
		t.Error(err)
	}
}
