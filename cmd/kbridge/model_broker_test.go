package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/examples/consumer/mirror"
	"github.com/kbridge-io/kbridge/sinks"
)

// broker is what stands behind one sink. It outlives the processes. The world's mutex
// guards it.
type broker struct {
	name  string
	w     *world
	rng   *rand.Rand
	log   []*stored
	ids   map[string]*stored // the first of each id
	last  map[string]int     // the process that sent an id last
	acked map[string]sent    // when an id was acknowledged last, or taken as a dead letter

	latency  time.Duration // at most
	failing  float64       // the part of the events that is refused for now
	losing   float64       // the part whose acknowledgement is lost
	refusing float64       // the part of the objects that is refused for good
	down     bool
	open     chan struct{} // closed while Publish need not wait
	// disliked are the objects, and the markers, of which nothing is ever taken, or nothing
	// of that type.
	disliked map[event.Key]event.Type

	// What consumers make of it: of every event, of the first of each id, and of what
	// is newer than what they have.
	plain, once, newest consumer
	// What the consumer that docs/CONSUMERS.md describes has: of every event, and of the first of each id.
	mirror, mirrorOfOnce *mirror.Mirror
	snapshots            map[string]*told
	lineages             map[string]*lineage
	unstored             map[string]time.Time // see expose: since when
	partial, reselected  map[string]bool      // by resource: see notePartial and reselect
	left                 map[string]bool      // by resource and namespace: see reselect
}

// sent is which process sent an event, and when.
type sent struct {
	process int
	at      time.Time
}

// stored is one event in the order of the log.
type stored struct {
	event.Event

	w        *world
	process  int // that sent it
	at       time.Time
	repeated bool // the id has been there
	dead     bool // it is in the dead letters
	body     body
}

func (s *stored) String() string {
	text := fmt.Sprintf("%s %s/%s/%s %s p%d", s.Type, s.Key.Resource, s.Key.Namespace, s.Key.Name, s.ID, s.process)
	for _, mark := range []struct {
		on   bool
		text string
	}{{s.Snapshot != "", " in " + s.Snapshot}, {s.Inferred, " inferred"}, {s.repeated, " repeated"}, {s.dead, " dead"}} {
		if mark.on {
			text += mark.text
		}
	}
	return text
}

func newBroker(w *world, name string) *broker {
	b := &broker{
		name: name, w: w, rng: rand.New(rand.NewPCG(w.seed, uint64(len(w.brokers)+7))), ids: map[string]*stored{}, last: map[string]int{}, acked: map[string]sent{}, open: make(chan struct{}),
		plain: consumer{}, once: consumer{}, newest: consumer{}, mirror: mirror.New(), mirrorOfOnce: mirror.New(), snapshots: map[string]*told{}, lineages: map[string]*lineage{}, unstored: map[string]time.Time{},
		partial: map[string]bool{}, reselected: map[string]bool{}, left: map[string]bool{},
	}
	close(b.open)
	b.latency = pick(b.rng, 0, 5*time.Millisecond, 200*time.Millisecond)
	return b
}

// worsen lets something go wrong, or right again.
func (b *broker) worsen() {
	b.latency = pick(b.rng, 0, time.Millisecond, 20*time.Millisecond, 300*time.Millisecond, 3*time.Second)
	b.failing = pick(b.rng, 0, 0, 0.1, 0.5)
	b.losing = pick(b.rng, 0, 0, 0.1, 0.4)
	b.refusing = pick(b.rng, 0, 0, 0, 0.1)
}

// dislikes lets the broker never take some objects, and some markers, which no healing
// mends. Something of the sink has to be taken: a marker that is not holds up all of its
// resource. It returns false where nothing is sure to be.
func (b *broker) dislikes() bool {
	gvr, favourite, ok := b.w.favourite(b.name)
	if !ok || gvr == modelWidgets { // which may not be served for a while
		return false
	}
	b.disliked = map[event.Key]event.Type{}
	for _, r := range b.w.cfg.Resources {
		of := gvrOf(r)
		for _, k := range b.w.pools[of] {
			if (of != gvr || k != favourite) && b.rng.Float64() < 0.1 {
				b.disliked[event.Key{Group: of.Group, Resource: of.Resource, Namespace: k[0], Name: k[1]}] = 0
			}
		}
		for _, ns := range append([]string{""}, r.Namespaces...) {
			if of != gvr && b.rng.Float64() < 0.2 {
				b.disliked[event.Key{Group: of.Group, Resource: of.Resource, Namespace: ns, Name: "_snapshot"}] = pick(b.rng, 0, event.SnapshotStarted, event.SnapshotCompleted)
			}
		}
	}
	return true
}

// likes says that nothing keeps an object's events from being taken: no marker either, for
// which they would wait.
func (b *broker) likes(key event.Key) bool {
	for disliked := range b.disliked {
		if disliked == key || disliked.Name == "_snapshot" && disliked.Group == key.Group && disliked.Resource == key.Resource {
			return false
		}
	}
	return true
}

// takes says that the broker may ever take an event.
func (b *broker) takes(e *event.Event) bool {
	t, disliked := b.disliked[e.Key]
	return !disliked || t != 0 && t != e.Type
}

// heal makes all well.
func (b *broker) heal() {
	b.latency, b.failing, b.losing, b.refusing = time.Millisecond, 0, 0, 0
	b.setDown(false, false)
	if _, _, ok := b.w.favourite(b.name); !ok && len(b.disliked) > 0 {
		// The selection has changed: what it still selects is what the broker never takes.
		b.w.tracef("* %s takes everything", b.name)
		b.disliked = nil
	}
}

// setDown begins or ends an outage. A broker that is away either fails what is sent to
// it or lets the client wait.
func (b *broker) setDown(down, waits bool) {
	select {
	case <-b.open:
		if down && waits {
			b.open = make(chan struct{})
		}
	default:
		if !down || !waits {
			close(b.open)
		}
	}
	b.down = down
}

// append adds to the log what has arrived.
func (b *broker) append(e *event.Event, process int, dead bool) {
	s := &stored{Event: *e, w: b.w, process: process, at: time.Now(), dead: dead}
	_, s.repeated = b.ids[s.DedupID()]
	if !s.repeated {
		b.ids[s.DedupID()] = s
	}
	b.log = append(b.log, s)
	b.w.tracef("%s: %v", b.name, s)
	b.look(s)
	b.last[s.DedupID()] = process
}

// scriptedSink is a process's client of a broker.
type scriptedSink struct {
	b       *broker
	p       *process
	flights []*flight // in order of sending
}

// flight is one event under way.
type flight struct {
	event event.Event // a copy
	sent  *event.Event
	done  func(error)
	over  bool
}

var (
	_ sink              = (*scriptedSink)(nil)
	_ sinks.DeadLetters = (*scriptedDeadLetters)(nil)
)

func (s *scriptedSink) Name() string { return s.b.name }
func (s *scriptedSink) Err() error   { return nil }

func (s *scriptedSink) Publish(ctx context.Context, e *event.Event, done func(error)) {
	w := s.b.w
	w.mu.Lock()
	for !s.p.cut {
		open := s.b.open
		select {
		case <-open:
		default:
			w.mu.Unlock()
			select {
			case <-open:
			case <-ctx.Done():
				done(ctx.Err())
				return
			}
			w.mu.Lock()
			continue
		}
		break
	}
	if s.p.cut {
		w.mu.Unlock()
		return
	}
	for _, f := range s.flights {
		if f.event.Key == e.Key {
			w.failf("%s: %s is sent while %s of the same object is under way", s.b.name, e.ID, f.event.ID)
		}
	}
	w.checkTrace(s.b.name, e)
	f := &flight{event: *e, sent: e, done: done}
	f.event.Value = slices.Clone(e.Value)
	s.flights = append(s.flights, f)
	latency := time.Duration(0)
	if s.b.latency > 0 {
		latency = rand.N(s.b.latency)
	}
	w.mu.Unlock()
	if latency == 0 {
		s.answer(f)
		return
	}
	time.AfterFunc(latency, func() { s.answer(f) })
}

var errScripted = errors.New("scripted")

// answer decides what becomes of an event that is under way.
func (s *scriptedSink) answer(f *flight) {
	b, w := s.b, s.b.w
	w.mu.Lock()
	if s.p.cut || f.over {
		w.mu.Unlock()
		return
	}
	f.over = true
	s.flights = slices.DeleteFunc(s.flights, func(o *flight) bool { return o == f })
	if f.sent.ID != f.event.ID || !bytes.Equal(f.sent.Value, f.event.Value) {
		w.failf("%s: %s has changed under way", b.name, f.event.ID)
	}
	var err error
	switch {
	case b.down || b.rng.Float64() < b.failing || !b.takes(&f.event):
		err = fmt.Errorf("%w: not now", errScripted)
	case b.rng.Float64() < b.refusing && f.event.Type < event.Synced:
		err = sinks.Permanent(fmt.Errorf("%w: never", errScripted))
	default:
		b.append(&f.event, s.p.number, false)
		if b.rng.Float64() < b.losing {
			err = fmt.Errorf("%w: no answer", errScripted)
		} else {
			b.acked[f.event.DedupID()] = sent{s.p.number, time.Now()}
		}
	}
	w.mu.Unlock()
	f.done(err)
}

// sever is the end of the process: what is under way arrives or does not.
func (s *scriptedSink) sever() {
	for _, f := range s.flights {
		f.over = true
		if !s.b.down && s.b.rng.IntN(2) == 0 {
			s.b.append(&f.event, s.p.number, false)
		}
	}
	s.flights = nil
}

func (s *scriptedSink) Close(context.Context) error {
	s.b.w.mu.Lock()
	left := s.flights
	s.flights = nil
	for _, f := range left {
		f.over = true
	}
	s.b.w.mu.Unlock()
	for _, f := range left {
		f.done(fmt.Errorf("%w: closed", errScripted))
	}
	return nil
}

// scriptedDeadLetters keeps what is refused in the same log, marked: a consumer that
// also reads the dead letters has everything.
type scriptedDeadLetters struct {
	b *broker
	p *process
}

func (d *scriptedDeadLetters) Write(_ context.Context, _ string, e *event.Event, _ error) error {
	d.b.w.mu.Lock()
	defer d.b.w.mu.Unlock()
	if d.p.cut || d.b.rng.IntN(4) == 0 {
		return fmt.Errorf("%w: no room for dead letters", errScripted)
	}
	kept := *e
	kept.Value = slices.Clone(e.Value)
	d.b.append(&kept, d.p.number, true)
	d.b.acked[kept.DedupID()] = sent{d.p.number, time.Now()}
	return nil
}

func (d *scriptedDeadLetters) Err() error { return nil }

// pick returns one of the values.
func pick[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }
