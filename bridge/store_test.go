package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// memory is a state.Store that a test can look into, let fail, and take over as a
// crash leaves it.
type memory struct {
	mu      sync.Mutex
	views   map[state.ViewID]memoryView
	lanes   map[state.LaneID]memoryLane
	epoch   uint32
	calls   int // of Commit
	commits int
	largest int // number of objects of a watch in a batch
	fail    error
	late    bool // what fails is stored all the same

	since  time.Time // there is residue; zero: there is none
	rules  string    // that bodies are to be under
	steps  int       // that it takes to scrub
	scrubs int       // calls of Scrub
	cannot error     // what they return
}

type memoryView struct {
	info    state.ViewInfo
	objects map[string]*event.Object
}

type memoryLane struct {
	info   state.LaneInfo
	behind map[string]state.Behind
}

var _ state.Store = (*memory)(nil)

func newMemory() *memory {
	return &memory{views: map[state.ViewID]memoryView{}, lanes: map[state.LaneID]memoryLane{}}
}

func (m *memory) Contents() (state.Contents, error) {
	return state.Contents{Views: slices.Collect(maps.Keys(m.views)), Lanes: slices.Collect(maps.Keys(m.lanes)), Epoch: m.epoch}, nil
}

func (m *memory) Retain(map[state.ViewID]string, []state.LaneID) error { return nil }
func (m *memory) Close() error                                         { return nil }

func (m *memory) Residue() (state.Residue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.residueLocked(), nil
}

func (m *memory) residueLocked() state.Residue {
	r := state.Residue{Since: m.since}
	if rules := m.views[viewName].info.Rules; !m.since.IsZero() && rules != m.rules {
		r.Views = []state.ViewID{viewName}
	}
	return r
}

func (m *memory) Scrub() (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scrubs++
	if r := m.residueLocked(); len(r.Views) > 0 {
		return false, fmt.Errorf("BUG: %+v", r)
	}
	if m.cannot != nil {
		return false, m.cannot
	}
	if m.steps--; m.steps <= 0 {
		m.since = time.Time{}
	}
	return m.steps <= 0, nil
}

func (m *memory) Info(id state.ViewID) (state.ViewInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views[id].info, nil
}

func (m *memory) LoadView(id state.ViewID, each func(*event.Object) error) (state.ViewInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.views[id]
	for _, o := range v.objects {
		if err := each(o); err != nil {
			return state.ViewInfo{}, err
		}
	}
	return v.info, nil
}

func (m *memory) LoadLane(id state.LaneID) (state.LaneInfo, map[string]state.Behind, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, known := m.lanes[id]
	if l.info.Snapshot != nil {
		s := *l.info.Snapshot
		l.info.Snapshot = &s
	}
	return l.info, maps.Clone(l.behind), known, nil
}

func (m *memory) Commit(b *state.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.fail != nil && !m.late {
		return m.fail
	}
	m.commits++
	if b.Epoch != 0 {
		m.epoch = b.Epoch
	}
	for id, change := range b.Views {
		m.largest = max(m.largest, len(change.Objects))
		v := memoryView{change.Info, maps.Clone(m.views[id].objects)}
		if v.objects == nil {
			v.objects = map[string]*event.Object{}
		}
		for key, o := range change.Objects {
			if v.objects[key] = o; o == nil {
				delete(v.objects, key)
			}
		}
		m.views[id] = v
	}
	for id, change := range b.Lanes {
		l := memoryLane{change.Info, maps.Clone(m.lanes[id].behind)}
		if l.behind == nil {
			l.behind = map[string]state.Behind{}
		}
		for key, r := range change.Behind {
			if r == nil {
				delete(l.behind, key)
			} else {
				l.behind[key] = *r
			}
		}
		if l.info.Snapshot != nil {
			s := *l.info.Snapshot
			l.info.Snapshot = &s
		}
		m.lanes[id] = l
	}
	return m.fail
}

// tried is how often Commit was called.
func (m *memory) tried() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

const viewName = state.ViewID("things")

// view and lane are what is stored.
func (m *memory) view() memoryView {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views[viewName]
}

func (m *memory) lane(sink string) memoryLane {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lanes[state.LaneID{Sink: sink, View: viewName}]
}

// apiServer has objects and a history of their changes.
type apiServer struct {
	version int
	made    map[string]int
	objects map[string]*event.Object
	history []serverStep
}

type serverStep struct {
	version int
	object  *event.Object
	deleted bool
}

func newAPIServer() *apiServer {
	return &apiServer{made: map[string]int{}, objects: map[string]*event.Object{}}
}

func (s *apiServer) has(names ...string) {
	for _, name := range names {
		s.version++
		if s.objects[name] == nil {
			s.made[name]++
		}
		s.objects[name] = thing(name, name+strconv.Itoa(s.made[name]), s.version)
		s.history = append(s.history, serverStep{s.version, s.objects[name], false})
	}
}

func (s *apiServer) gone(names ...string) {
	for _, name := range names {
		s.version++
		s.history = append(s.history, serverStep{s.version, thing(name, s.objects[name].UID, s.version), true})
		delete(s.objects, name)
	}
}

// life is one run of the daemon, with its lanes, a keeper and a watch.
type life struct {
	*watching
	rigs   []*rig
	keeper *Keeper
	known  *Known
	server *apiServer
	at     atomic.Int64 // the version up to which the watch has come
	listed bool
}

type setup struct {
	cluster string
	version string
	rules   Rules
	sinks   []string
	types   []event.Type
	change  []change
	publish func(sink int) func(context.Context, *event.Event, func(error)) // nil: the desks'
}

// start begins a life with what is stored. One desk is of one sink.
func start(t *testing.T, m state.Store, s *apiServer, with setup, desks ...*desk) *life {
	t.Helper()
	l := &life{server: s}
	var ports []*Port
	for i, d := range desks {
		name := "sink" + strconv.Itoa(i)
		if with.sinks != nil {
			name = with.sinks[i]
		}
		publish := d.publish
		if with.publish != nil {
			publish = with.publish(i)
		}
		r := newRig(t, publish, append([]change{func(o *Options) { o.Sink = named{testSink{publish}, name} }}, with.change...)...)
		l.rigs = append(l.rigs, r)
		types := with.types
		if types == nil {
			types = allTypes
		}
		ports = append(ports, r.port(types...))
	}
	l.watching = watchOf(t, ports...)
	if with.cluster == "" {
		with.cluster = "cluster"
	}
	if with.version == "" {
		with.version = "v1"
	}
	l.keeper = NewKeeper(m, with.cluster, &event.History{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	var err error
	if l.feed, l.known, err = l.keeper.Load(viewName, with.version, with.rules, l.watching, ports...); err != nil {
		t.Fatal(err)
	}
	for _, o := range l.known.Objects {
		l.index["shop/"+o.Name] = o
	}
	l.listed = l.known.Listed
	if l.known.Position != "" {
		at, _ := strconv.Atoi(l.known.Position)
		l.at.Store(int64(at))
	}
	return l
}

type named struct {
	testSink
	name string
}

func (n named) Name() string { return n.name }

// sync brings what the server has changed through the watch.
func (l *life) sync() {
	l.t.Helper()
	for _, c := range l.server.history {
		if int64(c.version) <= l.at.Load() {
			continue
		}
		l.at.Store(int64(c.version))
		l.mu.Lock()
		err := l.take(c)
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *life) take(c serverStep) error {
	key := "shop/" + c.object.Name
	old := l.index[key]
	if c.deleted {
		d := event.Delta{Type: event.Deleted, Object: c.object, Old: old}
		if old != nil && old.UID != c.object.UID {
			d.Old = nil
		}
		if d.Old != nil {
			delete(l.index, key)
		}
		if err := l.deliver(d); err != nil {
			return err
		}
	} else if err := l.set(c.object, event.Delta{}); err != nil {
		return err
	}
	l.feed.Position(strconv.Itoa(c.version))
	return nil
}

func (l *life) set(o *event.Object, d event.Delta) error {
	key := "shop/" + o.Name
	old := l.index[key]
	if old != nil && old.UID != o.UID {
		delete(l.index, key)
		if err := l.deliver(event.Delta{Type: event.Deleted, Object: old, Old: old, Inferred: true}); err != nil {
			return err
		}
		old = nil
	}
	if old != nil && old.Same(o) {
		return nil
	}
	l.index[key] = o
	d.Type, d.Object = event.Added, o
	if old != nil {
		d.Type, d.Old = event.Updated, old
	}
	return l.deliver(d)
}

// list compares with all that the server has.
func (l *life) list() {
	l.t.Helper()
	like := event.Delta{Inferred: true}
	if !l.listed {
		id := l.known.Snapshot
		if id == "" {
			id = "S" + strconv.Itoa(l.server.version)
		}
		like = event.Delta{Snapshot: id}
	}
	l.feed.ListBegins(like.Snapshot)
	l.announce()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(l.server.objects)) {
		if l.set(l.server.objects[name], like) != nil {
			return
		}
	}
	for _, key := range slices.Sorted(maps.Keys(l.index)) {
		if o := l.index[key]; l.server.objects[o.Name] == nil {
			delete(l.index, key)
			if l.deliver(event.Delta{Type: event.Deleted, Object: o, Old: o, Inferred: true}) != nil {
				return
			}
		}
	}
	l.feed.ListEnds(strconv.Itoa(l.server.version))
	l.at.Store(int64(l.server.version))
	l.listed = true
}

// resume goes on as the informer does: with the watch where the state has a
// position, else with a list.
func (l *life) resume() {
	l.t.Helper()
	l.announce()
	if l.known.Listed && l.known.Position != "" {
		l.feed.Resumes(strconv.Itoa(l.server.version))
		l.sync()
		bookmark(l)
		return
	}
	l.list()
}

// announce stores where a first snapshot waits for that.
func (l *life) announce() {
	l.t.Helper()
	for _, p := range l.feed.ports {
		if p.awaits() {
			l.store()
			return
		}
	}
}

// kill ends a life as kill -9 does: nothing more is stored.
func (l *life) kill() {
	for _, r := range l.rigs {
		r.stop()
	}
}

func (l *life) store() {
	l.t.Helper()
	if err := l.keeper.Store(); err != nil {
		l.t.Error(err)
	}
}

// drain waits until all is dealt with, while the keeper stores.
func (l *life) drain() {
	defer l.keep()()
	for _, r := range l.rigs {
		r.drain()
	}
}

// keep stores as the keeper does, until the function that it returns is called: what a
// sink is behind on goes out when its record is stored.
func (l *life) keep() (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-time.After(storeEvery):
				if err := l.keeper.Store(); err != nil && !errors.Is(err, errDisk) {
					l.t.Error(err)
				}
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

var errDisk = errors.New("the disk is full")

// bookmark is one that the server sends.
func bookmark(l *life) { l.feed.Position(strconv.Itoa(l.server.version)) }

// hold lets the desk answer no more by itself.
func hold(d *desk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flow = false
}
