package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

func TestEtcdThatIsTakenBackIsFollowed(t *testing.T) {
	cluster := testcluster.New(t)
	for _, up := range []bool{true, false} {
		t.Run(fmt.Sprintf("kbridge is up: %t", up), func(t *testing.T) {
			server := natsserver.New(t, "")
			ns := cluster.CreateNamespace(t)
			d := newDowntime(t, cluster.Dynamic(t), ns)
			// The stream's memory is short: an object that is back in an earlier state has
			// the id that it had then.
			p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+rawSink(server, ""))
			p.ready()
			p.stored()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			saved, err := cluster.SaveEtcd(ctx)
			if err != nil {
				t.Fatal(err)
			}
			earlier := serverState(t, cluster.Dynamic(t), configMaps, ns)
			d.pass()
			for i := range 100 {
				d.update("kept-0", fmt.Sprint(i+10))
			}
			holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
			p.stored()
			if !up {
				p.kill()
			}
			before := readStream(t, server)
			if err := cluster.RestoreEtcd(ctx, saved); err != nil {
				t.Fatal(err)
			}
			if !up {
				p.again()
			}
			want := serverState(t, cluster.Dynamic(t), configMaps, ns)
			if err := difference(want, earlier); err != nil {
				t.Fatalf("the restored state is another: %v", err)
			}
			holds(t, server, want)
			p.ready()
			if n := p.metric("kbridge_lists_total", `reason="behind"`); n == 0 {
				t.Error("no list because the server is behind")
			}
			// It goes on from there.
			d.update("kept-1", "after")
			d.delete("kept-2")
			want = serverState(t, cluster.Dynamic(t), configMaps, ns)
			holds(t, server, want)
			p.stop()
			got := map[string]string{}
			for _, e := range readStream(t, server)[len(before):] {
				got[e.Name] += fmt.Sprintf("%s %t ", e.short(), e.Inferred)
			}
			expected := map[string]string{"kept-0": "updated true ", "kept-1": "updated false ", "kept-2": "deleted false "}
			if !up {
				// What the one before had told after its last batch is not known: all is told again.
				for i := 1; i < perKind; i++ {
					name := fmt.Sprintf("kept-%d", i)
					expected[name] = "updated true " + expected[name]
				}
			}
			for i := range perKind {
				expected[fmt.Sprintf("deleted-%d", i)] = "added true "
				expected[fmt.Sprintf("updated-%d", i)] = "updated true "
				expected[fmt.Sprintf("recreated-%d", i)] = "deleted true added true "
				expected[fmt.Sprintf("last-updated-%d", i)] = "added true "
				expected[fmt.Sprintf("created-%d", i)] = "deleted true "
			}
			for name, w := range expected {
				if got[name] != w {
					t.Errorf("%s: got %q, want %q", name, got[name], w)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("events that nothing explains: %q", got)
			}
		})
	}
}

// The history that is restored is longer than the one that kbridge has seen when it looks:
// no version tells that it is another.
func TestEtcdThatIsTakenBackAndGrowsPastWhatWasSeenIsFollowed(t *testing.T) {
	cluster := testcluster.New(t)
	for _, how := range []string{"killed", "paused", "running"} {
		t.Run("kbridge is "+how, func(t *testing.T) {
			server := natsserver.New(t, "")
			ns := cluster.CreateNamespace(t)
			d := newDowntime(t, cluster.Dynamic(t), ns)
			p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+natsSink(server, ""))
			p.ready()
			p.stored()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			saved, err := cluster.SaveEtcd(ctx)
			if err != nil {
				t.Fatal(err)
			}
			d.pass()
			busy := func(what string) {
				for i := range 120 {
					d.update("kept-0", fmt.Sprint(what, i))
				}
			}
			busy("before ")
			holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
			p.stored()
			switch how {
			case "killed":
				p.kill()
			case "paused":
				p.child.Signal(syscall.SIGSTOP)
			}
			restored := make(chan error, 1)
			go func() { restored <- cluster.RestoreEtcd(ctx, saved) }()
			if err := <-restored; err != nil {
				t.Fatal(err)
			}
			busy("after ")
			for i := range 100 {
				d.update("kept-1", fmt.Sprint("after ", i))
			}
			d.delete("kept-2")
			d.create("new")
			switch how {
			case "killed":
				p.again()
			case "paused":
				p.child.Signal(syscall.SIGCONT)
			}
			holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
			p.ready()
			// And it is the one that goes on.
			d.update("kept-3", "later")
			d.delete("new")
			holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
			p.stop()
		})
	}
}

func TestAComparisonOnAScheduleTellsItsOutcome(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	newDowntime(t, cluster.Dynamic(t), ns)
	p := start(t, cluster, fmt.Sprintf(`
cluster: test
resources:
  - {resource: configmaps, namespaces: [%s], verify: 1m}
`, ns)+stateIn(t.TempDir())+natsSink(server, ""))
	p.ready()
	c := startChurn(t, cluster, ns, 2, "x")
	var verified cloudEvent
	eventually(t, "a comparison is told", func() error {
		events := readStream(t, server)
		i := slices.IndexFunc(events, func(e cloudEvent) bool { return e.Type == "dev.kbridge.verified" })
		if i < 0 {
			return fmt.Errorf("none of %d events", len(events))
		}
		verified = events[i]
		return nil
	})
	c.end()
	var data struct {
		Compared, Differed *int
		ResourceVersion    string
		Scope              struct {
			Entry      string
			Namespaces []string
		}
	}
	if err := json.Unmarshal(verified.Data, &data); err != nil {
		t.Fatal(err)
	}
	if data.Compared == nil || *data.Compared < 5*perKind || data.Differed == nil || *data.Differed != 0 || data.ResourceVersion == "" ||
		data.Scope.Entry != "configmaps" || !slices.Equal(data.Scope.Namespaces, []string{ns}) || verified.Namespace != ns {
		t.Errorf("it says %s", verified.Data)
	}
	if n := p.metric("kbridge_lists_total", `reason="differs"`); n != 0 {
		t.Errorf("%v lists because of changes that came meanwhile", n)
	}
	p.stop()
}

// exchange is an address behind which one cluster can be exchanged for another.
type exchange struct {
	listener net.Listener
	mu       sync.Mutex
	upstream string
	conns    map[net.Conn]struct{}
	running  sync.WaitGroup
}

func newExchange(t *testing.T, upstream string) *exchange {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &exchange{listener: l, upstream: upstream, conns: map[net.Conn]struct{}{}}
	x.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			x.running.Go(func() { x.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		x.to("")
		x.running.Wait()
	})
	return x
}

// to ends all connections; the next ones go to another upstream.
func (x *exchange) to(upstream string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.upstream = upstream
	for conn := range x.conns {
		conn.Close()
	}
}

func (x *exchange) serve(conn net.Conn) {
	defer conn.Close()
	x.mu.Lock()
	upstream := x.upstream
	x.mu.Unlock()
	up, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer up.Close()
	x.mu.Lock()
	if x.upstream != upstream {
		x.mu.Unlock()
		return
	}
	x.conns[conn], x.conns[up] = struct{}{}, struct{}{}
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.conns, conn)
		delete(x.conns, up)
	}()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(conn, up)
		conn.Close()
	})
	_, _ = io.Copy(up, conn)
	up.Close()
	back.Wait()
}

// kubeconfig writes one for the address, which does not ask whose certificate it is.
func (x *exchange) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://%s', insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: '%s'}}]
`, x.listener.Addr(), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEtcdThatIsTakenBackWhileTheBrokerIsAwayIsFollowedAfterARestart(t *testing.T) {
	cluster := testcluster.New(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	d := newDowntime(t, cluster.Dynamic(t), ns)
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+rawSink(server, ""))
	p.ready()
	p.stored()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	saved, err := cluster.SaveEtcd(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d.pass()
	holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
	p.stored()
	server.Kill()
	for i := range perKind { // this stays under way
		d.update(fmt.Sprintf("updated-%d", i), "away")
	}
	if err := cluster.RestoreEtcd(ctx, saved); err != nil {
		t.Fatal(err)
	}
	eventually(t, "kbridge lists because the server is behind", func() error {
		if n := p.metric("kbridge_lists_total", `reason="behind"`); n == 0 {
			return fmt.Errorf("%v lists", n)
		}
		return nil
	})
	p.stored()
	p.kill()
	server.Start()
	p.again()
	p.ready()
	d.update("kept-0", "after") // the watch reaches what was there at the start
	// What the sink has of the objects is newer than what is there.
	holds(t, server, serverState(t, cluster.Dynamic(t), configMaps, ns))
	p.stop()
}

func TestAnotherClusterBehindTheSameAddressIsNoticed(t *testing.T) {
	clusters := []*testcluster.Cluster{testcluster.New(t), testcluster.New(t)}
	address := func(c *testcluster.Cluster) string { return strings.TrimPrefix(c.URL, "https://") }
	newDowntime(t, clusters[0].Dynamic(t), "default")
	other := &downtime{t: t, in: clusters[1].Dynamic(t).Resource(configMaps).Namespace("default"), namespace: "default"}
	for i := range 5 {
		other.create(fmt.Sprintf("kept-%d", i)) // names that the first one has too
		other.create(fmt.Sprintf("other-%d", i))
	}
	states := make([]state, 2)
	for i, c := range clusters {
		states[i] = serverState(t, c.Dynamic(t), configMaps, "default")
	}
	server := natsserver.New(t, "")
	x := newExchange(t, address(clusters[0]))
	p := prepare(t, x.kubeconfig(t, clusters[0].Config().BearerToken), configMapsOf("default")+stateIn(t.TempDir())+rawSink(server, ""))
	p.again()
	p.ready()
	p.stored()
	now := 0
	exchanged := func(what string, do func()) {
		t.Helper()
		before := len(readStream(t, server))
		do()
		was := states[now]
		now = 1 - now
		want := states[now]
		p.ready()
		holds(t, server, want)
		p.stored()
		kinds := map[string]int{}
		for _, e := range readStream(t, server)[before:] {
			kinds[e.short()]++
			if !e.Inferred {
				t.Errorf("%s: %s %s is not inferred", what, e.Type, e.object())
			}
		}
		if kinds["deleted"] != len(was) || kinds["added"] != len(want) || len(kinds) != 2 {
			t.Errorf("%s: %v, want %d deleted and %d added", what, kinds, len(was), len(want))
		}
	}
	exchanged("while kbridge was down", func() {
		p.stop()
		x.to(address(clusters[1]))
		p.again()
	})
	exchanged("while kbridge was up", func() {
		before := len(p.logs.String())
		x.to(address(clusters[0]))
		if code := p.exitCode(); code != 1 {
			t.Errorf("kbridge ended with %d, want 1", code)
		}
		if said := p.logs.String()[before:]; !strings.Contains(said, "another cluster answers at") {
			t.Errorf("kbridge does not say that it is another cluster:\n%s", said)
		} else if strings.Contains(said, `msg="stopped`) {
			t.Errorf("it says that all is well before it says what is wrong:\n%s", said)
		}
		p.again()
	})
	p.stop()
	replay(t, distinct(t, readStream(t, server)[:2*len(states[0])+len(states[1])+2+len(states[1])]))
}

func TestACustomResourceThatIsDefinedAnewIsFollowed(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	const group, plural = "anew.kbridge.dev", "gadgets"
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	client := cluster.Dynamic(t)
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
	define := func() {
		t.Helper()
		cluster.ApplyCRD(t, group, plural, "Gadget", testcluster.Namespaced)
	}
	undefine := func() {
		t.Helper()
		if err := client.Resource(crds).Delete(t.Context(), plural+"."+group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the custom resource is gone", func() error {
			_, err := client.Resource(crds).Get(t.Context(), plural+"."+group, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it is there, or: %w", err)
		})
	}
	create := func(n int) {
		t.Helper()
		for i := range n {
			eventually(t, "an object is created", func() error {
				_, err := client.Resource(gvr).Namespace(ns).Create(t.Context(), object(group+"/v1", "Gadget", ns, fmt.Sprintf("g-%d", i), nil), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil
				}
				return err
			})
		}
	}
	check := func() {
		t.Helper()
		want := serverState(t, client, gvr, ns)
		holds(t, server, want)
		events := readStream(t, server)
		if err := difference(replay(t, events), want); err != nil {
			t.Error(err)
		}
		deletesAreComplete(t, events, want)
	}
	define()
	create(5)
	p := start(t, cluster, fmt.Sprintf("\ncluster: test\nresources:\n  - {group: %s, resource: %s, namespaces: [%s]}\n", group, plural, ns)+stateIn(t.TempDir())+rawSink(server, ""))
	p.ready()
	check()

	// While it is up, and for so long that it asks in vain, and again.
	failed := p.metric("kbridge_list_watch_errors_total")
	undefine()
	holds(t, server, state{})
	eventually(t, "kbridge asks for the resource in vain", func() error {
		if n := p.metric("kbridge_list_watch_errors_total") - failed; n < 2 {
			return fmt.Errorf("%v errors", n)
		}
		return nil
	})
	define()
	create(3)
	check()

	// While it is down.
	p.stored()
	p.kill()
	undefine()
	define()
	create(4)
	p.again()
	p.ready()
	check()

	// While it is down, and not there when it starts.
	p.stored()
	p.kill()
	undefine()
	p.again()
	eventually(t, "kbridge says that it waits for the resource", func() error {
		body, err := p.get("/readyz")
		if err == nil || !strings.Contains(body, plural) {
			return fmt.Errorf("%w: %s", err, body)
		}
		return nil
	})
	define()
	create(2)
	p.ready()
	check()
	p.stop()
}

func TestEverythingAtOnce(t *testing.T) {
	const length = 60 * time.Second
	cluster := testcluster.New(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	p := start(t, cluster, configMapsOf(ns)+stateIn(t.TempDir())+natsSink(server, "foldAfter: 2s\n    window: {events: 500}"))
	p.ready()
	c := startChurn(t, cluster, ns, 4, "x")
	ctx, cancel := context.WithTimeout(t.Context(), length+patience)
	defer cancel()
	pause := func(most time.Duration) { time.Sleep(time.Duration(rand.Int64N(int64(most)))) }
	startAPIServer := func() {
		if err := cluster.APIServer.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	done := map[string]int{}
	var kills []time.Time
	for end := time.Now().Add(length); time.Now().Before(end); {
		pause(2 * time.Second)
		what := []string{"kbridge", "broker", "API server", "both", "all"}[rand.IntN(5)]
		done[what]++
		if what != "kbridge" && what != "API server" {
			server.Kill()
		}
		if what == "all" {
			pause(time.Second) // then much is under way that no broker will acknowledge any more
		}
		if what == "kbridge" || what == "all" {
			p.mustRun()
			p.kill()
			kills = append(kills, time.Now())
		}
		if what != "kbridge" && what != "broker" {
			cluster.APIServer.Kill()
		}
		pause(time.Second)
		// What comes back first, and what kbridge finds, is a matter of chance too.
		if !p.child.Running() && rand.IntN(2) == 0 {
			p.again()
		}
		if what == "broker" || what == "both" || what == "all" {
			pause(3 * time.Second)
			server.Start()
		}
		startAPIServer()
		if !p.child.Running() {
			p.again()
		}
	}
	c.goesOn(t, 100)
	changes := c.end()
	want := serverState(t, cluster.Dynamic(t), configMaps, ns)
	// The one hole: what was announced right before a kill, see docs/GUARANTEES.md.
	lost := map[string]bool{}
	known := func() []cloudEvent {
		events := readStream(t, server)
		late := announcedBefore(events, kills)
		clear(lost)
		maps.Copy(lost, late)
		for _, v := range want {
			delete(lost, v[0])
		}
		for _, e := range events {
			if e.short() == "deleted" {
				delete(lost, e.UID)
			}
		}
		// What is there of these is announced once more, as far as it has changed.
		announced := map[string]bool{}
		for i, e := range events {
			if e.short() == "added" && e.Inferred && late[e.UID] && announced[e.UID] {
				events[i].Type = "dev.kbridge.object.updated"
			}
			announced[e.UID] = true
		}
		return slices.DeleteFunc(knownDeletes(t, events, changes, kills), func(e cloudEvent) bool { return lost[e.UID] })
	}
	eventually(t, "the consumer's state is the API server's", func() error { return difference(fold(known()), want) })
	p.stop()
	events := known()
	if err := difference(replay(t, events), want); err != nil {
		t.Error(err)
	}
	deletesAreComplete(t, events, want)
	t.Logf("%d deletions were lost after a kill, with the API server's history", len(lost))
	inferred := 0
	for _, e := range events {
		if e.Inferred {
			inferred++
		}
	}
	t.Logf("%v; %d confirmed changes, %d events, %d of them inferred", done, len(changes), len(events), inferred)
}

// announcedBefore are the objects whose first event came so shortly before a kill
// that the state may not know them.
func announcedBefore(events []cloudEvent, kills []time.Time) map[string]bool {
	late, seen := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		if e.marker() || seen[e.UID] {
			continue
		}
		seen[e.UID] = true
		late[e.UID] = slices.ContainsFunc(kills, func(k time.Time) bool {
			// A second where all is well; longer where an older event was being tried again.
			return e.stored.Before(k) && k.Sub(e.stored) < 15*time.Second
		})
	}
	maps.DeleteFunc(late, func(_ string, is bool) bool { return !is })
	return late
}
