// Package sinktest is the contract of sinks.Sink as tests. Every sink runs them
// against its real broker; what is special to a broker is tested beside its sink.
package sinktest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// Harness is one sink with its broker, both for the one test that asked for them.
type Harness struct {
	// Open opens a sink on the broker, which may be stopped.
	Open func() sinks.Sink
	// Stored returns the values of all messages that the broker has stored, those of
	// one key in the order in which it has them.
	Stored func() [][]byte
	// Stop ends the broker as kill -9 does, and Start starts it again with what it
	// had stored. Nil where there is nothing to stop.
	Stop, Start func()
	// Stall makes the broker take nothing without its connections' ending, and
	// returns what ends that. Nil where that cannot be arranged.
	Stall func() func()
	// TooLarge is the size of a value that the broker refuses, however it is compressed; 0
	// if there is none.
	TooLarge int
	// Deduplicates says that the broker stores a repeated event once.
	Deduplicates bool
}

// timeout bounds every wait. It is long: it only passes when a test fails.
const timeout = 30 * time.Second

// Run runs the contract. open makes a harness, and puts away what it made with the
// test's Cleanup. Tests do not run at once.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	run := func(name string, needs func(Harness) bool, test func(*testing.T, Harness)) {
		t.Run(name, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, ignore) })
			h := open(t)
			if needs != nil && !needs(h) {
				t.Skip("the harness offers no broker that does what this asks for")
			}
			test(t, h)
		})
	}
	stops := func(h Harness) bool { return h.Stop != nil }
	run("AcknowledgedIsStoredAndOnce", nil, acknowledgedIsStored)
	run("TheEventsOfAKeyKeepTheirOrder", nil, orderHolds)
	run("TheEventIsNotReadAfterDone", nil, notReadAfterDone)
	run("PublishEndsWithItsContext", nil, publishEndsWithContext)
	run("CloseEndsWhatIsUnderWay", nil, closeEndsAll)
	run("PublishAfterCloseIsAnError", nil, publishAfterClose)
	run("ATooLargeEventIsAPermanentErrorAndItsNeighboursAreStored", func(h Harness) bool { return h.TooLarge > 0 }, tooLarge)
	run("ARepeatedEventIsStoredOnce", func(h Harness) bool { return h.Deduplicates }, deduplicates)
	run("PublishWaitsForABrokerThatIsNotThereYet", stops, waitsForBroker)
	run("CloseEndsWithItsContextWhileTheBrokerIsAway", stops, closeWithoutBroker)
	run("WhatWasAcknowledgedIsThereAfterTheBrokerWasKilled", stops, brokerKilled)
	run("CloseEndsWithItsContextWhileTheBrokerStalls", func(h Harness) bool { return h.Stall != nil }, closeWhileStalled)
	run("AStalledBrokerFailsWhatIsUnderWay", func(h Harness) bool { return h.Stall != nil }, stalled)
}

// lane does what a lane of package bridge does with a sink: one goroutine that
// publishes, one event of a key at a time, a buffer that is used again after done.
type lane struct {
	t    *testing.T
	sink sinks.Sink

	mu    sync.Mutex
	ended map[string]error // by event id, as done was called
	free  [][]byte
	all   sync.WaitGroup
}

func newLane(t *testing.T, sink sinks.Sink) *lane {
	l := &lane{t: t, sink: sink, ended: make(map[string]error)}
	t.Cleanup(func() { closeSink(t, sink) })
	return l
}

func closeSink(t *testing.T, sink sinks.Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := sink.Close(ctx); err != nil {
		t.Errorf("Close returned %v", err)
	}
}

// pods are the resource of all events here.
var pods = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "pods", Kind: "Pod"})

// Pod returns an event's delta: one state of a Pod whose JSON is at least size long.
func Pod(name string, version, size int) *event.Delta {
	uid, rv := "uid-"+name, fmt.Sprint(version)
	head := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q},"padding":"`, name, uid, rv)
	pad := max(0, size-len(head)-2)
	return &event.Delta{
		Type: event.Updated, Resource: pods, Time: time.Now(),
		Object: &event.Object{Namespace: "shop", Name: name, UID: uid, ResourceVersion: rv, Body: []byte(head + strings.Repeat("x", pad) + `"}`)},
	}
}

// Incompressible is like Pod, with text that a codec makes shorter by a quarter at most.
func Incompressible(name string, version, size int) *event.Delta {
	d := Pod(name, version, 0)
	head := bytes.TrimSuffix(d.Object.Body, []byte(`"}`))
	noise := make([]byte, max(0, size-len(d.Object.Body)))
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	text := base64.StdEncoding.EncodeToString(noise)[:len(noise)]
	d.Object.Body = append(append(head, text...), `"}`...)
	return d
}

// publish hands an event to the sink. Its buffer is overwritten as soon as done is
// called, so that a sink that reads it later stores rubbish, or is caught by the
// race detector.
func (l *lane) publish(ctx context.Context, d *event.Delta, then func(error)) {
	l.mu.Lock()
	var buf []byte
	if n := len(l.free); n > 0 {
		buf, l.free = l.free[n-1][:0], l.free[:n-1]
	}
	l.mu.Unlock()
	e := new(event.Event)
	if err := d.Encode(e, event.Structured, buf); err != nil {
		panic("BUG: " + err.Error()) // its body is in memory
	}
	id := e.ID
	l.all.Add(1)
	var once sync.Mutex
	l.sink.Publish(ctx, e, func(err error) {
		if !once.TryLock() {
			l.t.Errorf("done was called twice for %s", id)
			return
		}
		value := e.Value
		for i := range value {
			value[i] = '#'
		}
		*e = event.Event{}
		l.mu.Lock()
		l.ended[id] = err
		l.free = append(l.free, value)
		l.mu.Unlock()
		if then != nil {
			then(err)
		}
		l.all.Done()
	})
}

// wait waits until done was called for all that was published.
func (l *lane) wait() {
	l.t.Helper()
	ended := make(chan struct{})
	go func() {
		l.all.Wait()
		close(ended)
	}()
	within(l.t, ended, "done for every event")
}

func within(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(timeout):
		t.Fatalf("waited for %s in vain", what)
	}
}

// acknowledged returns the ids for which done told no error.
func (l *lane) acknowledged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for id, err := range l.ended {
		if err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (l *lane) err(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[id]
}

// stored is what is read of a stored event.
type stored struct {
	ID              string `json:"id"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceversion"`
	Data            struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"data"`
}

func readBack(t *testing.T, h Harness) []stored {
	t.Helper()
	var all []stored
	for _, value := range h.Stored() {
		var s stored
		if err := json.Unmarshal(value, &s); err != nil {
			t.Fatalf("stored is %.80q: %v", value, err)
		}
		if s.Data.Metadata.ResourceVersion != s.ResourceVersion {
			t.Fatalf("stored is %.80q: its head and its data are of different events", value)
		}
		all = append(all, s)
	}
	return all
}

func ids(all []stored) []string {
	list := make([]string, len(all))
	for i, s := range all {
		list[i] = s.ID
	}
	slices.Sort(list)
	return list
}

func acknowledgedIsStored(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	const n = 1000
	for i := range n {
		l.publish(t.Context(), Pod(fmt.Sprintf("pod-%d", i), 1, 512), nil)
	}
	l.wait()
	acked := l.acknowledged()
	if len(acked) != n {
		t.Errorf("%d of %d events were acknowledged", len(acked), n)
	}
	if got := ids(readBack(t, h)); !slices.Equal(got, acked) {
		t.Errorf("%d events were acknowledged, %d are stored, and they are not the same", len(acked), len(got))
	}
}

// chase publishes versions of each key, the next one when the one before has
// ended, and again when it has failed, until each key has had all its versions
// or ctx has ended. That is a lane's way to keep order.
func (l *lane) chase(ctx context.Context, keys, versions int) {
	type turn struct{ key, version int }
	turns := make(chan turn, keys)
	for k := range keys {
		turns <- turn{k, 1}
	}
	for left := keys; left > 0; {
		select {
		case next := <-turns:
			if next.version > versions {
				left--
				continue
			}
			l.publish(ctx, Pod(fmt.Sprintf("pod-%d", next.key), next.version, 512), func(err error) {
				if err == nil {
					next.version++
				}
				turns <- next
			})
		case <-ctx.Done():
			return
		}
	}
}

func orderHolds(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	const keys, versions = 50, 20
	l.chase(t.Context(), keys, versions)
	l.wait()
	inOrder(t, readBack(t, h), keys, versions)
}

// inOrder checks that each key's versions first appear in order and none is missing.
func inOrder(t *testing.T, all []stored, keys, versions int) {
	t.Helper()
	last := make(map[string]int)
	for _, s := range all {
		v, err := strconv.Atoi(s.ResourceVersion)
		if err != nil {
			t.Fatalf("%s: version %q is none of the test's", s.Name, s.ResourceVersion)
		}
		if v > last[s.Name]+1 {
			t.Errorf("%s: version %d comes after version %d", s.Name, v, last[s.Name])
		}
		last[s.Name] = max(last[s.Name], v)
	}
	if len(last) != keys {
		t.Errorf("events of %d keys are stored, want %d", len(last), keys)
	}
	for name, v := range last {
		if v != versions {
			t.Errorf("%s: the last version stored is %d, want %d", name, v, versions)
		}
	}
}

// notReadAfterDone leans on lane.publish: a buffer that is read after done holds
// other bytes, which readBack notices.
func notReadAfterDone(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	for i := range 500 {
		l.publish(t.Context(), Pod(fmt.Sprintf("pod-%d", i), 1, 100+i*37), nil)
		if i%16 == 0 {
			l.wait() // lets later events use the buffers of earlier ones
		}
	}
	l.wait()
	if got, want := ids(readBack(t, h)), l.acknowledged(); !slices.Equal(got, want) {
		t.Errorf("%d events are stored, %d were acknowledged", len(got), len(want))
	}
}

func publishEndsWithContext(t *testing.T, h Harness) {
	if h.Stop != nil {
		h.Stop()
		defer h.Start()
	}
	l := newLane(t, h.Open())
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.publish(ctx, Pod("blocked", 1, 512), nil)
	}()
	cancel()
	within(t, returned, "Publish to return")
	l.wait()
	if h.Stop != nil && !errors.Is(l.err("uid-blocked.1"), context.Canceled) {
		t.Errorf("done got %v, want the context's error", l.err("uid-blocked.1"))
	}
}

func closeEndsAll(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	for i := range 300 {
		l.publish(t.Context(), Pod(fmt.Sprintf("pod-%d", i), 1, 4096), nil)
	}
	closeSink(t, l.sink)
	l.wait()
	got := ids(readBack(t, h))
	for _, id := range l.acknowledged() {
		if _, found := slices.BinarySearch(got, id); !found {
			t.Errorf("%s was acknowledged and is not stored", id)
		}
	}
}

func publishAfterClose(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	closeSink(t, l.sink)
	l.publish(t.Context(), Pod("late", 1, 512), nil)
	l.wait()
	if l.err("uid-late.1") == nil {
		t.Error("an event was acknowledged by a closed sink")
	}
}

func tooLarge(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	for i := range 20 {
		pod := Pod(fmt.Sprintf("pod-%d", i), 1, 512)
		if i == 10 {
			pod = Incompressible(pod.Object.Name, 1, h.TooLarge)
		}
		l.publish(t.Context(), pod, nil)
	}
	l.wait()
	if err := l.err("uid-pod-10.1"); !errors.Is(err, sinks.ErrPermanent) {
		t.Errorf("done got %v for the large event, want a permanent error", err)
	}
	if got, want := ids(readBack(t, h)), l.acknowledged(); !slices.Equal(got, want) || len(got) != 19 {
		t.Errorf("%d events are stored and %d were acknowledged, want 19", len(got), len(want))
	}
}

func deduplicates(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	for range 2 {
		l.publish(t.Context(), Pod("twice", 1, 512), nil)
		l.wait()
		if err := l.err("uid-twice.1"); err != nil {
			t.Errorf("done got %v", err)
		}
	}
	if got := readBack(t, h); len(got) != 1 {
		t.Errorf("%d events are stored, want 1", len(got))
	}
}

func waitsForBroker(t *testing.T, h Harness) {
	h.Stop()
	l := newLane(t, h.Open())
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.publish(t.Context(), Pod("early", 1, 512), nil)
	}()
	h.Start()
	within(t, returned, "Publish to return")
	l.wait()
	// A broker that is there may still need a moment, and answers with a retryable
	// error until then.
	for deadline := time.Now().Add(timeout); l.err("uid-early.1") != nil && time.Now().Before(deadline); {
		if errors.Is(l.err("uid-early.1"), sinks.ErrPermanent) {
			break
		}
		l.publish(t.Context(), Pod("early", 1, 512), nil)
		l.wait()
	}
	if err := l.err("uid-early.1"); err != nil {
		t.Errorf("done got %v", err)
	}
}

func closeWithoutBroker(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	for i := range 100 {
		l.publish(t.Context(), Pod(fmt.Sprintf("pod-%d", i), 1, 4096), nil)
	}
	h.Stop()
	defer h.Start()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = l.sink.Close(ctx) // may say that it did not end all in time; it must return
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v, its context %v", took, 500*time.Millisecond)
	}
	l.wait()
}

func brokerKilled(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	const keys, versions = 40, 60
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.chase(t.Context(), keys, versions)
	}()
	for _, share := range []int{5, 2} { // of the whole, when the broker is killed
		deadline := time.Now().Add(timeout)
		for len(l.acknowledged()) < keys*versions/share && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		h.Stop()
		h.Start()
	}
	within(t, returned, "all events to be acknowledged")
	l.wait()
	all := readBack(t, h)
	if got, want := slices.Compact(ids(all)), l.acknowledged(); !slices.Equal(got, want) || len(want) != keys*versions {
		t.Errorf("%d events were acknowledged, %d are stored; want %d", len(want), len(got), keys*versions)
	}
	inOrder(t, all, keys, versions)
}

// closeWhileStalled closes a sink that is blocked in a write: what it has in hand
// then must not be read once done was called, which the race detector sees.
func closeWhileStalled(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	l.publish(t.Context(), Pod("before", 1, 512), nil)
	l.wait()
	defer h.Stall()()
	filled, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i := 0; filled.Err() == nil; i++ { // more than any buffer on the way takes
		l.publish(filled, Pod(fmt.Sprintf("pod-%d", i), 1, 64<<10), nil)
	}
	began := time.Now()
	_ = l.sink.Close(filled) // as above
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v after its context had ended", took)
	}
	l.wait()
}

func stalled(t *testing.T, h Harness) {
	l := newLane(t, h.Open())
	l.publish(t.Context(), Pod("before", 1, 512), nil)
	l.wait()
	resume := h.Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ { // more than any buffer on the way takes
		l.publish(ctx, Pod(fmt.Sprintf("pod-%d", i), 1, 64<<10), nil)
	}
	l.wait()
	resume()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
		l.publish(t.Context(), Pod("after", 1, 512), nil)
		l.wait()
		if l.err("uid-after.1") == nil {
			break
		}
	}
	if err := l.err("uid-after.1"); err != nil {
		t.Errorf("after the stall, done got %v", err)
	}
	got := ids(readBack(t, h))
	for _, id := range l.acknowledged() {
		if _, found := slices.BinarySearch(got, id); !found {
			t.Errorf("%s was acknowledged and is not stored", id)
		}
	}
}
