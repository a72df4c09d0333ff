package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

var (
	pods     = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "pods", Kind: "Pod", Selected: true})
	allTypes = []event.Type{event.Added, event.Updated, event.Deleted, event.Synced}
	errAgain = errors.New("try again")
	errNever = sinks.Permanent(errors.New("too large"))
)

// update is a delta of the pod of that name; body is the length of its JSON.
func update(name string, version, body int) *event.Delta {
	const frame = len(`{"n":""}`)
	o := &event.Object{
		Namespace: "shop", Name: name, UID: "uid-" + name, ResourceVersion: strconv.Itoa(version),
		Body: slices.Clip([]byte(`{"n":"` + strings.Repeat("x", max(0, body-frame)) + `"}`)),
	}
	return &event.Delta{Type: event.Updated, Resource: pods, Object: o, Time: time.Now()}
}

// testSink is a sink whose every answer the test gives.
type testSink struct {
	publish func(ctx context.Context, e *event.Event, done func(error))
}

func (testSink) Name() string                { return "live" }
func (testSink) Close(context.Context) error { return nil }
func (s testSink) Publish(ctx context.Context, e *event.Event, done func(error)) {
	s.publish(ctx, e, done)
}

// inbox holds what was published and is not answered, by the event's id.
type inbox struct {
	mu    sync.Mutex
	done  map[string]func(error)
	order []string // of all that came, as name/version
}

func (b *inbox) publish(_ context.Context, e *event.Event, done func(error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done == nil {
		b.done = map[string]func(error){}
	}
	id := e.Key.Name + "/" + e.ResourceVersion
	b.done[id] = done
	b.order = append(b.order, id)
}

// answer answers for the event and waits until all that follows has happened.
func (b *inbox) answer(t *testing.T, id string, err error) {
	t.Helper()
	b.mu.Lock()
	done := b.done[id]
	delete(b.done, id)
	b.mu.Unlock()
	if done == nil {
		t.Fatalf("%s is not under way", id)
	}
	done(err)
	synctest.Wait()
}

// came are all that were published so far.
func (b *inbox) came() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.order, " ")
}

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logText) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *logText) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// rig is a lane that runs, with what is around it.
type rig struct {
	*Lane
	t    *testing.T
	reg  *prometheus.Registry
	file string // of the dead letters
	dead *DeadLetterFile
	log  *logText
	ctx  context.Context
	stop func() // ends Run and waits for it
}

// change sets what a test wants otherwise.
type change func(*Options)

// called gives the sink another name.
func called(name string) change {
	return func(o *Options) { o.Sink = named{o.Sink.(testSink), name} }
}

func newRig(t *testing.T, publish func(context.Context, *event.Event, func(error)), changes ...change) *rig {
	t.Helper()
	r := &rig{t: t, reg: prometheus.NewRegistry(), file: filepath.Join(t.TempDir(), "dead", "live.jsonl"), log: &logText{}}
	dead, err := OpenDeadLetters(r.file)
	if err != nil {
		t.Fatal(err)
	}
	r.dead = dead
	o := Options{
		Sink: testSink{publish}, Format: event.Structured, MaxBytes: 1 << 20, MaxEvents: 1000,
		DeadLetters: dead, Metrics: NewMetrics(r.reg), Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, c := range changes {
		c(&o)
	}
	r.Lane = NewLane(o)
	ctx, cancel := context.WithCancelCause(t.Context())
	r.ctx = ctx
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel(errors.New("stopped by the test"))
		if err := <-ended; err != nil {
			t.Errorf("Run returns %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *rig) feed(types ...event.Type) (*Feed, *Port) {
	if types == nil {
		types = allTypes
	}
	p := r.NewPort(pods.Name(), pods, "", types)
	return NewFeed(nil, p), p
}

// send hands over a delta that has room, and the position behind it.
func (r *rig) send(f *Feed, d *event.Delta) {
	r.t.Helper()
	if err := f.Delta(r.ctx, d); err != nil {
		r.t.Fatal(err)
	}
	f.Position(d.Object.ResourceVersion)
}

// drain waits until all is dealt with.
func (r *rig) drain() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := r.Drain(ctx, false); err != nil {
		r.t.Error(err)
	}
	synctest.Wait()
}

// sum adds up the counters or gauges of that name.
func (r *rig) sum(name string) int {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return int(sum)
}

// deadLetter is one line of the file.
type deadLetter struct {
	Time   time.Time
	Sink   string
	Reason string
	Event  json.RawMessage
}

// letters reads the dead letters.
func (r *rig) letters() []deadLetter {
	r.t.Helper()
	r.dead.mu.Lock()
	data, err := os.ReadFile(r.file)
	r.dead.mu.Unlock()
	if err != nil {
		r.t.Fatal(err)
	}
	var list []deadLetter
	for line := range strings.Lines(string(data)) {
		var l deadLetter
		if err := json.Unmarshal([]byte(line), &l); err != nil || !strings.HasSuffix(line, "\n") {
			r.t.Fatalf("a dead letter is no line of JSON (%v): %q", err, line)
		}
		list = append(list, l)
	}
	return list
}

// idOf is the id of the event in a dead letter.
func idOf(t *testing.T, l deadLetter) string {
	t.Helper()
	var e struct{ ID string }
	if err := json.Unmarshal(l.Event, &e); err != nil || e.ID == "" {
		t.Fatalf("a dead letter's event is none (%v): %s", err, l.Event)
	}
	return e.ID
}

// check looks into the lane: the bounds hold, and what it counts is there.
func (r *rig) check() error {
	l := r.Lane
	l.mu.Lock()
	defer l.mu.Unlock()
	var bytes int64
	var events, open int
	seen := map[*entry]string{}
	for _, p := range l.ports {
		if (p.head == nil) != (p.tail == nil) {
			return errors.New("a queue has one end")
		}
		if p.head != nil && p.head.dealt {
			return errors.New("an entry that is dealt with stays at the head")
		}
		for e := p.head; e != nil; e = e.after {
			if seen[e] != "" {
				return errors.New("an entry is in the queues twice")
			}
			seen[e] = "queue"
			events++
			if !e.dealt {
				bytes += e.size
				open++
			}
			if e.after == nil && p.tail != e {
				return errors.New("the tail is not the last")
			}
		}
	}
	for e := l.free; e != nil; e = e.after {
		if seen[e] != "" {
			return errors.New("a free entry is also in a " + seen[e])
		}
		seen[e] = "free list"
	}
	for key, q := range l.keys {
		for _, e := range []*entry{q.oldest, q.newest} {
			if seen[e] != "queue" || e.dealt || e.event.Key != key {
				return fmt.Errorf("an end of the chain of %v is no open entry", key)
			}
		}
	}
	for _, e := range l.retries.entries {
		if seen[e] != "queue" || e.dealt {
			return errors.New("an entry that is retried is not open")
		}
	}
	switch {
	case bytes != l.bytes || events != l.events:
		return fmt.Errorf("%d bytes in %d events are counted as %d in %d", bytes, events, l.bytes, l.events)
	case l.bytes > l.opts.MaxBytes && open != 1:
		return fmt.Errorf("%d bytes are in a window of %d with %d events", l.bytes, l.opts.MaxBytes, open)
	case l.events > l.opts.MaxEvents+len(l.ports):
		return fmt.Errorf("%d events are in a window of %d", l.events, l.opts.MaxEvents)
	}
	return nil
}

// open counts what is not dealt with.
func (r *rig) open() int {
	r.Lane.mu.Lock()
	defer r.Lane.mu.Unlock()
	n := 0
	for _, p := range r.ports {
		for e := p.head; e != nil; e = e.after {
			if !e.dealt {
				n++
			}
		}
	}
	return n
}
