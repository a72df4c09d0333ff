package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/sinks"
)

// reasons are what is wrong with what, without what would keep the daemon from being ready.
func reasons(t *testing.T, d *daemon) (list []string) {
	t.Helper()
	for _, p := range d.problems() {
		if p.Unready {
			t.Errorf("it is not ready: %+v", p)
		}
		if p.Text == "" || p.Advice == "" || strings.ContainsAny(p.Text+p.Advice, "\n") {
			t.Errorf("%+v says nothing, or more than a line", p)
		}
		list = append(list, p.About+" "+p.Reason)
	}
	return list
}

func TestWhatShouldBeLookedAtIsToldThoughTheDaemonIsReady(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		api := scriptedapi.New()
		defer api.Close()
		api.Register(modelConfigMaps, "ConfigMap", true)
		put := func(name string) { api.Put(modelConfigMaps, scriptedapi.NewObject("a", name)) }
		put("first")
		cfg, err := config.Parse("x", []byte("cluster: test\nresources: [{resource: configmaps}]\nsinks: [{name: live, window: {events: 4}, foldAfter: 1s, stdout: {}}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		// What the sink does with events, each of which it answers in the end.
		var answer atomic.Pointer[func(done func(error))]
		set := func(f func(done func(error))) { answer.Store(&f) }
		set(func(done func(error)) { done(nil) })
		live := &fakeSink{name: "live", publish: func(_ context.Context, _ *event.Event, done func(error)) { (*answer.Load())(done) }}
		around := adapters{
			sink: func(context.Context, config.Sink) (sink, error) { return live, nil },
			deadLetters: func(config.Sink) (sinks.DeadLetters, error) {
				return fakeLetters(func(context.Context) error { return nil }), nil
			},
		}
		client, err := informer.NewClient(api.Config(), 1e6, 1e6, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		reg := prometheus.NewRegistry()
		d := newDaemon(cfg, cfg.Sinks, around, grace, reg, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.run(ctx, client) }()
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if got := reasons(t, d); !slices.Equal(got, want) {
				t.Errorf("%s it tells %q, want %q", when, got, want)
			}
		}
		time.Sleep(time.Minute)
		expect("when all is well")

		var held []func(error)
		set(func(done func(error)) { held = append(held, done) })
		put("held")
		time.Sleep(59 * time.Second)
		expect("before a minute has passed without an answer")
		time.Sleep(2 * time.Second)
		expect("after a minute without an answer", "sink live slow")
		if n := gathered(t, reg, "kbridge_ready"); n != 1 {
			t.Errorf("kbridge_ready is %v", n)
		}
		for i := range 8 {
			put(fmt.Sprint("more-", i))
		}
		time.Sleep(10 * time.Second)
		expect("when the window has been full for long", "sink live behind", "sink live slow")
		set(func(done func(error)) { done(nil) })
		synctest.Wait()
		for _, done := range held {
			done(nil)
		}
		time.Sleep(time.Minute)
		expect("when it has caught up")

		set(func(done func(error)) { done(sinks.Permanent(errors.New("never"))) })
		put("refused")
		synctest.Wait()
		set(func(done func(error)) { done(nil) })
		expect("with a dead letter", "sink live deadLetters")
		time.Sleep(9 * time.Minute)
		expect("nine minutes after it", "sink live deadLetters")
		time.Sleep(2 * time.Minute)
		expect("when it is no news any more")

		api.Down()
		time.Sleep(25 * time.Second)
		expect("when the API server has been away for 25 seconds")
		time.Sleep(10 * time.Second)
		p := d.problems()
		if len(p) != 1 || !p[0].Unready || p[0].About != "resource configmaps" || p[0].Reason != string(informer.Unreachable) || !strings.HasPrefix(p[0].Text, "cannot watch: ") || !strings.Contains(p[0].Text, "connection refused, since 2000-01-01T") {
			t.Errorf("when it has been away for 35 seconds: %+v", p)
		}
		if n := gathered(t, reg, "kbridge_watch_up"); n != 0 {
			t.Errorf("kbridge_watch_up is %v", n)
		}
		api.Up()
		time.Sleep(time.Minute)
		expect("when it is back")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// gathered is the value of a gauge without labels.
func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

func TestAFileThatIsOfNoUseAnyMoreIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a-token-for-those-who-may-look"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Server = config.Server{Address: "127.0.0.1:0", Auth: &config.Auth{TokenFile: file}}
	reg := prometheus.NewRegistry()
	log := &lockedBuffer{}
	d := newDaemon(&cfg, nil, adapters{}, grace, reg, slog.New(slog.NewTextHandler(log, nil)))
	stop, err := d.serve(reg, d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	told := func() bool {
		return slices.ContainsFunc(d.problems(), func(p status.Problem) bool { return p.About == "server" && p.Reason == "files" && !p.Unready })
	}
	if told() {
		t.Error("it is told before")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	get(t, "http://"+strings.TrimSpace(strings.SplitAfter(log.String(), "address=")[1])+"/metrics")
	if !told() {
		t.Errorf("it is not told: %+v", d.problems())
	}
}

func TestWhyTheClusterIsNotKnownIsSaidAsItIs(t *testing.T) {
	refused := fmt.Errorf("get namespace kube-system: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	denied := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "no"}}
	}
	for _, c := range []struct {
		err          error
		want, reason string
		setCluster   bool
	}{
		{refused, "cannot reach the API server: get namespace kube-system: dial tcp: connection refused", "unreachable", false},
		{denied(401, metav1.StatusReasonUnauthorized), "the API server refuses the credentials: no", "unauthorized", false},
		{denied(403, metav1.StatusReasonForbidden), "kbridge may not get the namespace kube-system, which identifies the cluster (set `cluster` to do without): no", "forbidden", true},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, "the API server's certificate is not trusted: ", "untrusted", false},
		{denied(500, metav1.StatusReasonInternalError), "the API server does not say what has to be known first: no", "failed", false},
	} {
		p := clusterProblem(c.err)
		if !strings.HasPrefix(p.Text, c.want) || p.Reason != c.reason || p.Advice == "" {
			t.Errorf("%v: %+v, want %s, %q", c.err, p, c.reason, c.want)
		}
		if strings.Contains(p.Text, "set `cluster`") != c.setCluster {
			t.Errorf("%v: it is said to set cluster: %s", c.err, p.Text)
		}
	}
}

func TestWhatKeepsAStartFromChoosingItsWatchesIsTold(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		api := scriptedapi.New()
		defer api.Close()
		api.Register(modelConfigMaps, "ConfigMap", true)
		busy := scriptedapi.Fail(503)
		api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if !strings.HasSuffix(r.Path, "/selfsubjectaccessreviews") {
				return nil
			}
			return &busy
		})
		cfg := config.Default()
		r := config.DefaultResource()
		r.Resource = "configmaps"
		for i := range config.ManyNamespaces + 1 {
			r.Namespaces = append(r.Namespaces, fmt.Sprint("n", i))
		}
		cfg.Cluster, cfg.Resources = "test", []config.Resource{r}
		client, err := informer.NewClient(api.Config(), 1e6, 1e6, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		d := newDaemon(&cfg, nil, adapters{}, grace, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- d.run(ctx, client) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Minute)
		p := d.problems()
		if len(p) == 0 || p[0].About != "API server" || p[0].Reason != string(informer.Overloaded) || !p[0].Unready {
			t.Errorf("while it is not answered: %+v", p)
		}
		api.OnRequest(nil) // it does not know the question, which is an answer
		time.Sleep(time.Minute)
		if p := d.problems(); len(p) > 0 || cfg.Resources[0].OneWatch {
			t.Errorf("when it is: %+v, one watch %t", p, cfg.Resources[0].OneWatch)
		}
		if n := api.Watches(modelConfigMaps); n != config.ManyNamespaces+1 {
			t.Errorf("%d watches", n)
		}
	})
}
