// Package informer owns the way from the API server to deltas: discovery, raw
// objects and their decoding, the ListerWatcher under client-go's Reflector, the
// index above it, and the comparison that finds what nobody saw. It knows nothing
// of sinks: a Handler takes the deltas, and blocks where it has no room.
package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer/scan"
)

// Options say what an informer watches and who takes what it finds.
type Options struct {
	Client  *Client
	Cluster string
	// Resource is the selection. Each of its namespaces is watched for itself.
	Resource config.Resource
	// Handler makes the handler of one view. namespace is empty for all namespaces.
	Handler func(r *event.Resource, namespace string) Handler
	// Delivery ends when nobody takes deltas any more. It outlives Run's context, so
	// that what was read before a stop is still delivered.
	Delivery context.Context
	Metrics  *Metrics
	Log      *slog.Logger
}

// Informer watches one selected resource. There is one for each entry of the
// configuration, shared by all the sinks that the entry names.
type Informer struct {
	opts   Options
	rules  scan.Options
	log    *slog.Logger
	listed atomic.Int64 // views whose first list has been handed over
	status atomic.Pointer[error]
}

var errStarting = errors.New("not listed yet")

// New prepares an informer. It contacts nothing; an error is one of the selection.
func New(o Options) (*Informer, error) {
	i := &Informer{opts: o, log: o.Log.With("resource", o.Resource.Name())}
	var err error
	if i.rules, err = scanOptions(o.Resource); err != nil {
		return nil, err
	}
	i.setStatus(errStarting)
	return i, nil
}

// scanOptions are the drops and the redaction that the configuration asks for.
func scanOptions(r config.Resource) (scan.Options, error) {
	drop, err := r.DropPaths()
	if err != nil {
		return scan.Options{}, fmt.Errorf("resource %s: %w", r.Name(), err)
	}
	return scan.Options{Drop: drop, RedactSecret: redacted(r)}, nil
}

// redacted says whether the selection's objects are Secrets whose values stay here.
func redacted(r config.Resource) bool {
	return r.APIGroup() == "" && r.Resource == "secrets" && r.Secrets != config.SecretsInclude
}

// Name is the resource as kubectl writes it.
func (i *Informer) Name() string { return i.opts.Resource.Name() }

// Err is nil once all that was there at the start has been handed over, and says
// what is awaited before.
func (i *Informer) Err() error {
	if err := *i.status.Load(); err != nil {
		return fmt.Errorf("resource %s: %w", i.Name(), err)
	}
	return nil
}

func (i *Informer) setStatus(err error) { i.status.Store(&err) }

// Run watches until ctx ends, and returns when all that it started has ended. It
// waits for a resource that the server does not have yet, and for a server that
// does not answer.
func (i *Informer) Run(ctx context.Context) error {
	t, err := i.await(ctx)
	if err != nil {
		return nil // stopped while waiting
	}
	namespaces := i.opts.Resource.Namespaces
	if len(namespaces) > 0 && !t.Namespaced {
		return fmt.Errorf("resource %s is cluster-scoped and can not be selected by namespaces", i.Name())
	}
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	resource := event.NewResource(event.ResourceInfo{
		Cluster: i.opts.Cluster, Group: t.Group, Version: t.Version, Resource: t.Resource, Kind: t.Kind,
		Selected: i.opts.Resource.LabelSelector != "" || i.opts.Resource.FieldSelector != "",
		Change:   i.opts.Resource.Data == config.DataChange,
	})
	i.rules.APIVersion, i.rules.Kind = t.groupVersion().String(), t.Kind
	rules, err := scan.New(i.rules)
	if err != nil {
		return fmt.Errorf("resource %s: %w", i.Name(), err)
	}
	i.opts.Metrics.synced.WithLabelValues(i.Name()).Set(0)
	var running sync.WaitGroup
	for _, ns := range namespaces {
		w, err := i.watch(ctx, t, resource, rules, ns, len(namespaces))
		if err != nil {
			return err
		}
		running.Go(func() { w.run(ctx) })
	}
	running.Wait()
	return nil
}

// watch builds one watch: the store, the requests, and client-go's Reflector
// between them.
func (i *Informer) watch(ctx context.Context, t target, r *event.Resource, rules *scan.Rules, namespace string, views int) (*watching, error) {
	log := i.log
	if namespace != "" {
		log = log.With("namespace", namespace)
	}
	lw := &listWatch{
		target: t, namespace: namespace,
		labelSelector: i.opts.Resource.LabelSelector, fieldSelector: i.opts.Resource.FieldSelector,
		lists: i.opts.Metrics.lists, errors: i.opts.Metrics.errors.WithLabelValues(i.Name()), log: log,
	}
	lw.reason.Store(listStart)
	codec, err := newCodec(t, rules, observer{status: lw.onStatus, unreadable: lw.onUnreadable})
	if err != nil {
		return nil, err
	}
	if lw.client, err = i.opts.Client.restClient(t.groupVersion(), codec); err != nil {
		return nil, err
	}
	v := &view{
		resource: r, handler: i.opts.Handler(r, namespace),
		index: map[string]indexed{}, exclude: map[string]bool{},
		delivery: i.opts.Delivery, reading: ctx,
		counters: newViewCounters(i.opts.Metrics, i.Name()),
		now:      time.Now,
	}
	for _, ns := range i.opts.Resource.ExcludeNamespaces {
		v.exclude[ns] = true
	}
	v.onListed = func() {
		log.Info("listed", "objects", len(v.index))
		if i.listed.Add(1) == int64(views) {
			i.setStatus(nil)
			i.opts.Metrics.synced.WithLabelValues(i.Name()).Set(1)
		}
	}
	w := &watching{view: v, lists: lw, log: log, onError: i.setStatus}
	w.reflector = cache.NewReflectorWithOptions(lw, &object{}, v, cache.ReflectorOptions{
		Name:            i.Name(),
		TypeDescription: t.Kind,
		ResyncPeriod:    0,
		// Between lists that are refused or throttled; watches have a pause of their own.
		Backoff: &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 4, Cap: 2 * time.Second},
	})
	return w, nil
}

// await resolves the resource, however long that takes.
func (i *Informer) await(ctx context.Context) (target, error) {
	complaint := repeated{log: i.log}
	for pause := firstPause; ; pause = pause.next(pauseLimit) {
		r := i.opts.Resource
		t, err := i.opts.Client.resolve(ctx, r.APIGroup(), r.Version, r.Resource)
		if err == nil {
			return t, nil
		}
		if ctx.Err() != nil {
			return target{}, ctx.Err()
		}
		i.setStatus(err)
		i.opts.Metrics.errors.WithLabelValues(i.Name()).Inc()
		complaint.warn("the resource can not be watched yet, trying again", err)
		pause.sleep(ctx)
	}
}
