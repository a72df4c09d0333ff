package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// holds waits until a consumer of the stream has the state that the API server has.
func holds(t *testing.T, server *natsserver.Server, want state) {
	t.Helper()
	var events []cloudEvent
	var wrong error
	defer func() {
		if wrong != nil {
			t.Logf("the consumer's history of the first objects that differ:\n%s", history(events, wrong))
		}
	}()
	eventually(t, "the consumer's state is the API server's", func() error {
		events = readStream(t, server)
		wrong = difference(fold(events), want)
		return wrong
	})
}

// history tells of the events of the objects that an error names.
func history(events []cloudEvent, err error) string {
	var b strings.Builder
	for i, e := range events {
		if !e.marker() && strings.Contains(err.Error(), e.object()+" ") {
			fmt.Fprintf(&b, "%d %s %s %s %s inferred=%t rv=%s told=%s\n", i, e.stored.Format("15:04:05.000"), e.object(), e.short(), e.ID, e.Inferred, e.ResourceVersion, e.Time.Format("15:04:05.000"))
		}
	}
	return b.String()
}

// nothingWasFolded checks that every event stands for one change that was seen.
func nothingWasFolded(t *testing.T, p *process, events []cloudEvent) {
	t.Helper()
	for _, e := range events {
		if e.Inferred {
			t.Errorf("%s %s %s is inferred", e.object(), e.Type, e.ID)
		}
	}
	if n := p.metric("kbridge_folded_total"); n != 0 {
		t.Errorf("%v changes were folded", n)
	}
	if log := p.logs.String(); strings.Contains(log, "changes are folded") {
		t.Error("the sink fell behind")
	}
	if n := p.metric("kbridge_lists_total"); n != 0 {
		t.Errorf("%v lists after a restart", n)
	}
}

func TestKillsUnderLoadLoseNothingAndKeepTheOrder(t *testing.T) {
	const kills = 24
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+natsSink(server, ""))
	p.ready()
	p.stored()
	c := startChurn(t, cluster, ns, 4, "x")
	for i := range kills {
		// In all of its life: while it starts, resumes, publishes and stores.
		time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Second))))
		if i%2 == 1 {
			// And while much is under way that no broker will acknowledge any more. Not for as
			// long as it takes to be recorded as what the sink is behind on.
			server.Kill()
			time.Sleep(700 * time.Millisecond)
		}
		p.mustRun()
		p.kill()
		if i%2 == 1 {
			server.Start()
		}
		p.again()
	}
	c.goesOn(t, 100)
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	holds(t, server, want)
	nothingWasFolded(t, p, readStream(t, server))
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	everyConfirmedChange(t, changes, events)
	t.Logf("%d confirmed changes, %d events, %d kills", len(changes), len(events), kills)
}

func TestWhatIsPublishedAgainAfterAKillIsTheSameAndLittle(t *testing.T) {
	const kills = 8
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+rawSink(server, ""))
	p.ready()
	p.stored()
	c := startChurn(t, cluster, ns, 4, "x")
	var killed []time.Time
	for range kills {
		time.Sleep(3*time.Second + time.Duration(rand.Int64N(int64(time.Second))))
		p.kill()
		killed = append(killed, time.Now())
		p.again()
		p.ready()
	}
	c.goesOn(t, 100)
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	// Right after a restart the stream's short memory takes a part of what is repeated
	// for known: only a consumer that knows ids itself has the right state.
	eventually(t, "the consumer's state is the API server's", func() error {
		return difference(fold(distinct(t, readStream(t, server))), want)
	})
	nothingWasFolded(t, p, readStream(t, server))
	p.stop()
	events := readStream(t, server)
	once := distinct(t, events)
	if err := difference(replay(t, once), want); err != nil {
		t.Error(err)
	}
	everyConfirmedChange(t, changes, once)

	// What is repeated was acknowledged just before a kill, too late to be stored.
	first, oldest := map[string]time.Time{}, time.Duration(0)
	for _, e := range events {
		at, repeated := first[e.ID]
		if !repeated {
			first[e.ID] = e.stored
			continue
		}
		i := slices.IndexFunc(killed, func(k time.Time) bool { return k.After(at) })
		if i < 0 || e.stored.Before(killed[i]) {
			t.Errorf("%s is published again, without a kill in between", e.ID)
			continue
		}
		oldest = max(oldest, killed[i].Sub(at))
	}
	t.Logf("%d events, %d of them repeated, the oldest %s before its kill", len(events), len(events)-len(once), oldest)
	if limit := 2500 * time.Millisecond; oldest > limit {
		t.Errorf("what was acknowledged %s before a kill was published again, more than %s", oldest, limit)
	}
	if len(events) == len(once) {
		t.Error("nothing was repeated: the test shows nothing")
	}
}

func TestStopsUnderLoadRepeatNothingAndMissNothing(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+rawSink(server, ""))
	p.ready()
	p.stored()
	c := startChurn(t, cluster, ns, 4, "x")
	for range 6 {
		c.goesOn(t, 200)
		p.stop()
		c.goesOn(t, 50)
		p.again()
		p.ready()
	}
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	holds(t, server, want)
	nothingWasFolded(t, p, readStream(t, server))
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	everyConfirmedChange(t, changes, events)
}

// downtime is what happens to some objects while kbridge is down.
type downtime struct {
	t         *testing.T
	in        dynamic.ResourceInterface
	namespace string
	before    map[string]*[2]string // uid and version by name, as kbridge knew them
	exact     map[string][]string   // the events by name, "type id", if all is seen
	compared  map[string][]string   // if a comparison finds it
}

func (d *downtime) create(name string) [2]string {
	d.t.Helper()
	o, err := d.in.Create(d.t.Context(), object("v1", "ConfigMap", d.namespace, name, map[string]any{"data": map[string]any{"step": "0"}}), metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return [2]string{string(o.GetUID()), o.GetResourceVersion()}
}

func (d *downtime) update(name, step string) [2]string {
	d.t.Helper()
	o, err := d.in.Patch(d.t.Context(), name, types.MergePatchType, []byte(`{"data":{"step":"`+step+`"}}`), metav1.PatchOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return [2]string{string(o.GetUID()), o.GetResourceVersion()}
}

func (d *downtime) delete(name string) {
	d.t.Helper()
	if err := d.in.Delete(d.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

const perKind = 8

func newDowntime(t *testing.T, client dynamic.Interface, ns string) *downtime {
	d := &downtime{
		t: t, in: client.Resource(configMaps).Namespace(ns), namespace: ns,
		before: map[string]*[2]string{}, exact: map[string][]string{}, compared: map[string][]string{},
	}
	for _, kind := range []string{"kept", "deleted", "updated", "recreated", "last-updated"} {
		for i := range perKind {
			name := fmt.Sprintf("%s-%d", kind, i)
			v := d.create(name)
			d.before[name] = &v
		}
	}
	return d
}

// pass does it all.
func (d *downtime) pass() {
	id := func(v [2]string) string { return v[0] + "." + v[1] }
	for i := range perKind {
		name := fmt.Sprintf("deleted-%d", i)
		gone := "deleted " + d.before[name][0] + ".deleted"
		d.delete(name)
		d.exact[name] = []string{gone}
		d.compared[name] = d.exact[name]

		name = fmt.Sprintf("updated-%d", i)
		one, two := d.update(name, "1"), d.update(name, "2")
		d.exact[name] = []string{"updated " + id(one), "updated " + id(two)}
		d.compared[name] = []string{"updated " + id(two)}

		name = fmt.Sprintf("recreated-%d", i)
		gone = "deleted " + d.before[name][0] + ".deleted"
		d.delete(name)
		d.exact[name] = []string{gone, "added " + id(d.create(name))}
		d.compared[name] = d.exact[name]

		name = fmt.Sprintf("last-updated-%d", i)
		gone = "deleted " + d.before[name][0] + ".deleted"
		one = d.update(name, "1")
		d.delete(name)
		d.exact[name] = []string{"updated " + id(one), gone}
		d.compared[name] = []string{gone}

		name = fmt.Sprintf("created-%d", i)
		d.exact[name] = []string{"added " + id(d.create(name))}
		d.compared[name] = d.exact[name]

		name = fmt.Sprintf("came-and-went-%d", i)
		one = d.create(name)
		d.delete(name)
		d.exact[name] = []string{"added " + id(one), "deleted " + one[0] + ".deleted"}
	}
}

// check compares what came with what had to. inferred says how it was found.
func (d *downtime) check(events []cloudEvent, inferred bool) {
	d.t.Helper()
	want, got := d.exact, map[string][]string{}
	if inferred {
		want = d.compared
	}
	for _, e := range events {
		if e.marker() {
			d.t.Errorf("a snapshot: %s %s", e.Type, e.ID)
			continue
		}
		got[e.Name] = append(got[e.Name], e.short()+" "+e.ID)
		if e.Inferred != inferred {
			d.t.Errorf("%s %s has inferred: %t", e.short(), e.Name, e.Inferred)
		}
		if e.short() == "deleted" && !strings.Contains(string(e.Data), `"step"`) {
			d.t.Errorf("%s is deleted without its last state: %s", e.Name, e.Data)
		}
		if before := d.before[e.Name]; inferred && e.short() == "deleted" && before != nil && e.ResourceVersion != before[1] {
			d.t.Errorf("%s is deleted with version %s, its last known one is %s", e.Name, e.ResourceVersion, before[1])
		}
	}
	for name, w := range want {
		if !slices.Equal(got[name], w) {
			d.t.Errorf("%s: got %q, want %q", name, got[name], w)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		d.t.Errorf("events that nothing explains: %q", got)
	}
}

func TestWhatHappensWhileKbridgeIsDownArrives(t *testing.T) {
	cluster := testcluster.New(t)
	for name, end := range map[string]func(*process){"stopped": (*process).stop, "killed": (*process).kill} {
		for _, inferred := range []bool{false, true} {
			title := name + ", with the API server's history"
			if inferred {
				title = name + ", and the API server has forgotten"
			}
			t.Run(title, func(t *testing.T) {
				server := natsserver.New(t, "")
				ns := cluster.CreateNamespace(t)
				d := newDowntime(t, cluster.Dynamic(t), ns)
				p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+rawSink(server, ""))
				p.ready()
				p.stored()
				before := len(readStream(t, server))
				if before != 5*perKind+2 {
					t.Errorf("%d events before, want %d and two markers", before, 5*perKind)
				}
				end(p)
				d.pass()
				if inferred {
					restartAPIServer(t, cluster)
				}
				p.again()
				p.ready()
				want := serverState(t, cluster.Dynamic(t), configMaps, ns)
				holds(t, server, want)
				lists, started := p.metric("kbridge_lists_total"), p.metric("kbridge_lists_total", `reason="start"`)
				p.stop()
				events := readStream(t, server)
				d.check(events[before:], inferred)
				if err := difference(replay(t, events), want); err != nil {
					t.Error(err)
				}
				if started != 0 || !inferred && lists != 0 || inferred && lists != 1 {
					t.Errorf("%v lists, %v of them as at a first start", lists, started)
				}
			})
		}
	}
}

// restartAPIServer kills the API server and starts it again: it has no history then.
func restartAPIServer(t *testing.T, cluster *testcluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cluster.APIServer.Kill()
	if err := cluster.APIServer.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestKillsDuringTheFirstListLeaveAWholeSnapshot(t *testing.T) {
	const count = 3000
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	createMany(t, cluster, ns, count, strings.Repeat("payload ", 100))
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+natsSink(server, "window: {events: 20}"))
	for i := range 8 {
		time.Sleep(time.Duration(i) * 150 * time.Millisecond)
		p.mustRun()
		p.kill()
		if i == 5 {
			server.Pause() // or it is done before it is killed
			defer server.Resume()
		}
		p.again()
	}
	server.Resume()
	p.ready()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	holds(t, server, want)
	eventually(t, "the snapshot is completed", func() error {
		events := readStream(t, server)
		if last := events[len(events)-1]; last.Type != "dev.kbridge.snapshot.completed" {
			return fmt.Errorf("the last event is %s %s", last.Type, last.ID)
		}
		return nil
	})
	p.stop()
	events := readStream(t, server)
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	// A consumer that sweeps at the end what it had no event of since the first begin
	// still has all.
	for i, e := range events {
		if e.Type != "dev.kbridge.snapshot.completed" {
			continue
		}
		began := slices.IndexFunc(events, func(s cloudEvent) bool { return s.Type == "dev.kbridge.snapshot.started" && s.Snapshot == e.Snapshot })
		if err := difference(fold(events[began:i]), want); err != nil {
			t.Errorf("a consumer that sweeps after snapshot %s loses objects: %v", e.Snapshot, err)
		}
	}
	snapshotsOf(t, events)
}
