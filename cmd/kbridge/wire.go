package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kbridge-io/kbridge/bridge"
	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/spill"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/internal/tracing"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/kafka"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/stdout"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/file"
)

// embeddedSink is the name of the sink that goes to the in-process server.
const embeddedSink = "embedded"

// sink is what the daemon asks of a sink beside its contract.
type sink interface {
	sinks.Sink
	// Err is nil when events can be delivered, and else says why not.
	Err() error
}

// adapters open what is outside of the process beside the API server.
type adapters struct {
	sink        func(context.Context, config.Sink) (sink, error)
	deadLetters func(config.Sink) (sinks.DeadLetters, error)
	state       func(context.Context, config.State) (state.Store, error)
	aside       func(config.State) (*spill.File, error) // once the state is open
	tracer      func(config.Tracing) (*tracing.Tracer, error)
}

// adaptersOf are those of a process that keeps its files in dataDir and prints to out.
func adaptersOf(dataDir string, out io.Writer, reg prometheus.Registerer, log *slog.Logger) adapters {
	return adapters{
		sink:        func(ctx context.Context, cfg config.Sink) (sink, error) { return openSink(ctx, cfg, out, log) },
		deadLetters: func(cfg config.Sink) (sinks.DeadLetters, error) { return openDeadLetters(cfg, dataDir) },
		state: func(ctx context.Context, cfg config.State) (state.Store, error) {
			return openState(ctx, cfg.File.Dir, log)
		},
		aside: func(cfg config.State) (*spill.File, error) { return spill.Open(cfg.File.Dir, reg, log) },
		tracer: func(cfg config.Tracing) (*tracing.Tracer, error) {
			collector, err := tracing.OTLP(cfg.OTLPEndpoint, version)
			if err != nil {
				return nil, err
			}
			return tracing.New(cfg.SampleRatio, collector, version, reg, log), nil
		},
	}
}

// openSink starts the sink of one entry of the configuration. A broker that can not
// be reached is not an error here.
func openSink(ctx context.Context, cfg config.Sink, out io.Writer, log *slog.Logger) (sink, error) {
	switch {
	case cfg.NATS != nil:
		return nats.Open(ctx, cfg.Name, *cfg.NATS, log)
	case cfg.Kafka != nil:
		return kafka.Open(ctx, cfg.Name, *cfg.Kafka, log)
	case cfg.Stdout != nil:
		return stdout.Open(cfg.Name, out), nil
	default:
		return nil, fmt.Errorf("BUG: sink %s is of no kind", cfg.Name)
	}
}

// checkSink notes what openSink, and what publishes to the sink, would meet.
func checkSink(ctx context.Context, cfg config.Sink, samples []sinks.Sample, found *check.Subject) {
	switch {
	case cfg.NATS != nil:
		nats.Check(ctx, cfg, samples, found)
	case cfg.Kafka != nil:
		kafka.Check(ctx, cfg, samples, found)
	case cfg.Stdout != nil:
		found.OK("events are printed")
	}
}

// output is one sink with its lane and its dead letters.
type output struct {
	sink  sink
	lane  *bridge.Lane
	dead  sinks.DeadLetters
	entry config.Sink
	// deadLetterTarget is the file or the subject that has the dead letters.
	deadLetterTarget string
}

// openDeadLetters prepares the place for what the sink refuses for good.
func openDeadLetters(cfg config.Sink, dataDir string) (sinks.DeadLetters, error) {
	if cfg.DeadLetter.Subject != "" {
		return nats.OpenDeadLetters(*cfg.NATS, cfg.DeadLetter.Subject), nil
	}
	return bridge.OpenDeadLetters(deadLetterFile(cfg, dataDir))
}

// deadLetterFile is where the dead letters go that have no subject.
func deadLetterFile(cfg config.Sink, dataDir string) string {
	if cfg.DeadLetter.File != "" {
		return cfg.DeadLetter.File
	}
	return filepath.Join(dataDir, "dead", cfg.Name+".jsonl")
}

// newOutput opens a sink and puts a lane before it.
func newOutput(ctx context.Context, outside adapters, cfg config.Sink, tracer *tracing.Tracer, metrics *bridge.Metrics, tail *status.Tail, log *slog.Logger) (*output, error) {
	dead, err := outside.deadLetters(cfg)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", cfg.Name, err)
	}
	s, err := outside.sink(ctx, cfg)
	if err != nil {
		return nil, err
	}
	format := event.Structured
	if cfg.Format == config.FormatBinary {
		format = event.Binary
	}
	lane := bridge.NewLane(bridge.Options{
		Sink: s, Format: format,
		MaxBytes: int64(cfg.Window.Bytes), MaxEvents: cfg.Window.Events,
		Fold: cfg.WhenFull == config.WhenFullFold, FoldAfter: cfg.FoldAfter,
		Truncate:    cfg.Oversize == config.OversizeTrim,
		Poison:      bridge.Poison{Attempts: cfg.Poison.Attempts, After: cfg.Poison.After},
		DeadLetters: dead, Tracer: tracer, Metrics: metrics, Tail: tail, Log: log,
	})
	o := &output{sink: s, lane: lane, dead: dead, entry: cfg}
	if t, ok := dead.(interface{ Target() string }); ok {
		o.deadLetterTarget = t.Target()
	}
	return o, nil
}

// gone is closed when the sink can never deliver again; nil for a sink that always may.
func (o *output) gone() <-chan struct{} {
	if s, ok := o.sink.(interface{ Gone() <-chan struct{} }); ok {
		return s.Gone()
	}
	return nil
}

// drain waits until the lane is empty, ctx ends, or the sink is gone. kept says that
// the state keeps what the sink is behind on.
func (o *output) drain(ctx context.Context, kept bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if gone := o.gone(); gone != nil {
		waiting := make(chan struct{})
		go func() {
			defer close(waiting)
			select {
			case <-gone:
				cancel(o.sink.Err())
			case <-ctx.Done():
			}
		}()
		defer func() { cancel(nil); <-waiting }()
	}
	return o.lane.Drain(ctx, kept)
}

// openState opens the state's file, and makes it smaller where most of it is free.
func openState(ctx context.Context, dir string, log *slog.Logger) (state.Store, error) {
	s, err := file.Open(ctx, dir, func() {
		log.Warn("another process has the state open: waiting for it to end", "dir", dir)
	})
	if err != nil {
		return nil, err
	}
	c, err := s.Compaction()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if !c.Worth {
		return s, nil
	}
	log.Info("most of the state's file is free: writing it anew", "dir", dir, "bytes", c.Size, "free", c.Free)
	began := time.Now()
	size, err := s.Compact()
	if err != nil {
		// It is as good as before, but for its size.
		log.Warn("the state's file stays as large as it is, until the next start", "err", err)
		return s, nil
	}
	log.Info("the state's file is smaller", "bytes", size, "took", time.Since(began).Round(time.Millisecond))
	return s, nil
}

// newInformer makes the informer of one entry of the configuration, with a port in
// the lane of each of its sinks.
func newInformer(client *informer.Client, cluster string, history *event.History, r config.Resource, entry string, outputs []*output, keeper *bridge.Keeper, view func(namespace string) state.ViewID, aside *spill.File, delivery context.Context, metrics *informer.Metrics, log *slog.Logger) (*selected, error) {
	var types []event.Type
	for _, name := range r.Types {
		t, ok := event.ParseType(string(name))
		if !ok {
			return nil, fmt.Errorf("BUG: resource %s: unknown type %s", r.GroupResource(), name)
		}
		types = append(types, t)
	}
	s := &selected{}
	var err error
	s.informer, err = informer.New(informer.Options{
		Client: client, Cluster: cluster, History: history, Resource: r, Entry: entry,
		Handler: func(v informer.View) (informer.Handler, *informer.Known, error) {
			var ports []*bridge.Port
			for _, o := range outputs {
				if r.SendsTo(o.entry.Name) {
					ports = append(ports, o.lane.NewPort(entry, v.Resource, v.Namespace, types))
				}
			}
			if keeper == nil {
				feed := bridge.NewFeed(v.Index, ports...)
				s.add(feed)
				return feed, nil, nil
			}
			feed, known, err := keeper.Load(view(v.Namespace), v.Resource.Version, bridge.Rules{Name: v.Rules, Rescan: v.Rescan, Only: v.Only}, v.Index, ports...)
			if err != nil {
				return nil, nil, err
			}
			s.add(feed)
			return feed, &informer.Known{
				Objects: known.Objects, Position: known.Position, Listed: known.Listed,
				Snapshot: known.Snapshot, Again: known.Again,
			}, nil
		},
		Delivery: delivery, Aside: aside, Metrics: metrics, Log: log,
	})
	return s, err
}

// kubeConfig finds the API server as kubectl does: --kubeconfig, KUBECONFIG, the
// pod's service account, ~/.kube/config.
func kubeConfig(file, kubeContext string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext}).ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no API server is configured: give --kubeconfig, set KUBECONFIG, or run inside a cluster")
		}
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	cfg.UserAgent = "kbridge/" + version
	return cfg, nil
}

// insecureServer warns of what lets somebody on the way to the API server read or be it.
func insecureServer(cfg *rest.Config) []string {
	var warnings []string
	if cfg.Insecure {
		warnings = append(warnings, "kubeconfig: any certificate of the API server is accepted, so whoever is on the way can be it")
	}
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return warnings // what is wrong is told when it is connected to
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		warnings = append(warnings, fmt.Sprintf("kubeconfig: %s is spoken to without TLS, so whoever is on the way can read, and be the API server", u.Host))
	}
	return warnings
}

// defaultDataDir is where the embedded broker and the dead letters are kept unless
// the command line says otherwise.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "kbridge")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "kbridge")
	}
	return "kbridge-data"
}

// embeddedDir is where the in-process server keeps its files.
func embeddedDir(dataDir string) string { return filepath.Join(dataDir, "embedded") }

// embeddedConfig is the sink that goes to the in-process server.
func embeddedConfig(url, dataDir string, maxBytes int64) config.Sink {
	n := config.DefaultNATS()
	n.URLs, n.NKey = []string{url}, embedded.KeyFile(embeddedDir(dataDir))
	n.Stream.MaxBytes = config.Size(maxBytes)
	s := config.DefaultSink()
	s.Name, s.NATS = embeddedSink, &n
	return s
}

// registerWarnings says in the metrics of how much the configuration is warned.
func registerWarnings(reg prometheus.Registerer, count int) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "kbridge_config_warnings", Help: "Warnings about the configuration and the kubeconfig at the start; the log has them."})
	g.Set(float64(count))
	reg.MustRegister(g)
}

// registerBuild says in the metrics which build this is.
func registerBuild(reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kbridge_build_info", Help: "1, with the version as a label.",
		ConstLabels: prometheus.Labels{"version": version},
	}, func() float64 { return 1 }))
}
