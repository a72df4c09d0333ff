package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
	"github.com/kbridge-io/kbridge/internal/spill"
	"github.com/kbridge-io/kbridge/internal/spill/spilltest"
	"github.com/kbridge-io/kbridge/internal/tracing"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/state"
)

// modelWorlds is how many worlds there are where KBRIDGE_SEEDS does not say: as many as
// fit into some ten seconds.
const modelWorlds = 100

// TestEverySinkEndsWithTheTruth runs the whole of kbridge, from a scripted API server
// to scripted brokers, in virtual time, many times with other faults. KBRIDGE_SEED=n
// runs one world, which is the same up to the scheduling of goroutines and client-go's
// own jitter; KBRIDGE_SEEDS=n runs so many, from KBRIDGE_FROM on.
func TestEverySinkEndsWithTheTruth(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if seed := number("KBRIDGE_SEED", 0); seed != 0 {
		runWorld(t, uint64(seed))
		return
	}
	var next, events, repeats, failed atomic.Uint64
	next.Store(uint64(number("KBRIDGE_FROM", 1) - 1))
	first, count := next.Load(), uint64(number("KBRIDGE_SEEDS", modelWorlds))
	more := func(done uint64) bool {
		return done < count && failed.Load() < uint64(number("KBRIDGE_FAILURES", 10))
	}
	t.Run("worlds", func(t *testing.T) {
		for i := range 2 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				for more(next.Load() - first) {
					w := runWorld(t, next.Add(1))
					events.Add(uint64(w.events))
					repeats.Add(uint64(w.repeats))
					if len(w.failures) > 0 {
						failed.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d worlds, %d events, %d repeats", next.Load()-first, events.Load(), repeats.Load())
}

// world is one cluster with its brokers, a disk, and the processes that come and go.
type world struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand // the driver's
	api  *scriptedapi.Server

	opaque       bool
	pools        map[schema.GroupVersionResource][][2]string // namespaces and names
	unregistered map[schema.GroupVersionResource]bool
	backup       *scriptedapi.Snapshot
	newest       int // the number of the last content
	cfg          *config.Config
	p            *process
	later        []appointment
	began        time.Time

	mu        sync.Mutex
	rng2      *rand.Rand
	brokers   map[string]*broker
	disk      *disk           // nil: there is no state
	states    map[string]bool // which contents a version has had: more than one in several histories
	values    map[string]bool
	rules     map[int]rules        // by process
	clean     map[int]bool         // by process: the one before left nothing undone
	unwritten map[int]bool         // by process: the one before was killed shortly after the disk had failed
	told      map[int]time.Time    // by process: what was acknowledged before is stored
	listed    map[string]time.Time // by resource: when a list was asked for last
	loaded    map[state.LaneID]loaded
	processes int
	restored  bool // versions have gone back
	trace     []string
	failures  []string
	events    int
	repeats   int
}

// rules are what a process does to bodies.
type rules struct {
	drops    bool
	includes map[string]bool // by sink: the values of Secrets too
}

type appointment struct {
	at time.Time
	do func()
}

var (
	modelConfigMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	modelSecrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	modelWidgets    = schema.GroupVersionResource{Group: "example.dev", Version: "v1", Resource: "widgets"}
)

func gvrOf(r config.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.APIGroup(), Version: "v1", Resource: r.Resource}
}

// runWorld runs the world of that seed and reports what is wrong in it.
func runWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), rng2: rand.New(rand.NewPCG(seed, 2)),
		pools: map[schema.GroupVersionResource][][2]string{}, unregistered: map[schema.GroupVersionResource]bool{},
		brokers: map[string]*broker{}, states: map[string]bool{}, values: map[string]bool{},
		rules: map[int]rules{}, clean: map[int]bool{}, unwritten: map[int]bool{}, told: map[int]time.Time{}, listed: map[string]time.Time{}, loaded: map[state.LaneID]loaded{},
	}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("seed %d: %v\n%s", seed, r, w.tail(60))
			panic(r)
		}
	}()
	late := time.AfterFunc(2*time.Minute, func() { panic(fmt.Sprintf("seed %d: it does not come to an end:\n%s", seed, w.tail(200))) })
	defer late.Stop()
	synctest.Test(t, func(*testing.T) { w.run() })
	if len(w.failures) > 0 {
		t.Errorf("seed %d:\n%s\nThe last of what happened:\n%s", seed, strings.Join(w.failures[:min(5, len(w.failures))], "\n"), w.tail(number("KBRIDGE_TRACE", 120)))
	}
	return w
}

// number is what the environment says, or otherwise.
func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// failf notes a failure; the world ends at the driver's next step. The lock is held.
func (w *world) failf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.failures = append(w.failures, text)
	w.tracef("FAILED: %s", text)
}

// tracef notes what happens. The lock is held.
func (w *world) tracef(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%10.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tracef("* "+format, args...)
}

func (w *world) tail(n int) string {
	end := len(w.trace)
	for i, line := range w.trace {
		if strings.Contains(line, "FAILED") {
			end = min(end, i+20)
			break
		}
	}
	return strings.Join(w.trace[max(0, end-n):end], "\n")
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failures) > 0
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// run is a world from its begin to its end.
func (w *world) run() {
	w.began = time.Now()
	w.create()
	defer w.api.Close()
	w.start()
	for range 1 + w.rng.IntN(3) {
		for range 20 + w.rng.IntN(60) {
			if w.failed() {
				break
			}
			w.step()
		}
		w.heal()
		if w.failed() {
			break
		}
		w.await()
	}
	if w.p != nil {
		w.stop()
	}
}

// create makes the cluster and the configuration.
func (w *world) create() {
	w.api = scriptedapi.New()
	w.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
		compares := strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
		if r.Verb == scriptedapi.List && r.Query.Get("limit") != "1" && !compares || r.Verb == scriptedapi.Watch && r.Query.Get("sendInitialEvents") == "true" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.listed[r.GVR.Resource] = time.Now()
		}
		return nil
	})
	w.api.Register(modelConfigMaps, "ConfigMap", true)
	w.api.Register(modelSecrets, "Secret", true)
	w.api.Register(modelWidgets, "Widget", false)
	if w.opaque = w.chance(0.1); w.opaque {
		w.api.SetOpaqueVersions(true)
	}
	w.api.SetWatchList(w.chance(0.7))
	w.api.SetExpiredAsHTTP(w.chance(0.3))
	if w.chance(0.5) {
		w.api.SetBookmarks(pick(w.rng, time.Second, 10*time.Second))
	}
	size := pick(w.rng, 1, 3, 8, 25)
	for i := range size {
		name := "o" + strconv.Itoa(i)
		for _, ns := range []string{"a", "b", "c"} {
			w.pools[modelConfigMaps] = append(w.pools[modelConfigMaps], [2]string{ns, name})
			w.pools[modelSecrets] = append(w.pools[modelSecrets], [2]string{ns, name})
		}
		w.pools[modelWidgets] = append(w.pools[modelWidgets], [2]string{"", name})
	}
	for range w.rng.IntN(3 * size) {
		w.mutate()
	}

	cfg := config.Default()
	cfg.Cluster = "test"
	cfg.Kubernetes.MaxObject = pick[config.Size](w.rng, config.Default().Kubernetes.MaxObject, 64<<10) // nothing that is put is larger
	w.cfg = &cfg
	w.mayTrace()
	for range 1 + w.rng.IntN(3) {
		w.addSink()
	}
	for _, gvr := range []schema.GroupVersionResource{modelConfigMaps, modelSecrets, modelWidgets} {
		if w.chance(0.4) && len(cfg.Resources) > 0 {
			continue
		}
		cfg.Resources = append(cfg.Resources, w.entries(gvr, cfg.Sinks)...)
	}
	w.mu.Lock()
	for i := range cfg.Sinks {
		w.mayDislike(&cfg.Sinks[i])
	}
	w.notePartial()
	w.mu.Unlock()
	if err := cfg.Validate(); err != nil && !strings.Contains(err.Error(), "no kind of sink") {
		panic(err)
	}
	if w.chance(0.9) {
		w.disk = newDisk(w)
		cfg.State = &config.State{File: &config.StateFile{Dir: "disk"}}
	}
}

func (w *world) addSink() {
	s := config.DefaultSink()
	s.Name = "s" + strconv.Itoa(len(w.brokers))
	s.Format = pick(w.rng, config.FormatStructured, config.FormatBinary)
	s.Window = config.Window{Bytes: pick[config.Size](w.rng, 1<<10, 8<<10, 64<<10, 1<<20), Events: pick(w.rng, 1, 3, 20, 1000)}
	s.WhenFull = pick(w.rng, config.WhenFullFold, config.WhenFullFold, config.WhenFullBlock)
	s.FoldAfter = pick(w.rng, 0, 100*time.Millisecond, time.Second, 5*time.Second)
	s.Poison = pick(w.rng, config.Poison{}, s.Poison, config.Poison{Attempts: 2, After: time.Second}, config.Poison{Attempts: 5})
	b := newBroker(w, s.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.brokers[s.Name] = b
	w.mayDislike(&s)
	w.cfg.Sinks = append(w.cfg.Sinks, s)
	w.tracef("* sink %s: %+v %s %s %+v", s.Name, s.Window, s.WhenFull, s.FoldAfter, s.Poison)
}

// mayDislike lets the broker of a sink that gives up soon never take some objects.
func (w *world) mayDislike(s *config.Sink) {
	b := w.brokers[s.Name]
	if soon := s.Poison.Attempts > 0 && s.Poison.Attempts < 100; soon && w.chance(0.5) && b.dislikes() {
		s.Window = config.DefaultSink().Window // there has to be room beside what is never taken
		w.tracef("* %s never takes %v", s.Name, b.disliked)
	}
}

// process is one run of kbridge.
type process struct {
	number int
	views  int // that its configuration has
	d      *daemon
	cut    bool   // killed: nothing of it gets out any more
	commit func() // the one under way
	sinks  []*scriptedSink
	reg    *prometheus.Registry
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	left   bool // it said that it has not delivered all
}

// Write takes its log.
type processLog struct {
	w *world
	p *process
}

func (l *processLog) Write(line []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, secretText) {
		l.w.failf("a secret is logged: %s", text)
	}
	if strings.Contains(text, "not all that was read is delivered") {
		l.p.left = true
	}
	l.w.tracef("p%d: %s", l.p.number, text)
	return len(line), nil
}

// start starts kbridge with what the disk has.
func (w *world) start() {
	w.mu.Lock()
	w.processes++
	p := &process{number: w.processes, done: make(chan struct{}), reg: prometheus.NewRegistry()}
	w.rules[p.number] = rules{includes: map[string]bool{}}
	for _, s := range w.cfg.Sinks {
		w.rules[p.number].includes[s.Name] = includes(w.cfg, s.Name)
	}
	for _, r := range w.cfg.Resources {
		w.rules[p.number] = rules{drops: len(r.Drop) > 0, includes: w.rules[p.number].includes}
		p.views += max(1, len(r.Namespaces))
	}
	w.tracef("* start process %d", p.number)
	w.mu.Unlock()
	log := slog.New(slog.NewTextHandler(&processLog{w, p}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	cfg := *w.cfg
	cfg.Sinks, cfg.Resources = slices.Clone(cfg.Sinks), slices.Clone(cfg.Resources)
	p.d = newDaemon(&cfg, cfg.Sinks, adapters{
		sink: func(_ context.Context, s config.Sink) (sink, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			out := &scriptedSink{b: w.brokers[s.Name], p: p}
			p.sinks = append(p.sinks, out)
			return out, nil
		},
		aside: func(config.State) (*spill.File, error) {
			return spilltest.Open(w.t), nil
		},
		deadLetters: func(s config.Sink) (sinks.DeadLetters, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return &scriptedDeadLetters{w.brokers[s.Name], p}, nil
		},
		state: func(context.Context, config.State) (state.Store, error) { return &scriptedStore{d: w.disk, p: p}, nil },
		tracer: func(cfg config.Tracing) (*tracing.Tracer, error) {
			return tracing.New(cfg.SampleRatio, &scriptedCollector{w}, "test", p.reg, log), nil
		},
	}, 25*time.Second, p.reg, log)
	client, err := informer.NewClient(w.api.Config(), 1000, 1000, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	client.MaxObject = int(w.cfg.Kubernetes.MaxObject)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		defer client.Close()
		p.err = p.d.run(ctx, client)
		if ctx.Err() == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failf("process %d ends by itself: %v", p.number, p.err)
		}
	}()
	w.p = p
}

// kill ends the process without any warning. What is under way to brokers and disk
// arrives or does not.
func (w *world) kill() {
	p := w.p
	w.p = nil
	w.mu.Lock()
	w.tracef("* kill process %d", p.number)
	p.cut = true
	for _, s := range p.sinks {
		s.sever()
	}
	if p.commit != nil && w.rng2.IntN(2) == 0 {
		p.commit()
	}
	w.expose()
	w.checkDisk()
	w.unwritten[w.processes+1] = w.disk != nil && time.Since(w.disk.failedAt) < 5*time.Second
	w.mu.Unlock()
	p.d.grace = 0
	p.cancel()
	<-p.done
}

// stop ends the process as SIGTERM does.
func (w *world) stop() {
	p := w.p
	w.p = nil
	w.say("stop process %d", p.number)
	p.cancel()
	<-p.done
	w.checkSpans(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.cut = true
	w.clean[p.number+1] = p.err == nil && !p.left && w.disk != nil && !w.restored
	w.tracef("* process %d has stopped: %v, clean=%t", p.number, p.err, w.clean[p.number+1])
	slow := w.disk != nil && w.disk.slow > 0 && errors.Is(p.err, errHangs)
	if p.err != nil && !errors.Is(p.err, errScripted) && !slow {
		w.failf("a stop fails: %v", p.err)
	}
	if !w.clean[p.number+1] {
		w.expose()
	}
	w.checkDisk()
}

// reconfigure changes the configuration between two processes.
func (w *world) reconfigure() {
	cfg := *w.cfg
	cfg.Resources, cfg.Sinks = slices.Clone(cfg.Resources), slices.Clone(cfg.Sinks)
	w.cfg = &cfg
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notePartial()
	}()
	switch w.rng.IntN(8) {
	case 0:
		if len(w.brokers) < 5 {
			w.addSink()
			r := &cfg.Resources[w.rng.IntN(len(cfg.Resources))]
			if len(r.Sinks) > 0 {
				r.Sinks = append(slices.Clone(r.Sinks), cfg.Sinks[len(cfg.Sinks)-1].Name)
			}
		}
	case 1:
		without := cfg
		without.Resources, without.Sinks = slices.Clone(cfg.Resources), slices.Clone(cfg.Sinks)
		if withoutSink(&without, cfg.Sinks[0].Name); len(without.Sinks) > 0 && len(without.Resources) > 0 {
			w.say("without sink %s", cfg.Sinks[0].Name)
			cfg = without
		}
	case 6:
		r := &cfg.Resources[w.rng.IntN(len(cfg.Resources))]
		if r.Secrets == config.SecretsInclude {
			r.Secrets = config.SecretsRedact
		} else {
			r.Secrets = config.SecretsInclude
		}
		w.say("%s: secrets %s", r.Resource, r.Secrets)
	case 7:
		w.reselect(&cfg.Resources[w.rng.IntN(len(cfg.Resources))])
	case 2:
		drop := []string(nil)
		if len(cfg.Resources[0].Drop) == 0 {
			drop = []string{"spec.noise"}
		}
		w.say("drop %v", drop)
		for i := range cfg.Resources {
			cfg.Resources[i].Drop = drop
		}
	case 3:
		resync := pick(w.rng, 0, 10*time.Second, time.Minute)
		if w.dislikes() { // a snapshot takes as long as it takes to give up some of it
			resync = 5 * time.Minute
		}
		w.say("resync %s", resync)
		for i := range cfg.Resources {
			cfg.Resources[i].Resync = resync
		}
	case 4:
		onStart := pick(w.rng, config.OnStartResume, config.OnStartSnapshot)
		w.say("on start %s", onStart)
		for i := range cfg.Resources {
			cfg.Resources[i].OnStart = onStart
		}
	case 5:
		s := &cfg.Sinks[w.rng.IntN(len(cfg.Sinks))]
		s.WhenFull = pick(w.rng, config.WhenFullFold, config.WhenFullBlock)
		if len(w.brokers[s.Name].disliked) == 0 {
			s.Window.Events = pick(w.rng, 1, 3, 20, 1000)
		}
	}
}

// sleep lets time pass, and keeps the appointments that fall into it.
func (w *world) sleep(d time.Duration) {
	end := time.Now().Add(d)
	for {
		slices.SortStableFunc(w.later, func(a, b appointment) int { return a.at.Compare(b.at) })
		if len(w.later) == 0 || w.later[0].at.After(end) {
			break
		}
		a := w.later[0]
		w.later = w.later[1:]
		time.Sleep(time.Until(a.at))
		a.do()
	}
	if d > 0 {
		time.Sleep(time.Until(end))
	}
	w.checkLanes()
}

func (w *world) after(d time.Duration, do func()) {
	w.later = append(w.later, appointment{time.Now().Add(d), do})
}

// step is one thing that happens, and some time after it.
func (w *world) step() {
	switch n := w.rng.IntN(100); {
	case n < 1 && w.chance(0.1): // it takes as long as a world does
		w.burst()
	case n < 60:
		for range 1 + w.rng.IntN(pick(w.rng, 1, 3, 10)) {
			w.mutate()
		}
	case n < 75:
		w.breakServer()
	case n < 88:
		w.breakBroker()
	case n < 91:
		w.breakDisk()
	default:
		w.endOrBegin()
	}
	w.sleep(pick(w.rng, 0, 0, 0, time.Millisecond, 30*time.Millisecond, 300*time.Millisecond, time.Second, 3*time.Second, 15*time.Second))
}

// mutate changes one object.
func (w *world) mutate() {
	gvrs := []schema.GroupVersionResource{modelConfigMaps, modelSecrets, modelWidgets}
	gvr := gvrs[w.rng.IntN(len(gvrs))]
	if w.unregistered[gvr] {
		return
	}
	pool := w.pools[gvr]
	k := pool[w.rng.IntN(len(pool))]
	w.mu.Lock()
	defer w.mu.Unlock()
	switch there := w.api.Get(gvr, k[0], k[1]) != nil; {
	case there && w.chance(0.25):
		w.delete(gvr, k)
		if w.chance(0.4) {
			w.put(gvr, k)
		}
	default:
		w.put(gvr, k)
	}
}

// burst changes one object more often than anything that is not bounded by the objects
// may hold.
func (w *world) burst() {
	gvr := pick(w.rng, modelConfigMaps, modelWidgets)
	if w.unregistered[gvr] {
		return
	}
	w.say("a burst of %s", gvr.Resource)
	k := w.pools[gvr][0]
	for i := range 2*burstSize/100 + 1 {
		for range 100 {
			w.mu.Lock()
			w.put(gvr, k)
			w.trace = w.trace[:len(w.trace)-1]
			w.mu.Unlock()
		}
		if i%5 == 0 {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

// burstSize is how many changes may wait to be settled by all sinks, whatever the sinks
// take: a thousand in any case, and twice as many before they are folded.
const burstSize = 2500

func (w *world) delete(gvr schema.GroupVersionResource, k [2]string) {
	uid := w.api.UID(gvr, k[0], k[1])
	rv := w.api.Delete(gvr, k[0], k[1])
	w.tracef("* delete %s %v %s at %s", gvr.Resource, k, short(uid), rv)
}

func (w *world) put(gvr schema.GroupVersionResource, k [2]string) {
	w.newest++
	n := strconv.Itoa(w.newest)
	o := scriptedapi.NewObject(k[0], k[1], "app", pick(w.rng, "x", "x", "y"))
	annotations := map[string]any{"n": n}
	o["metadata"].(map[string]any)["annotations"] = annotations
	if gvr == modelSecrets {
		o["data"] = map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(secretText + n))}
		annotations[corev1.LastAppliedConfigAnnotation] = `{"stringData":{"password":"` + secretText + `"}}`
		annotations[copyAnnotation] = pick(w.rng, "amqp://u:"+secretText+n+"@h/", "Basic "+base64.StdEncoding.EncodeToString([]byte(secretText+n)))
	}
	o["spec"] = map[string]any{"noise": strings.Repeat(noiseText, pick(w.rng, 1, 1, 20, 200)), "n": n}
	rv := w.api.Put(gvr, o)
	uid := w.api.UID(gvr, k[0], k[1])
	w.states[uid+"@"+rv+"="+n], w.values[uid+"="+n] = true, true
	w.tracef("* put %s %v %s.%s %v", gvr.Resource, k, short(uid), rv, o["metadata"].(map[string]any)["labels"])
}

// breakServer lets something go wrong at the API server.
func (w *world) breakServer() {
	gvrs := []schema.GroupVersionResource{modelConfigMaps, modelSecrets, modelWidgets}
	gvr := gvrs[w.rng.IntN(len(gvrs))]
	verb := pick(w.rng, scriptedapi.Verb(""), scriptedapi.List, scriptedapi.Watch)
	what := w.rng.IntN(18)
	if w.unregistered[gvr] && what != 13 {
		return
	}
	w.say("break server %d %s %s", what, gvr.Resource, verb)
	switch what {
	case 0:
		w.api.CutWatches()
	case 1:
		w.api.CutWatches(gvr)
	case 2:
		w.api.CutInFrame(gvr)
	case 3:
		w.api.Compact()
		w.api.CutWatches()
	case 4:
		w.api.SendError(gvr, nil)
	case 5:
		w.api.Down()
		w.after(pick(w.rng, 100*time.Millisecond, 3*time.Second, 40*time.Second, 3*time.Minute), w.api.Up)
	case 6:
		w.api.FailNext(verb, schema.GroupVersionResource{}, slices.Repeat([]scriptedapi.Fault{scriptedapi.Fail(pick(w.rng, 500, 503, 403, 504))}, 1+w.rng.IntN(4))...)
		w.api.EndWatches()
	case 7:
		w.api.FailNext(verb, gvr, pick(w.rng, scriptedapi.Expired(), scriptedapi.Fault{Drop: true}, scriptedapi.Fault{CutAfter: 200}, scriptedapi.Throttle(time.Second)))
		w.api.EndWatches(gvr)
	case 8:
		w.api.FailNext(verb, gvr, scriptedapi.Fault{Delay: 2 * time.Second}, scriptedapi.Fault{Pace: 100 * time.Millisecond})
		w.api.CutWatches(gvr)
	case 9:
		on := w.chance(0.5)
		w.api.SetWatchList(on)
	case 10:
		w.api.Restart()
	case 11:
		w.backup = w.api.Snapshot()
	case 12:
		if w.backup != nil && w.chance(0.3) && len(w.unregistered) == 0 {
			w.restore()
		}
	case 13:
		w.unregister()
	case 14:
		w.api.SendRaw(gvr, []byte(pick(w.rng, "{\"type\":\"MODIFIED\",\"object\":{}}\n", "}{\n", "{\"type\":\"ADDED\",\"obj", endlessFrame)))
	case 15:
		w.api.Advance(1 + w.rng.IntN(100))
		w.api.Bookmark(gvr)
	case 16:
		w.api.SetHistory(pick(w.rng, 1, 5, 1000))
	case 17:
		w.api.SetExpiredAsHTTP(w.chance(0.5))
	}
}

// endlessFrame is more than some of the processes take of a frame.
var endlessFrame = `{"type":"ADDED","object":{"x":"` + strings.Repeat("x", 100<<10)

// restore puts the cluster back to a backup. Either new changes get versions after all that
// were, as `etcdutl snapshot restore --bump-revision --mark-compacted` has it; or they get
// those that were given before, and the history may be longer than it was when kbridge
// looks.
func (w *world) restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.ver(w.api.Version())
	w.restored = true
	bump := w.chance(0.5)
	w.tracef("* restore a backup, bump=%t", bump)
	w.api.Restore(w.backup)
	w.backup = nil
	if !bump {
		for range w.rng.IntN(20) {
			w.mu.Unlock()
			w.mutate()
			w.mu.Lock()
		}
		if w.chance(0.7) {
			w.api.Advance(max(0, int(was-w.ver(w.api.Version()))) + w.rng.IntN(5))
		}
		return
	}
	w.mu.Unlock()
	w.sleep(pick(w.rng, 0, time.Second, 10*time.Second))
	w.mu.Lock()
	w.api.Advance(int(was-w.ver(w.api.Version())) + 1)
	w.api.Compact()
	w.api.CutWatches()
}

// unregister deletes the CRD with all its objects, and brings it back later.
func (w *world) unregister() {
	if w.unregistered[modelWidgets] {
		return
	}
	if w.chance(0.5) {
		w.api.CutWatches(modelWidgets)
	}
	w.backup = nil
	w.unregistered[modelWidgets] = true
	w.api.Unregister(modelWidgets)
	w.after(pick(w.rng, 100*time.Millisecond, 10*time.Second, time.Minute), func() {
		w.say("register widgets")
		w.api.Register(modelWidgets, "Widget", false)
		delete(w.unregistered, modelWidgets)
	})
}

func (w *world) breakBroker() {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.cfg.Sinks[w.rng.IntN(len(w.cfg.Sinks))]
	b := w.brokers[s.Name]
	if w.chance(0.6) {
		b.worsen()
		w.tracef("* %s: latency %s failing %.1f losing %.1f refusing %.1f", b.name, b.latency, b.failing, b.losing, b.refusing)
		return
	}
	waits := w.chance(0.5)
	b.setDown(true, waits)
	d := pick(w.rng, 300*time.Millisecond, 5*time.Second, time.Minute, 5*time.Minute)
	w.tracef("* %s is down for %s, waits=%t", b.name, d, waits)
	w.after(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tracef("* %s is back", b.name)
		b.setDown(false, false)
	})
}

func (w *world) breakDisk() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.disk != nil {
		w.disk.failing = pick(w.rng, 0, 0.5, 1)
		w.disk.slow = pick(w.rng, 0, 50*time.Millisecond, 2*time.Second)
		w.tracef("* disk: failing %.1f slow %s", w.disk.failing, w.disk.slow)
	}
}

// endOrBegin ends the process, or begins the next one.
func (w *world) endOrBegin() {
	switch {
	case w.disk == nil:
	case w.p == nil:
		if w.chance(0.4) {
			w.reconfigure()
		}
		w.start()
	case w.chance(0.6):
		w.kill()
	default:
		w.stop()
	}
	if w.p == nil && w.disk != nil && w.chance(0.5) {
		w.start()
	}
}

// heal makes all well again.
func (w *world) heal() {
	w.say("heal")
	for len(w.later) > 0 {
		a := w.later[0]
		w.later = w.later[1:]
		a.do()
	}
	w.api.SetHistory(1000)
	w.mu.Lock()
	for _, b := range w.brokers {
		b.heal()
	}
	for _, s := range w.cfg.Sinks { // what is changed while it settles settles itself
		if gvr, k, ok := w.favourite(s.Name); ok {
			for _, b := range w.brokers {
				delete(b.disliked, event.Key{Group: gvr.Group, Resource: gvr.Resource, Namespace: k[0], Name: k[1]})
			}
		}
	}
	if w.disk != nil {
		w.disk.failing, w.disk.slow = 0, 0
	}
	w.mu.Unlock()
	if w.p == nil {
		w.start()
	}
}

// await waits until the sinks have the truth and nothing is under way.
func (w *world) await() {
	began := time.Now()
	for n := 0; ; n++ {
		time.Sleep(time.Second)
		if w.failed() {
			return
		}
		text := w.converged()
		if text == "" {
			break
		}
		// Not each time: a sink that is behind is told of a change a second later, when its
		// record is stored.
		if n%5 == 0 {
			w.touch()
		}
		if time.Since(began) > 15*time.Minute { // a watch may wait for the rest of a frame until its timeout
			w.mu.Lock()
			w.failf("it has been well for %s, and:%s", time.Since(began), text)
			w.mu.Unlock()
			return
		}
	}
	text := ""
	for n := range 120 { // a resync may be under way, or wait until a start is certain of what sinks have
		time.Sleep(1700 * time.Millisecond)
		if text = w.settled() + w.uncounted() + w.mistold(); text == "" {
			return
		}
		if n%5 == 0 {
			w.touch()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failf("at rest:%s", text)
}

// touch changes the object that all brokers take, where one of them never takes others:
// what it fails is given up only while it takes something.
func (w *world) touch() {
	if !w.dislikes() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.cfg.Sinks {
		if gvr, k, ok := w.favourite(s.Name); ok && len(w.brokers[s.Name].disliked) > 0 {
			w.put(gvr, k)
		}
	}
}

// dislikes says that there is a broker that never takes some objects.
func (w *world) dislikes() bool {
	return slices.ContainsFunc(w.cfg.Sinks, func(s config.Sink) bool { return len(w.brokers[s.Name].disliked) > 0 })
}

// favourite is an object whose changes the sink is told of, and whose events it always
// takes: what it fails is given up only while it takes something. There may be none.
func (w *world) favourite(sink string) (gvr schema.GroupVersionResource, k [2]string, ok bool) {
	for i := range w.cfg.Resources {
		r := &w.cfg.Resources[i]
		if !r.SendsTo(sink) || !tellsAll(r) || r.LabelSelector != "" || w.unregistered[gvrOf(*r)] {
			continue
		}
		for _, k := range w.pools[gvrOf(*r)] {
			if !w.brokers[sink].likes(event.Key{Group: r.APIGroup(), Resource: r.Resource, Namespace: k[0], Name: k[1]}) {
				continue
			}
			if !slices.Contains(r.ExcludeNamespaces, k[0]) && (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, k[0])) {
				return gvrOf(*r), k, true
			}
		}
	}
	return schema.GroupVersionResource{}, [2]string{}, false
}
