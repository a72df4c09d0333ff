package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kbridge-io/kbridge/bridge"
	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/cause"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/monitor"
	"github.com/kbridge-io/kbridge/internal/spill"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/internal/tracing"
	"github.com/kbridge-io/kbridge/state"
)

// runOptions are the flags of `kbridge run`.
type runOptions struct {
	place     place
	config    string
	grace     time.Duration
	logFormat string
	logLevel  logLevel
}

// The embedded server's limits, in bytes: its stream forgets the oldest events
// before the store is full.
const (
	embeddedStore  = 2 << 30
	embeddedStream = 1 << 30
)

// mostGrace bounds the grace period, to which other times are added.
const mostGrace = 24 * time.Hour

func runCommand(stdout, stderr io.Writer) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Watches and publishes until it is stopped",
		Long: `Watches and publishes until it is stopped.

With no sink in the configuration, or with --embedded, kbridge starts a
nats-server with JetStream on 127.0.0.1 and publishes there; 'kbridge tail'
shows the events. It lets in who may read the nkey in DATA-DIR/embedded.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(stderr, o.logFormat, o.logLevel.Level)
			if err != nil {
				return usageError{err}
			}
			if o.grace < 0 || o.grace > mostGrace {
				return usageError{fmt.Errorf("--grace-period %s: expected 0 to %s", o.grace, mostGrace)}
			}
			cfg, err := loadConfig(o.config)
			if err != nil {
				return err
			}
			boundMemory(log)
			defer ignoreHangup(log)()
			return within(cmd.Context(), o.grace+closeWithin+lastWords, func() error { return run(cmd.Context(), cfg, o, stdout, log) })
		},
	}
	configFlag(cmd, &o.config)
	o.place.flags(cmd)
	cmd.Flags().DurationVar(&o.grace, "grace-period", 25*time.Second, "how long a stop may take: what was read is published before it ends, or stored where there is state")
	cmd.Flags().StringVar(&o.logFormat, "log-format", "text", "text or json")
	cmd.Flags().Var(&o.logLevel, "log-level", "debug, info, warn or error; debug also logs what is published, without bodies and a few events a second")
	return cmd
}

// ignoreHangup has SIGHUP, with which others are told to read their configuration again, and
// which a terminal sends when it is closed, end nothing. It returns how to end that.
func ignoreHangup(log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var listening sync.WaitGroup
	listening.Go(func() {
		for range hangups {
			log.Info("SIGHUP: nothing is done, the configuration is read at a start")
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		listening.Wait()
	}
}

// run is the daemon: it builds the parts, runs them until ctx ends or one of them
// fails, and stops them in order.
func run(ctx context.Context, cfg *config.Config, o runOptions, out io.Writer, log *slog.Logger) (err error) {
	kube, err := kubeConfig(o.place.kubeconfig, o.place.kubeContext)
	if err != nil {
		return err
	}
	insecure := insecureServer(kube)
	if cfg.Strict && len(insecure) > 0 {
		return usageError{fmt.Errorf("%s, expected nothing to warn of, as strict is true", strings.Join(insecure, "; "))}
	}
	warnings := append(cfg.Warnings(), insecure...)
	for _, warning := range warnings {
		log.Warn("configuration: " + warning)
	}
	client, err := informer.NewClient(kube, float32(cfg.Kubernetes.QPS), cfg.Kubernetes.Burst, log)
	if err != nil {
		return err
	}
	defer client.Close()
	client.MaxObject = int(cfg.Kubernetes.MaxObject)

	dataDir := o.place.data(cfg)
	entries := cfg.Sinks
	if o.place.isEmbedded(cfg) {
		broker, err := embedded.Start(embedded.Options{Dir: embeddedDir(dataDir), MaxBytes: embeddedStore, Log: log})
		if err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, await("the embedded server", time.Now().Add(closeWithin), stopping(broker.Stop)))
		}()
		log.Info("embedded nats-server started", "url", broker.URL(), "dir", dataDir)
		entries = []config.Sink{embeddedConfig(broker.URL(), dataDir, embeddedStream)}
	}

	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registerBuild(reg)
	registerWarnings(reg, len(warnings))
	d := newDaemon(cfg, entries, adaptersOf(dataDir, out, reg, log), o.grace, reg, log)
	d.server = client.Host()
	stop, err := d.serve(reg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return d.run(ctx, client)
}

// daemon holds the parts that run. Its order of ending is fixed: see stop.
type daemon struct {
	cfg             *config.Config
	sinks           []config.Sink // those of cfg, or the embedded one
	outside         adapters
	log             *slog.Logger
	grace           time.Duration
	reg             prometheus.Registerer
	laneMetrics     *bridge.Metrics
	informerMetrics *informer.Metrics

	started time.Time
	server  string // the API server's address
	tail    *status.Tail
	access  *monitor.Access // nil: there is no HTTP server
	until   time.Time       // when all should have ended; zero before stop

	names []string // what metrics call the entries of cfg

	mu       sync.Mutex     // guards what /readyz and /statusz read while it is built
	debug    string         // where profiles are served
	cluster  error          // why the API server does not say what has to be known of it first
	name     string         // the cluster's
	keeper   *bridge.Keeper // nil: there is no state
	outputs  []*output      // in the order of sinks
	selected []*selected    // in the order of the configuration's resources
}

func newDaemon(cfg *config.Config, sinks []config.Sink, outside adapters, grace time.Duration, reg prometheus.Registerer, log *slog.Logger) *daemon {
	d := &daemon{
		cfg: cfg, sinks: sinks, outside: outside, log: log, grace: grace, reg: reg,
		laneMetrics: bridge.NewMetrics(reg), informerMetrics: informer.NewMetrics(reg),
		started: time.Now().UTC(), tail: &status.Tail{}, names: entryNames(cfg.Resources),
	}
	reg.MustRegister(readiness{d})
	return d
}

func (d *daemon) run(ctx context.Context, client *informer.Client) (err error) {
	cfg := d.cfg
	// The sinks' context outlives ctx: what was read is still published.
	publishing, stopPublishing := context.WithCancel(context.Background())
	defer stopPublishing()
	reading, stopReading := context.WithCancelCause(ctx)
	defer stopReading(nil)

	var tracer *tracing.Tracer
	if cfg.Tracing != nil {
		if tracer, err = d.outside.tracer(*cfg.Tracing); err != nil {
			return err
		}
		defer d.endTracing(tracer)
	}
	var store state.Store
	var aside *spill.File
	if cfg.State != nil {
		if store, err = d.outside.state(ctx, *cfg.State); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, await("closing the state", d.end(), store.Close)) }()
		if aside, err = d.outside.aside(*cfg.State); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, await("closing the index's file", d.end(), aside.Close)) }()
	}
	var lanes, watches, keeping sync.WaitGroup
	defer func() {
		stopReading(nil)
		err = errors.Join(err, d.stop(err, stopPublishing, &watches, &lanes, &keeping))
	}()
	for _, entry := range d.sinks {
		output, err := newOutput(publishing, d.outside, entry, tracer, d.laneMetrics, d.tail, d.log)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.outputs = append(d.outputs, output)
		d.mu.Unlock()
		lanes.Go(func() {
			if err := output.lane.Run(publishing); err != nil {
				stopReading(err)
			}
		})
		if gone := output.gone(); gone != nil {
			lanes.Go(func() {
				select {
				case <-gone:
					stopReading(fmt.Errorf("sink %s: %w", entry.Name, output.sink.Err()))
				case <-publishing.Done():
				}
			})
		}
	}

	uid, err := d.awaitCluster(reading, client, cfg.Cluster != "")
	if err != nil {
		return nil // stopped while waiting
	}
	client.Expect(uid, func(err error) { stopReading(err) })
	if err := d.chooseWatches(reading, client); err != nil {
		return nil // stopped while waiting
	}
	cluster := cfg.Cluster
	if cluster == "" {
		cluster = uid
	}
	d.mu.Lock()
	d.name = cluster
	d.mu.Unlock()
	var watched views
	history := &event.History{}
	if store != nil {
		stored, err := store.Contents()
		if err != nil {
			return err
		}
		history.Continue(stored.Epoch)
		watched = assignViews(cfg.Resources, d.sinks, stored)
		rules, err := watched.rules(cfg.Resources)
		if err != nil {
			return err
		}
		if err := store.Retain(rules, watched.lanes); err != nil {
			return err
		}
		keeper := bridge.NewKeeper(store, uid, history, d.reg, d.log)
		d.mu.Lock()
		d.keeper = keeper
		d.mu.Unlock()
		// It ends with the lanes: what they bring in while they drain is stored.
		keeping.Go(func() {
			if err := keeper.Run(publishing); err != nil {
				stopReading(err)
			}
		})
	}
	d.log.Info("watching", "server", client.Host(), "cluster", cluster, "resources", len(cfg.Resources), "sinks", len(d.sinks))
	for n, r := range cfg.Resources {
		view := func(namespace string) state.ViewID { return watched.names[viewKey{n, namespace}] }
		s, err := newInformer(client, cluster, history, r, d.names[n], d.outputs, d.keeper, view, aside, publishing, d.informerMetrics, d.log)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.selected = append(d.selected, s)
		d.mu.Unlock()
	}
	for _, s := range d.selected {
		watches.Go(func() {
			if err := s.informer.Run(reading); err != nil {
				stopReading(err)
			}
		})
	}
	watches.Go(func() { releaseMemory(reading, d.settled) })
	<-reading.Done()
	if cause := context.Cause(reading); ctx.Err() == nil {
		return cause
	}
	return nil
}

// awaitCluster asks for the cluster's identity, however long the answer takes. Where
// it is optional, and not allowed to be known, it is empty.
func (d *daemon) awaitCluster(ctx context.Context, client *informer.Client, optional bool) (uid string, err error) {
	err = d.insist(ctx, client, func() error {
		uid, err = client.ClusterUID(ctx)
		if optional && apierrors.IsForbidden(err) {
			d.log.Warn("kbridge may not get the namespace kube-system: another cluster behind the same address will not be noticed", "err", err)
			return nil
		}
		return err
	})
	return uid, err
}

// insist asks the API server until it answers, and says meanwhile what keeps it from that:
// nothing can be watched before. An error says that ctx has ended.
func (d *daemon) insist(ctx context.Context, client *informer.Client, ask func() error) error {
	logged := ""
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := ask()
		d.mu.Lock()
		d.cluster = err
		d.mu.Unlock()
		if err == nil {
			return nil
		}
		if c := cause.Of(err); c != logged && ctx.Err() == nil {
			logged = c
			d.log.Warn(unidentified(err)+", trying again", "server", client.Host(), "err", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unidentified says why nothing is known of the cluster yet.
func unidentified(err error) string {
	switch informer.ReasonOf(err) {
	case informer.Forbidden:
		return "kbridge may not get the namespace kube-system, which identifies the cluster (set `cluster` to do without)"
	case informer.Unauthorized:
		return "the API server refuses the credentials"
	case informer.Untrusted:
		return "the API server's certificate is not trusted"
	case informer.Unreachable, informer.Silent:
		return "cannot reach the API server"
	}
	return "the API server does not say what has to be known first"
}

// settled says that what the first lists found is with the sinks, and stored.
func (d *daemon) settled() bool {
	if unready(d.problems()) > 0 {
		return false
	}
	for _, o := range d.outputs {
		if _, events, _ := o.lane.Usage(); events+o.lane.Behind() > 0 {
			return false
		}
	}
	return d.keeper == nil || d.keeper.Idle()
}
