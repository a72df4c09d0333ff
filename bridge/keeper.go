package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// Keeper stores, behind the acknowledgements, what survives a restart. It loads the
// feeds before they run, and writes a batch whenever storeEvery has passed or
// storeSteps changes wait, never on the path of an event.
type Keeper struct {
	store   state.Store
	cluster string
	history *event.History
	log     *slog.Logger
	metrics keeperMetrics

	mu         sync.Mutex // held while the store is used
	registered sync.Mutex // held, within mu, while feeds grows, and where mu is not held
	feeds      []*Feed
	lanes      map[state.LaneID]*state.LaneInfo // as gathered last
	epoch      uint32                           // that is stored
	batch      *state.Batch                     // gathered and not committed
	err        atomic.Pointer[error]            // of the last commit
	scrubber   *scrubber

	// For Status.
	commits, failed atomic.Uint64
	committed       atomic.Pointer[time.Time] // when a batch was stored last
}

// What is settled is gathered often, so that of an object that changes all the time
// only the last state is held, and written less often.
const (
	gatherEvery = 100 * time.Millisecond
	storeEvery  = time.Second
	// A batch that could not be written is tried again after twice as long each time.
	longestStorePause = 10 * time.Second
	storeObjects      = 10_000 // of a watch in a batch, which takes ten times their size to write
	// Of a list, whose objects come in order: they share pages, so that large batches save
	// nothing.
	storeListed = 2_000
)

type keeperMetrics struct {
	commits, errors prometheus.Counter
	seconds         prometheus.Observer
	objects         prometheus.Counter
}

// NewKeeper makes a keeper of the store for the cluster of that identity. Where the
// store is of another cluster its positions are void: what it knows is compared with
// a list. The epoch of the history is stored when it changes.
func NewKeeper(store state.Store, cluster string, history *event.History, reg prometheus.Registerer, log *slog.Logger) *Keeper {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "kbridge_state_commit_seconds", Help: "How long it takes to store a batch.",
		Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10},
	})
	reg.MustRegister(seconds)
	k := &Keeper{
		store: store, cluster: cluster, history: history, epoch: history.Epoch(), log: log, lanes: map[state.LaneID]*state.LaneInfo{},
		scrubber: newScrubber(reg),
		metrics: keeperMetrics{
			commits: counter("kbridge_state_commits_total", "Batches that were stored."),
			errors:  counter("kbridge_state_errors_total", "Batches that could not be stored, and are tried again with what has come since."),
			objects: counter("kbridge_state_objects_total", "Objects in the batches that were stored."),
			seconds: seconds,
		},
	}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kbridge_state_pending_changes", Help: "Changes that are not settled by all sinks, or not gathered to be stored.",
	}, func() float64 { return float64(k.Pending()) }))
	return k
}

// Known is what the state has of a watch.
type Known struct {
	state.ViewInfo
	Objects []*event.Object
	// Snapshot is the id of a first snapshot that was not completed.
	Snapshot string
	// Again are the ids of snapshots that said again what is there and were not completed,
	// by sink.
	Again map[string]string
}

// Rules are what bodies go through before anybody sees them.
type Rules struct {
	Name string // equal names leave equal bodies
	// Rescan returns an object whose body went through the named rules as these leave it.
	Rescan func(rules string, o *event.Object) *event.Object
	// Only are the namespaces, sorted, that the watch is narrowed to; nil: to none.
	Only []string
}

// only names the namespaces.
func (r *Rules) only() string {
	if r.Only == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(r.Only, ",")))
	return hex.EncodeToString(sum[:])
}

// leaveOut says that what is known of a namespace is to be forgotten.
func (r *Rules) leaveOut(namespace string) bool {
	if r.Only == nil {
		return false
	}
	_, has := slices.BinarySearch(r.Only, namespace)
	return !has
}

// Load makes the feed of a watch with what the store has of it. Each port is of
// another lane, and names its sink.
func (k *Keeper) Load(id state.ViewID, version string, rules Rules, index Index, ports ...*Port) (*Feed, *Known, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(k.feeds, func(f *Feed) bool { return f.id == id }) {
		return nil, nil, fmt.Errorf("BUG: two watches are stored as %s", id)
	}
	if err := k.scrubber.look(k.store); err != nil {
		return nil, nil, err
	}
	f := &Feed{id: id, index: index, ports: ports, journal: &journal{}}
	known := &Known{Again: map[string]string{}}
	objects := map[string]*event.Object{}
	info, err := k.store.Info(id)
	if err != nil {
		return nil, nil, err
	}
	var rescan func(*event.Object) *event.Object
	if from := info.Rules; from != rules.Name && rules.Rescan != nil {
		rescan = func(o *event.Object) *event.Object { return rules.Rescan(from, o) }
	}
	known.ViewInfo, err = k.store.LoadView(id, func(o *event.Object) error {
		if rules.leaveOut(o.Namespace) {
			f.journal.forget(o.Key())
			return nil
		}
		if rescan != nil {
			o = rescan(o) // before anything has it, the index's file too
		}
		o = index.Keep(o)
		if rescan != nil {
			f.journal.restate(0, o)
		}
		known.Objects = append(known.Objects, o)
		objects[o.Key()] = o
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if known.Cluster != k.cluster || known.Version != version || known.Only != rules.only() {
		// Of another cluster, with bodies of another version, or without those of namespaces
		// that are selected now.
		known.Position = ""
	}
	if known.Cluster != "" && known.Cluster != k.cluster {
		k.history.End(k.epoch) // versions of one cluster say nothing of those of another
	}
	for _, p := range ports {
		if err := k.loadPort(f, p, known, objects, &rules, rescan); err != nil {
			return nil, nil, err
		}
	}
	f.journal.info = known.ViewInfo
	f.journal.info.Cluster, f.journal.info.Version, f.journal.info.Rules = k.cluster, version, rules.Name
	f.journal.info.Only = rules.only()
	if rescan != nil {
		f.journal.info.Rules = "" // none that have a name, until all is stored
		f.journal.under(0, rules.Name)
	}
	f.journal.dirty = true
	k.registered.Lock()
	defer k.registered.Unlock()
	k.feeds = append(k.feeds, f)
	return f, known, nil
}

func (k *Keeper) loadPort(f *Feed, p *Port, known *Known, objects map[string]*event.Object, rules *Rules, rescan func(*event.Object) *event.Object) error {
	id := state.LaneID{Sink: p.lane.Name(), View: f.id}
	info, records, isKnown, err := k.store.LoadLane(id)
	if err != nil {
		return err
	}
	k.lanes[id] = &info
	p.lane.mu.Lock()
	defer p.lane.mu.Unlock()
	p.records, p.doubtful = map[event.Key]struct{}{}, map[event.Key]struct{}{}
	p.position, p.newest = known.Position, known.Position
	p.doubt = isKnown
	if known.Position != "" && newer(info.Position, known.Position) {
		p.resumed, p.held = info.Position, info.Position
	}
	keyOf := func(namespace, name string) event.Key {
		return event.Key{Group: p.resource.Group, Resource: p.resource.Resource, Namespace: namespace, Name: name}
	}
	switch {
	case !isKnown && (known.Listed || len(known.Objects) > 0):
		// A sink that is new to a watch that is not: it is owed all that is there.
		s := p.beginSnapshot(newSnapshotID(), true, 0)
		s.listed, s.version = known.Listed, known.Position
		for _, o := range known.Objects {
			p.restore(keyOf(o.Namespace, o.Name), state.Behind{First: true}, o, false)
		}
		p.completeSnapshot()
		return nil
	case info.Snapshot != nil && info.Snapshot.First:
		s := p.beginSnapshot(info.Snapshot.ID, true, info.Snapshot.Sent)
		known.Snapshot = s.id
		s.listed, s.version = known.Listed, known.Position
	case info.Snapshot != nil:
		known.Again[p.lane.Name()] = info.Snapshot.ID
		p.again = info.Snapshot
	}
	for key, r := range records {
		namespace, name := state.SplitKey(key)
		if rules.leaveOut(namespace) {
			p.touch(keyOf(namespace, name)) // there is nothing to keep of it any more
			continue
		}
		if r.Gone != nil && rescan != nil {
			r.Gone = rescan(r.Gone)
		}
		p.restore(keyOf(namespace, name), r, objects[key], true)
		if p.position != "" && r.Gone != nil && newer(r.Gone.ResourceVersion, p.position) && (p.held == "" || newer(r.Gone.ResourceVersion, p.held)) {
			p.held = r.Gone.ResourceVersion
		}
	}
	switch {
	case p.held != "" || len(records) == 0:
	case known.Position == "" && known.Listed:
		p.held = untilListed
	default:
		p.held = known.Position // until it is known what the watch may tell again: see Resumes
	}
	p.completeSnapshot()
	return nil
}

func newSnapshotID() string { return event.NewSnapshotID(time.Now()) }

// Run stores until ctx ends, and removes from the state what is not to be in it; the
// caller stores a last time when the lanes have come to rest. It returns an error where the
// state belongs to another process now: what is stored would not be true any more.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(gatherEvery)
	defer ticker.Stop()
	stores := attempts{every: storeEvery, longest: longestStorePause, last: time.Now()}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
		for _, err := range []error{k.storeInTime(&stores), k.scrub()} {
			if errors.Is(err, state.ErrFenced) {
				return err
			}
		}
	}
}

// storeInTime stores what waits when it is time to. What is urgent is written at once, but
// not again and again to a disk that fails.
func (k *Keeper) storeInTime(stores *attempts) error {
	g := k.gather()
	if urgent := (g.more || g.awaited) && stores.failures == 0; !urgent && !stores.due() {
		return nil
	}
	err := k.Store()
	stores.took(err)
	return err
}

// gathered says what is in the batch.
type gathered struct {
	awaited bool // a snapshot waits for it
	more    bool // what would make it too large is left for the next one
}

// gather adds to the batch what can be stored now.
func (k *Keeper) gather() gathered {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gatherLocked(false)
}

// gatherLocked is gather with the lock held. With rest it adds only what the one before
// left for the next batch.
func (k *Keeper) gatherLocked(rest bool) gathered {
	if k.batch == nil {
		k.batch = &state.Batch{Views: map[state.ViewID]*state.ViewChange{}, Lanes: map[state.LaneID]*state.LaneChange{}}
	}
	var g gathered
	for _, f := range k.feeds {
		k.collect(f, &g, rest)
	}
	for _, l := range k.batch.Lanes {
		g.more = g.more || len(l.Behind) >= storeObjects
	}
	// Read at last: what was gathered is of no later epoch.
	if epoch := k.history.Epoch(); epoch != k.epoch {
		k.batch.Epoch = epoch
	}
	return g
}

// Store writes what can be stored now. Where that fails it is kept, and written with
// what has come since the next time: a disk that is full does not stop delivery.
func (k *Keeper) Store() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for rest := false; ; rest = true {
		g := k.gatherLocked(rest)
		if err := k.commit(); err != nil || !g.more {
			return err
		}
	}
}

func (k *Keeper) commit() error {
	if len(k.batch.Views)+len(k.batch.Lanes) == 0 && k.batch.Epoch == 0 {
		k.stored()
		return nil
	}
	began := time.Now()
	err := k.store.Commit(k.batch)
	k.metrics.seconds.Observe(time.Since(began).Seconds())
	switch {
	case err != nil:
		k.metrics.errors.Inc()
		k.failed.Add(1)
		if k.err.Swap(&err) == nil {
			k.log.Error("the state can not be stored: events go on, but what is stored gets old", "err", err)
		}
		k.deliverOn()
		return fmt.Errorf("store the state: %w", err)
	case k.err.Swap(nil) != nil:
		k.log.Info("the state is stored again")
	}
	k.stored()
	for _, f := range k.feeds {
		if v := k.batch.Views[f.id]; v != nil {
			k.metrics.objects.Add(float64(len(v.Objects)))
			f.index.Stored(v.Objects)
		}
	}
	k.metrics.commits.Inc()
	k.commits.Add(1)
	now := time.Now().UTC()
	k.committed.Store(&now)
	k.epoch = max(k.epoch, k.batch.Epoch)
	k.batch = nil
	return nil
}

// collect adds to the batch what has changed of a feed. First the ports are asked how
// far they are, each with what its sink is behind on at that moment; then the journal
// gives out as much as all of them are done with. So the index never passes a delta
// that is neither delivered nor recorded.
func (k *Keeper) collect(f *Feed, g *gathered, rest bool) {
	if !rest {
		k.collectPorts(f, g)
	}
	change := k.batch.Views[f.id]
	if change == nil {
		change = &state.ViewChange{Objects: map[string]*event.Object{}}
	}
	limit := storeObjects
	if f.journal.listing() {
		limit = storeListed
	}
	if k.err.Load() != nil {
		limit = math.MaxInt // what can not be stored is held as the last state of each object
	}
	changed, more := f.journal.collect(f.settled, change, limit)
	if changed {
		k.batch.Views[f.id] = change
	}
	g.more = g.more || more
}

// collectPorts asks the ports.
func (k *Keeper) collectPorts(f *Feed, g *gathered) {
	settled := ^uint64(0)
	for _, p := range f.ports {
		id := state.LaneID{Sink: p.lane.Name(), View: f.id}
		change := &state.LaneChange{Behind: map[string]*state.Behind{}}
		to, changed := p.collect(change, k.lanes[id])
		settled = min(settled, to)
		g.awaited = g.awaited || p.awaits()
		if !changed {
			continue
		}
		if old := k.batch.Lanes[id]; old != nil {
			maps.Copy(old.Behind, change.Behind)
			old.Info = change.Info
			continue
		}
		k.batch.Lanes[id] = change
	}
	f.settled = settled
}

// stored tells the ports that the state has what was gathered of them.
func (k *Keeper) stored() {
	k.release(func(p *Port) (number uint64, snapshot bool) {
		return p.gathered, p.snapshot != nil && p.snapshot.gathered
	})
}

// deliverOn lets go what waits for the state, which can not be stored.
func (k *Keeper) deliverOn() {
	k.release(func(p *Port) (number uint64, snapshot bool) { return ^uint64(0), p.snapshot != nil })
}

// release tells the ports up to which delta what their sinks are behind on may be sent,
// and whether the snapshot under way may.
func (k *Keeper) release(upTo func(*Port) (number uint64, snapshot bool)) {
	for _, f := range k.feeds {
		for _, p := range f.ports {
			p.lane.mu.Lock()
			number, snapshot := upTo(p)
			p.committed = number
			if snapshot && !p.snapshot.announced {
				p.announce()
			}
			if len(p.behind) > 0 {
				p.lane.nudge()
			}
			p.lane.mu.Unlock()
		}
	}
}

// Pending is the number of changes that are held until all sinks have settled them, or the
// next batch takes them. It does not wait for a batch that is being written.
func (k *Keeper) Pending() int {
	k.registered.Lock()
	defer k.registered.Unlock()
	n := 0
	for _, f := range k.feeds {
		n += f.journal.length()
	}
	return n
}

// Idle says that there is nothing to store. It does not wait for a batch that is being
// written.
func (k *Keeper) Idle() bool {
	if !k.mu.TryLock() {
		return false
	}
	defer k.mu.Unlock()
	for _, f := range k.feeds {
		if f.journal.length() > 0 {
			return false
		}
	}
	return k.batch == nil || len(k.batch.Views)+len(k.batch.Lanes) == 0
}

// Err is what keeps the state from being stored, or nil.
func (k *Keeper) Err() error {
	if err := k.err.Load(); err != nil {
		return *err
	}
	return nil
}
