//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/bench/report"
	"github.com/kbridge-io/kbridge/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheConfigurationsAreValid(t *testing.T) {
	for name, p := range map[string]place{
		"stdout": file{}, "pipe": pipe{},
		"nats":  &stream{url: "nats://127.0.0.1:4222", name: "BENCH"},
		"kafka": &topic{address: "127.0.0.1:9092", name: "bench-1", compression: "zstd"},
	} {
		for _, s := range []setup{
			{kind: objects.Pods}, {kind: objects.Widgets, state: true, block: true}, {kind: objects.Pods, resync: time.Minute},
		} {
			s.dir = t.TempDir()
			sub := &subject{setup: s, place: p}
			cfg, err := config.Parse("bench", []byte(sub.configuration()))
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, sub.configuration())
				continue
			}
			if (cfg.State != nil) != s.state || (cfg.Sinks[0].WhenFull == config.WhenFullBlock) != s.block || cfg.Resources[0].Resync != s.resync {
				t.Errorf("%s: the configuration is not what is to be measured:\n%s", name, sub.configuration())
			}
		}
	}
}

func TestCasesOfGrowthRunOnlyWhenNamed(t *testing.T) {
	names := func(expression string) (list []string) {
		chosen, err := choose(expression)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chosen {
			list = append(list, c.name)
		}
		return list
	}
	for _, name := range names("") {
		if strings.HasPrefix(name, "growth") {
			t.Errorf("%s runs by default", name)
		}
	}
	if got := names("^growth"); len(got) != 3 {
		t.Errorf("growth is %v", got)
	}
	if _, err := choose("nonsense"); err == nil {
		t.Error("an expression without a case is no error")
	}
}

// A target of a figure that has another name would never be checked.
func TestTargetsAreOfFiguresThatThereAre(t *testing.T) {
	for _, target := range targets {
		if !slices.ContainsFunc(cases, func(c benchCase) bool { return c.name == target.Case }) {
			t.Errorf("there is no case %s", target.Case)
		}
	}
	docs, err := report.Read("../" + docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range docs.Check(targets) {
		if docs.Case(v.Case) != nil && v.Figure == nil {
			t.Errorf("%s has no figure %s: %s", v.Case, v.Subject, v.Metric)
		}
	}
}

// event is what kbridge would write of an object.
func event(kind string, sent int64) []byte {
	object := objects.Pods.Append(nil, objects.State{Index: 1, Version: 2, Sent: sent})
	return []byte(`{"specversion":"1.0","id":"x","type":"dev.kbridge.` + kind + `","data":` + string(object) + "}\n")
}

func TestOnlyChangesThatWereSentAtARateHaveAnAge(t *testing.T) {
	var a arrivals
	a.see(event("object.added", 0))
	a.see([]byte(`{"type":"dev.kbridge.snapshot.completed"}` + "\n"))
	a.see(event("object.updated", time.Now().Add(-time.Second).UnixNano()))
	ages, err := a.all()
	if err != nil || len(ages) != 1 || ages[0] < 1000 {
		t.Errorf("ages are %v (%v), want one of a second", ages, err)
	}
}

func TestAMessageWithAnUnreadableTimeIsAnError(t *testing.T) {
	var a arrivals
	a.see([]byte(`{"` + objects.SentKey + `":"soon"}`))
	if _, err := a.all(); err == nil {
		t.Error("no error")
	}
}

func TestAgesAreThoseWithinTheResyncThatIsAwaited(t *testing.T) {
	now := time.Now().UnixNano()
	marker := func(kind string) []byte {
		return []byte(`{"id":"s","type":"dev.kbridge.snapshot.` + kind + `"}` + "\n")
	}
	change := event("object.updated", now)
	var r resyncing
	see := func(messages ...[]byte) {
		for _, m := range messages {
			r.see(m)
		}
	}
	see(marker("started"), change) // of one that is under way when the wait begins
	r.move(unawaited, awaited)
	see(change, marker("completed"), change)
	if ages, _ := r.all(); len(ages) != 0 || !r.is(awaited) {
		t.Errorf("%d ages before the resync, want none", len(ages))
	}
	see(marker("started"), change, event("object.synced", 0), marker("completed"), change)
	if ages, _ := r.all(); len(ages) != 1 || !r.is(completed) {
		t.Errorf("%d ages, want that of the change between the markers", len(ages))
	}
}

func TestAPipeHandsOnLinesUntilItIsTold(t *testing.T) {
	p, err := openPipe(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	lines := make(chan string, 2)
	followed := make(chan error)
	go func() { followed <- p.follow(ctx, func(line []byte) { lines <- string(line) }) }()
	long := strings.Repeat("x", 100_000) + "\n"
	if _, err := io.WriteString(p.output(), "one\n"+long); err != nil {
		t.Fatal(err)
	}
	if one, two := <-lines, <-lines; one != "one\n" || two != long {
		t.Errorf("got %q and %d bytes", one, len(two))
	}
	stop()
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if err := p.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAProfileNeedsNoChangeOfKbridge(t *testing.T) {
	dir := t.TempDir()
	overlay, err := profileOverlay(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "kbridge")
	if err := goBuild(t.Context(), out, module+"/cmd/kbridge", "-overlay", overlay); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), profileVariable) {
		t.Error("the program that was built takes no profiles")
	}
}

func TestTheKubeconfigNamesTheServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(path, "https://127.0.0.1:1", "/ca.pem"); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Clusters["bench"]; c.Server != "https://127.0.0.1:1" || c.CertificateAuthority != "/ca.pem" || got.CurrentContext != "bench" {
		t.Errorf("the kubeconfig is %v", got)
	}
}
