package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/tail"
)

// published starts an embedded server in the data directory and publishes one event
// to each sink, or to the embedded sink if none is given.
func published(t *testing.T, dataDir string, sinks ...config.Sink) (url string) {
	t.Helper()
	broker, err := embedded.Start(embedded.Options{Dir: embeddedDir(dataDir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	if len(sinks) == 0 {
		sinks = []config.Sink{embeddedConfig(broker.URL(), dataDir, 1<<20)}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, cfg := range sinks {
		cfg.NATS.URLs, cfg.NATS.NKey = []string{broker.URL()}, embedded.KeyFile(embeddedDir(dataDir))
		sink, err := openSink(ctx, cfg, io.Discard, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		d := event.Delta{
			Type:     event.Added,
			Resource: event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "configmaps", Kind: "ConfigMap"}),
			Object:   &event.Object{Namespace: "shop", Name: "of-" + cfg.Name, UID: "u", ResourceVersion: "7", Body: []byte(`{"apiVersion":"v1"}`)},
			Time:     time.Now(),
		}
		var e event.Event
		d.Encode(&e, event.Binary, nil)
		done := make(chan error, 1)
		sink.Publish(ctx, &e, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return broker.URL()
}

// kbridge runs a command line to its end.
func kbridge(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errs strings.Builder
	code = execute(ctx, args, &out, &errs)
	if ctx.Err() != nil {
		t.Fatalf("kbridge %s does not end\n%s%s", strings.Join(args, " "), &out, &errs)
	}
	return code, out.String(), errs.String()
}

func TestTailReadsTheEmbeddedServerOfItsDataDirectory(t *testing.T) {
	dir := t.TempDir()
	published(t, dir)
	code, out, errs := kbridge(t, "tail", "--data-dir", dir, "--since", "1h", "--count", "1")
	if code != 0 || !strings.Contains(out, "added     configmaps        shop/of-embedded          rv 7\n") || strings.Contains(out, "\x1b") {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	if !strings.HasPrefix(errs, "kbridge: reading stream KBRIDGE at nats://127.0.0.1:") {
		t.Errorf("stderr: %s", errs)
	}
	code, out, errs = kbridge(t, "tail", "--data-dir", dir, "--all", "--count", "1", "-o", "json")
	var e struct{ ID, Type, Name string }
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 || e.ID != "u.7" || e.Type != "dev.kbridge.object.added" || e.Name != "of-embedded" {
		t.Errorf("code %d, %v\n%s%s", code, err, out, errs)
	}
	if _, out, _ = kbridge(t, "tail", "--data-dir", dir, "--all", "--count", "1", "--color", "always"); !strings.Contains(out, "\x1b[32madded\x1b[0m") {
		t.Errorf("%q has no colour", out)
	}
}

func TestTailReadsTheEmbeddedServerBesideTheState(t *testing.T) {
	dir := t.TempDir()
	state, other := filepath.Join(dir, "state"), filepath.Join(dir, "other")
	published(t, state)
	file := filepath.Join(dir, "kbridge.yaml")
	text := fmt.Sprintf("resources: [{resource: configmaps}]\nstate: {file: {dir: '%s'}}\n", state)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := kbridge(t, "tail", "--config", file, "--all", "--count", "1")
	if code != 0 || !strings.Contains(out, "shop/of-embedded ") {
		t.Errorf("code %d\n%s%s", code, out, errs)
	}
	o := tailOptions{config: file, dataDir: other, dataDirGiven: true, output: "text", color: "auto"}
	read, err := o.reading(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read.Source.(tail.JetStream).Where(); err == nil || !strings.Contains(err.Error(), other+" has no address") {
		t.Errorf("with --data-dir: %v, want it to be looked for in %s", err, other)
	}
}

func TestTailReadsTheSinkOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	var sinks []config.Sink
	for _, name := range []string{"audit", "live"} {
		n := config.DefaultNATS()
		n.Stream.Name, n.Stream.Subjects, n.Subject = strings.ToUpper(name), []string{name + ".>"}, name+".{resource}.{name}"
		s := config.DefaultSink()
		s.Name, s.NATS = name, &n
		sinks = append(sinks, s)
	}
	url := published(t, dir, sinks...)
	write := func(names ...string) string {
		text := "resources: [{resource: configmaps}]\nsinks:\n"
		for _, name := range names {
			text += fmt.Sprintf("  - name: %s\n    nats: {urls: ['%s'], nkey: '%s', stream: {name: %s, subjects: [%s.>]}, subject: '%s.{name}'}\n", name, url, embedded.KeyFile(embeddedDir(dir)), strings.ToUpper(name), name, name)
		}
		file := filepath.Join(t.TempDir(), "kbridge.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, args := range [][]string{
		{"--config", write("live")},
		{"--config", write("audit", "live"), "--sink", "live"},
		{"--config", write("audit", "live"), "--sink", "live", "--filter", "live.*.of-live"},
	} {
		code, out, errs := kbridge(t, append([]string{"tail", "--all", "--count", "1"}, args...)...)
		if code != 0 || !strings.Contains(out, "shop/of-live ") {
			t.Errorf("%v: code %d\n%s%s", args, code, out, errs)
		}
	}
	both := write("audit", "live")
	for want, args := range map[string][]string{
		"--sink is required, as the sinks that can be read are audit, live":     {"--config", both},
		`--sink "x": no such sink; the sinks that can be read are audit, live`:  {"--config", both, "--sink", "x"},
		`--sink "x": no such sink; the configuration has no NATS or Kafka sink`: {"--sink", "x"},
	} {
		if code, _, errs := kbridge(t, append([]string{"tail"}, args...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}

func TestTailRefusesAWrongCommandLine(t *testing.T) {
	for want, args := range map[string][]string{
		`--output "yaml": expected text or json`:        {"-o", "yaml"},
		`--color "red": expected auto, always or never`: {"--color", "red"},
		`--count "-1"`: {"--count", "-1"},
		`--since "yesterday": expected a duration`: {"--since", "yesterday"},
		`--since "-5m"`:        {"--since", "-5m"},
		`--since beside --all`: {"--since", "5m", "--all"},
		`--filter "k8s.>.pods": expected a NATS subject`: {"--filter", "k8s.>.pods"},
		`--filter "k8s..pods"`:                           {"--filter", "k8s..pods"},
		`--filter "k8s.po*"`:                             {"--filter", "k8s.po*"},
		`--filter "a b"`:                                 {"--filter", "a b"},
		`--filter "knid=Pod": "knid=Pod" is none of`:     {"--filter", "knid=Pod"},
		`no-such-file.yaml`:                              {"--config", "no-such-file.yaml"},
		`"x": kbridge tail takes flags and nothing else`: {"x"},
	} {
		if code, _, errs := kbridge(t, append([]string{"tail"}, args...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}

func TestTailBeginsAtATimeOrADurationAgo(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{
		"10m":                  now.Add(-10 * time.Minute),
		"1h30m":                now.Add(-90 * time.Minute),
		"2026-11-30T04:18:07Z": time.Date(2026, 11, 30, 4, 18, 7, 0, time.UTC),
	} {
		if got, ok := parseSince(s, now); !ok || !got.Equal(want) {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
}

func TestTailOfAKafkaSinkTakesPatternsOfTopics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kbridge.yaml")
	text := "resources: [{resource: configmaps}]\nsinks:\n  - name: bus\n    kafka: {brokers: ['127.0.0.1:1']}\n  - name: out\n    stdout: {}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, filter := range []string{"", "k8s.core.*", "k8s.*.deployments", "k8s.core.[ps]*"} {
		o := tailOptions{config: file, filter: filter, output: "text", color: "auto"}
		read, err := o.reading(time.Now())
		if err != nil {
			t.Errorf("%q: %v", filter, err)
		} else if source, ok := read.Source.(tail.Kafka); !ok || source.Config.Brokers[0] != "127.0.0.1:1" || read.Filter != filter {
			t.Errorf("%q: got %+v", filter, read)
		}
	}
	for want, args := range map[string][]string{
		`--filter "k8s.core.>": expected a pattern of topics such as k8s.core.*`: {"--filter", "k8s.core.>"},
		`--filter "k8s.[a": expected a pattern of topics`:                        {"--filter", "k8s.[a"},
		"--sink out: it is no NATS or Kafka sink":                                {"--sink", "out"},
	} {
		if code, _, errs := kbridge(t, append([]string{"tail", "--config", file}, args...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: code %d, %s", args, code, errs)
		}
	}
}
