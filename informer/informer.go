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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer/scan"
	"github.com/kbridge-io/kbridge/internal/cause"
	"github.com/kbridge-io/kbridge/internal/spill"
)

// Options say what an informer watches and who takes what it finds.
type Options struct {
	Client  *Client
	Cluster string
	// History is the cluster's, shared by all informers.
	History *event.History
	// Resource is the selection. Each of its namespaces is watched for itself.
	Resource config.Resource
	// Entry is what metrics and logs call the selection: no two have one name.
	Entry string
	// Handler makes the handler of one view, with what it remembers of it: nil if
	// nothing.
	Handler func(View) (Handler, *Known, error)
	// Delivery ends when nobody takes deltas any more. It outlives Run's context, so
	// that what was read before a stop is still delivered.
	Delivery context.Context
	// Aside is where the bodies of the index go; nil: they stay in memory.
	Aside   *spill.File
	Metrics *Metrics
	Log     *slog.Logger
}

// View is one watch of an informer, as its handler sees it.
type View struct {
	Resource  *event.Resource
	Namespace string // empty for all
	// Rules name the drops and the redaction that bodies go through: equal rules leave
	// equal bodies.
	Rules string
	// Rescan returns an object whose body went through the named rules as these leave it.
	Rescan func(rules string, o *event.Object) *event.Object
	// Only are the namespaces, sorted, to which a watch of all of them is narrowed. Nil: to
	// none. What is known of others is to be forgotten.
	Only []string
	// Index is what is there; see bridge.Index.
	Index interface {
		Keys() []string
		With(key string, do func(*event.Object))
		Keep(o *event.Object) *event.Object
		Stored(objects map[string]*event.Object)
	}
}

// Informer watches one selected resource. There is one for each entry of the
// configuration, shared by all the sinks that the entry names.
type Informer struct {
	opts    Options
	metrics entryMetrics
	tally   tally
	rules   scan.Options
	log     *slog.Logger
	live    atomic.Int64          // watches that have begun
	status  atomic.Pointer[error] // why there are no watches yet
	// unproven has an error by namespace, of watches that can not be verified.
	unproven sync.Map
	// watches are there once the resource is resolved.
	watches atomic.Pointer[[]*watching]

	mu     sync.Mutex
	served *served // what the watches are of
}

// served is the resource as the server serves it.
type served struct {
	target
	resource *event.Resource
	rules    *scan.Rules
}

// ErrNotListed is wrapped by what Err returns while the first list, or the watch that goes
// on from what is stored, is on its way.
var ErrNotListed = errors.New("not listed yet")

// New prepares an informer. It contacts nothing; an error is one of the selection.
func New(o Options) (*Informer, error) {
	i := &Informer{opts: o, log: o.Log.With("resource", o.Resource.GroupResource())}
	if o.Entry != i.Name() {
		i.log = i.log.With("entry", o.Entry)
	}
	i.metrics = o.Metrics.entry(o.Entry, i.Name(), &i.tally)
	var err error
	if i.rules, err = scanOptions(o.Resource); err != nil {
		return nil, err
	}
	i.setStatus(ErrNotListed)
	return i, nil
}

// scanOptions are the drops and the redaction that the configuration asks for.
func scanOptions(r config.Resource) (scan.Options, error) {
	drop, err := r.DropPaths()
	if err != nil {
		return scan.Options{}, fmt.Errorf("resource %s: %w", r.GroupResource(), err)
	}
	return scan.Options{Drop: drop, RedactSecret: redacted(r)}, nil
}

// redacted says whether the selection's objects are Secrets whose values stay here.
func redacted(r config.Resource) bool {
	return r.APIGroup() == "" && r.Resource == "secrets" && r.Secrets != config.SecretsInclude
}

// Name is the resource as kubectl writes it.
func (i *Informer) Name() string { return i.opts.Resource.GroupResource() }

// Err is nil once all that was there at the start has been handed over and is watched, and
// says what is awaited before. Later it is a WatchError while a watch does not go on for
// longer than half a minute, and says what keeps the objects from being compared with the
// server's.
func (i *Informer) Err() error {
	watches := i.watches.Load()
	if watches == nil {
		return *i.status.Load()
	}
	if err := watchError(*watches, time.Now()); err != nil {
		return err
	}
	var err error
	i.unproven.Range(func(_, unproven any) bool {
		err = errors.Join(err, unproven.(error))
		return true
	})
	return err
}

// isUnproven notes what keeps the watch of a namespace from being verified, or nil.
func (i *Informer) isUnproven(namespace string, err error) {
	if err == nil {
		i.unproven.Delete(namespace)
		return
	}
	i.unproven.Store(namespace, err)
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
	i.setStatus(ErrNotListed)
	namespaces := i.opts.Resource.Watches()
	if i.served, err = i.serve(t); err != nil {
		return err
	}
	var watches []*watching
	for _, ns := range namespaces {
		w, err := i.watch(ctx, i.served, ns, len(namespaces))
		if err != nil {
			return err
		}
		watches = append(watches, w)
	}
	i.watches.Store(&watches)
	var running sync.WaitGroup
	for _, w := range watches {
		running.Go(func() { w.run(ctx) })
	}
	running.Go(func() { i.snapshots(ctx, watches) })
	running.Go(func() { oversee(ctx, watches) })
	running.Wait()
	return nil
}

// serve prepares what is made of objects that the server serves so.
func (i *Informer) serve(t target) (*served, error) {
	r := i.opts.Resource
	resource := event.NewResource(event.ResourceInfo{
		Cluster: i.opts.Cluster, Group: t.Group, Version: t.Version, Resource: t.Resource, Kind: t.Kind,
		Selected: r.LabelSelector != "" || r.FieldSelector != "",
		Change:   r.Data == config.DataChange,
		Scope: event.Scope{
			Entry: r.Entry(), Namespaces: r.Namespaces, ExcludeNamespaces: r.ExcludeNamespaces,
			LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
		},
		History: i.opts.History,
	})
	rules, err := scan.New(i.rulesFor(t))
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", i.Name(), err)
	}
	return &served{target: t, resource: resource, rules: rules}, nil
}

// rulesFor are the rules for objects that are served so: a list's items do not say what
// they are.
func (i *Informer) rulesFor(t target) scan.Options {
	o := i.rules
	o.APIVersion, o.Kind = t.groupVersion().String(), t.Kind
	return o
}

// follow has a watch go on in the version in which the server serves the resource now,
// where the configuration names none and the one in use is not found any more: a CRD that
// has moved from v1alpha1 to v1.
func (i *Informer) follow(ctx context.Context, w *watching) {
	r := i.opts.Resource
	t, err := i.opts.Client.resolve(ctx, r.APIGroup(), r.Version, r.Resource)
	if err == nil {
		err = t.selectable(r.Namespaces)
	}
	if err != nil {
		w.requests.health.failed(err)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if t != i.served.target {
		s, err := i.serve(t)
		if err != nil {
			w.requests.health.failed(err)
			return
		}
		i.log.Info("the server serves the resource in another version now: its events have another source", "was", i.served.resource.Source(), "source", s.resource.Source())
		i.served = s
	}
	if w.requests.served.Load().target == t {
		return
	}
	if err := w.moveTo(i.served); err != nil {
		w.requests.health.failed(err)
	}
}

// snapshots says again to each sink what is there, for as long as ctx lasts.
func (i *Informer) snapshots(ctx context.Context, watches []*watching) {
	var running sync.WaitGroup
	for _, sink := range watches[0].view.handler.Sinks() {
		running.Go(func() { i.snapshotsTo(ctx, watches, sink) })
	}
	running.Wait()
}

// snapshotsTo says again to a sink what is there: what an earlier run began and did not
// complete, what a start is to say, and then whenever the resync period has passed. There
// is never more than one snapshot of the resource at a time for the sink.
func (i *Informer) snapshotsTo(ctx context.Context, watches []*watching, sink string) {
	for _, w := range watches {
		id := w.again[sink]
		if id == "" && w.resumed && i.opts.Resource.OnStart == config.OnStartSnapshot {
			id = event.NewSnapshotID(time.Now())
		}
		if id != "" {
			w.snapshot(ctx, sink, id)
		}
	}
	if i.opts.Resource.Resync == 0 {
		return
	}
	ticker := time.NewTicker(i.opts.Resource.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, w := range watches {
			w.snapshot(ctx, sink, event.NewSnapshotID(time.Now()))
		}
	}
}

// snapshot says again to a sink what the watch has.
func (w *watching) snapshot(ctx context.Context, sink, id string) {
	if !w.view.listed.Load() {
		return // a snapshot of a part would say of the rest that it is gone
	}
	began := time.Now()
	switch err := w.view.handler.Snapshot(ctx, sink, id); {
	case ctx.Err() != nil: // stopped; the state knows that it is not complete
	case err != nil:
		w.log.Info("snapshot left out", "sink", sink, "err", err)
	default:
		w.log.Info("snapshot sent", "sink", sink, "snapshot", id, "took", time.Since(began).Round(time.Millisecond))
	}
}

// watch builds one watch: the store, the requests, and client-go's Reflector
// between them.
func (i *Informer) watch(ctx context.Context, s *served, namespace string, views int) (*watching, error) {
	log := i.log
	if namespace != "" {
		log = log.With("namespace", namespace)
	}
	lw := &listWatch{
		cluster: i.opts.Client, namespace: namespace,
		labelSelector: i.opts.Resource.LabelSelector, fieldSelector: i.opts.Resource.FieldSelector,
		lists: i.metrics.lists, silent: i.metrics.silent, tally: &i.tally, note: i.failed, log: log,
		doubt: newDoubt(), health: newHealth(),
	}
	lw.health.onLive = func() {
		if i.live.Add(1) == int64(views) {
			i.metrics.synced.Set(1)
		}
	}
	lw.reason.Store(listStart)
	narrowed := narrow(&i.opts.Resource)
	p := &packer{narrowed: narrowed}
	clientsFor := func(s *served) (*clients, error) {
		return i.opts.Client.clients(s, p, i.opts.Aside, observer{
			status: lw.onStatus, unreadable: lw.onUnreadable, initial: &lw.initial,
			tooLarge: i.metrics.tooLarge.Inc,
		})
	}
	first, err := clientsFor(s)
	if err != nil {
		return nil, err
	}
	lw.served.Store(first)
	v := &view{
		resource: s.resource, packer: p, aside: i.opts.Aside,
		index: map[string]indexed{}, narrowed: narrowed,
		doubt: lw.doubt, health: lw.health, log: log,
		delivery: i.opts.Delivery, reading: ctx,
		counters: i.metrics.view,
		now:      time.Now,
	}
	if v.aside != nil {
		v.tidy.wake = make(chan struct{}, 1)
	}
	v.onBegun = func(resumed bool) {
		v.mu.Lock()
		objects := len(v.index)
		v.mu.Unlock()
		if resumed {
			log.Info("resumed", "objects", objects)
		} else {
			log.Info("listed", "objects", objects)
		}
	}
	rescan, err := i.rescan(s, p)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", i.Name(), err)
	}
	known, err := i.remember(v, View{Resource: s.resource, Namespace: namespace, Rules: rulesName(i.rules), Rescan: rescan, Only: narrowed.names(), Index: v})
	if err != nil {
		return nil, err
	}
	lw.view = v
	if v.resume != "" {
		lw.reason.Store(listFailed) // what is stored is no list; one that follows has another reason
		lw.doubt.raise(true)
	}
	w := &watching{view: v, requests: lw, log: log, clients: clientsFor, resumed: known.Listed, again: known.Again}
	if i.opts.Resource.Version == "" {
		w.follow = i.follow
	}
	w.verifier = &verifier{view: v, requests: lw, every: i.opts.Resource.Verify, metrics: i.metrics.verifier, log: log,
		onError: func(err error) { i.isUnproven(namespace, err) }}
	w.reflector = cache.NewReflectorWithOptions(lw, &object{}, v, cache.ReflectorOptions{
		Name:            i.Name(),
		TypeDescription: s.Kind,
		ResyncPeriod:    0,
		// Between lists that are refused or throttled; watches have a pause of their own.
		Backoff: &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 4, Cap: 2 * time.Second},
	})
	return w, nil
}

// remember asks for the view's handler and puts what it knows into the index.
func (i *Informer) remember(v *view, view View) (*Known, error) {
	var known *Known
	var err error
	if v.handler, known, err = i.opts.Handler(view); err != nil {
		return nil, fmt.Errorf("resource %s: %w", i.Name(), err)
	}
	v.epoch = i.opts.History.Epoch() // what is known may be of another cluster
	if known == nil {
		return &Known{}, nil
	}
	v.load(known)
	return known, nil
}

// rescan returns an object whose stored body went through other rules as the current
// ones leave it: what was stored under other drops, or with a Secret's values, must
// not go out as it is.
func (i *Informer) rescan(s *served, p *packer) (func(string, *event.Object) *event.Object, error) {
	bare, err := i.withoutAnnotations(s.target)
	if err != nil {
		return nil, err
	}
	return func(from string, o *event.Object) *event.Object {
		body, err := o.JSON()
		if err == nil {
			rules := s.rules
			if i.rules.RedactSecret && !strings.HasPrefix(from, compared) && scan.Redacted(body) {
				rules = bare
			}
			body, err = rules.Object(nil, body, &scan.Meta{})
		}
		if err != nil {
			i.failed(fmt.Errorf("read a stored body: %w", err))
			i.log.Warn("a stored body can not be read: it is left out", "namespace", o.Namespace, "name", o.Name, "err", err)
			return s.resource.Remains(o.Namespace, o.Name, o.UID, o.ResourceVersion)
		}
		restated := *o
		restated.Aside = spill.Extent{}
		restated.Body, restated.Dictionary = p.pack(nil, body)
		return &restated
	}, nil
}

// RulesOf names the rules of a selection: see View. An error is one of the selection.
func RulesOf(r config.Resource) (string, error) {
	o, err := scanOptions(r)
	return rulesName(o), err
}

// rulesName names what bodies go through. Its number moves when other bodies come out
// of the same configuration: the second one compares annotations with a Secret's values.
func rulesName(o scan.Options) string {
	version := 1
	if o.RedactSecret {
		version = 2
	}
	return fmt.Sprintf("%d redact=%t drop=%q", version, o.RedactSecret, o.Drop)
}

// compared begins the names of rules that look for a Secret's values in its annotations.
// What others have taken the values out of can not be compared any more.
const compared = "2 redact=true "

// withoutAnnotations are the rules for such bodies.
func (i *Informer) withoutAnnotations(t target) (*scan.Rules, error) {
	o := i.rulesFor(t)
	o.Drop = append(slices.Clip(o.Drop), []string{"metadata", "annotations"})
	return scan.New(o)
}

// await resolves the resource, however long that takes.
func (i *Informer) await(ctx context.Context) (target, error) {
	complaint := repeated{log: i.log}
	var suggested string // the cause for which it was asked what is meant
	var suggestion error
	for pause := firstPause; ; pause = pause.next(pauseLimit) {
		r := i.opts.Resource
		t, err := i.opts.Client.resolve(ctx, r.APIGroup(), r.Version, r.Resource)
		if err == nil {
			err = t.selectable(r.Namespaces)
		}
		if err == nil {
			return t, nil
		}
		if ctx.Err() != nil {
			return target{}, ctx.Err()
		}
		if errors.Is(err, ErrNotServed) {
			// All that the server has is asked for once, and not each time.
			if c := cause.Of(err); c != suggested {
				suggested, suggestion = c, i.opts.Client.suggest(ctx, r, err)
			}
			err = suggestion
		}
		i.setStatus(err)
		i.failed(err)
		complaint.warn("the resource can not be watched yet, trying again", err)
		pause.sleep(ctx)
	}
}
