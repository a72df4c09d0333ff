package bridge

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run the model with this seed alone")
	seeds   = flag.Int("seeds", 1000, "how many seeds to run the model with")
)

// model runs a lane with random deltas, answers and stops, and knows what must
// come of it. A seed fixes the choices, and the scheduler their order.
type model struct {
	*rig
	rnd      *rand.Rand // guarded by mu
	mu       sync.Mutex
	busy     map[event.Key]string // the id that is under way
	last     map[event.Key]int    // the number of the last that was stored
	stored   map[string]int       // times that the sink said so
	refused  map[string]bool
	watches  []*watch
	offered  int // deltas that Delta took
	filtered int
	problems []error

	failing, refusing, blocking int // of 100 answers
	slowest                     time.Duration
}

// watch is one port and what went into it.
type watch struct {
	number int
	port   *Port
	types  []event.Type
	steps  []step
	deltas int // how many to hand over
}

// step is a delta that was taken, by its id, or a mark.
type step struct{ id, mark string }

func (m *model) problem(format string, args ...any) {
	m.problems = append(m.problems, fmt.Errorf(format, args...))
}

func (m *model) chance(percent int) bool { return m.rnd.IntN(100) < percent }

// publish checks that the object has nothing else under way and answers somehow.
func (m *model) publish(ctx context.Context, e *event.Event, done func(error)) {
	m.mu.Lock()
	id, key, body := e.ID, e.Key, string(e.Value)
	if other := m.busy[key]; other != "" {
		m.problem("%s is published while %s is under way", id, other)
	}
	if m.stored[id] > 0 || m.refused[id] {
		m.problem("%s is published again after its answer", id)
	}
	m.busy[key] = id
	var err error
	switch {
	case m.chance(m.failing):
		err = errAgain
	case m.chance(m.refusing):
		err = errNever
	}
	block, inside := m.chance(m.blocking), m.chance(30)
	delay := time.Duration(m.rnd.Int64N(int64(m.slowest)))
	m.mu.Unlock()

	answer := func(err error) {
		m.mu.Lock()
		if e.ID != id || e.Key != key || string(e.Value) != body {
			m.problem("%s became %s while it was under way", id, e.ID)
		}
		if m.busy[key] != id {
			m.problem("%s is answered while %q is under way", id, m.busy[key])
		}
		m.busy[key] = ""
		switch {
		case err == nil:
			number, _ := strconv.Atoi(e.ResourceVersion)
			if number <= m.last[key] {
				m.problem("%s is stored after number %d", id, m.last[key])
			}
			m.last[key] = number
			m.stored[id]++
		case errors.Is(err, errNever):
			m.refused[id] = true
		}
		m.mu.Unlock()
		done(err)
	}
	if block {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			answer(ctx.Err())
			return
		}
		inside = true
	}
	switch {
	case inside:
		answer(err)
	case delay < m.slowest/2:
		go answer(err)
	default:
		time.AfterFunc(delay, func() { answer(err) })
	}
}

// produce is one watch's goroutine. Its objects are its own.
func (m *model) produce(w *watch, number func() int, keys int) {
	feed, torn := NewFeed(nil, w.port), false
	mark := func(label string) {
		feed.Position(label)
		m.mu.Lock()
		defer m.mu.Unlock()
		if !torn {
			w.steps = append(w.steps, step{mark: label})
		}
	}
	list := 0 // deltas that are left of a list
	for range w.deltas {
		m.mu.Lock()
		n := number()
		d := update(fmt.Sprintf("pod-%d-%d", w.number, m.rnd.IntN(keys)), n, m.rnd.IntN(1500))
		if m.chance(2) {
			d.Object.Body = update("", 0, 9000).Object.Body
		}
		d.Type = allTypes[m.rnd.IntN(len(allTypes))]
		pause, patience := time.Duration(0), time.Hour
		if m.chance(20) {
			pause = time.Duration(m.rnd.Int64N(int64(50 * time.Millisecond)))
		}
		if m.chance(1) {
			patience = time.Duration(m.rnd.Int64N(int64(time.Second)))
		}
		startList := list == 0 && m.chance(3)
		if startList {
			list = m.rnd.IntN(6)
		}
		bookmark := m.chance(5)
		m.mu.Unlock()
		time.Sleep(pause)
		if startList {
			mark("")
		}
		// The books are written before the hand-over: an answer may come within it.
		counted := slices.Contains(w.types, d.Type)
		m.mu.Lock()
		at := len(w.steps)
		if counted && !torn {
			w.steps = append(w.steps, step{id: d.ID()})
		}
		m.mu.Unlock()
		waiting, cancel := context.WithTimeout(m.ctx, patience)
		err := feed.Delta(waiting, d)
		cancel()
		m.mu.Lock()
		switch {
		case err != nil && waiting.Err() == nil:
			m.problem("Delta returns %v", err)
		case err != nil:
			if !torn {
				w.steps = w.steps[:at]
			}
			torn = true
		case counted:
			m.offered++
			if torn {
				w.steps = append(w.steps, step{id: d.ID()}) // no mark follows
			}
		default:
			m.offered++
			m.filtered++
		}
		m.mu.Unlock()
		if list > 0 {
			list--
		}
		if list == 0 {
			mark(strconv.Itoa(n))
		}
		if list == 0 && bookmark {
			mark("b" + strconv.Itoa(n))
		}
	}
	mark("end")
}

// settled are the ids that are dealt with.
func (m *model) settled() map[string]bool {
	settled := map[string]bool{}
	for id := range m.stored {
		settled[id] = true
	}
	if len(m.refused) > 0 {
		for _, l := range m.letters() {
			settled[idOf(m.t, l)] = true
		}
	}
	return settled
}

// verify compares the lane with the books. At a quiescent point everything is
// equal; in between a position may be behind.
func (m *model) verify(quiescent bool) {
	positions := make([]string, len(m.watches))
	for i, w := range m.watches {
		positions[i] = w.port.Position() // before the books are read
	}
	if err := m.check(); err != nil {
		m.mu.Lock()
		m.problem("%w", err)
		m.mu.Unlock()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	settled := m.settled()
	for i, w := range m.watches {
		want, passed, open := "", false, false
		for _, s := range w.steps {
			switch {
			case s.id != "":
				open = open || !settled[s.id]
			case !open:
				want = s.mark
			case s.mark == positions[i] && s.mark != "":
				passed = true
			}
		}
		if passed {
			m.problem("watch %d: the position %s passes what is not dealt with", i, positions[i])
		}
		if quiescent && positions[i] != want {
			m.problem("watch %d: the position is %q, want %q", i, positions[i], want)
		}
	}
	if !quiescent {
		return
	}
	published, filtered, dead, open := m.sum("kbridge_published_total"), m.sum("kbridge_filtered_total"), m.sum("kbridge_dead_letters_total"), m.open()
	if m.offered != published+filtered+dead+open {
		m.problem("%d deltas were taken: %d published + %d filtered + %d dead letters + %d open", m.offered, published, filtered, dead, open)
	}
	if filtered != m.filtered || published != len(m.stored) {
		m.problem("%d filtered, %d published; counted %d and %d", m.filtered, len(m.stored), filtered, published)
	}
}

// finish checks that each delta that was taken had one end.
func (m *model) finish() {
	dead := map[string]int{}
	for _, l := range m.letters() {
		dead[idOf(m.t, l)]++
	}
	for i, w := range m.watches {
		for _, s := range w.steps {
			if s.id != "" && m.stored[s.id]+dead[s.id] != 1 {
				m.problem("watch %d: %s was stored %d times and dead-lettered %d times", i, s.id, m.stored[s.id], dead[s.id])
			}
		}
	}
	if bytes, events, waiting := m.Usage(); bytes != 0 || events != 0 || waiting != 0 {
		m.problem("after a drain %d bytes, %d events, %d waiting are left", bytes, events, waiting)
	}
}

func runModel(t *testing.T, seed uint64) []error {
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := &model{
		rnd: rnd, busy: map[event.Key]string{}, last: map[event.Key]int{}, stored: map[string]int{}, refused: map[string]bool{},
		failing: []int{0, 10, 60}[rnd.IntN(3)], refusing: []int{0, 0, 0, 0, 0, 5}[rnd.IntN(6)], blocking: []int{0, 3}[rnd.IntN(2)],
		slowest: []time.Duration{2, time.Millisecond, 200 * time.Millisecond}[rnd.IntN(3)],
	}
	m.rig = newRig(t, m.publish, func(o *Options) {
		o.Format = event.Format(rnd.IntN(2))
		o.MaxBytes = 1500 + rnd.Int64N(12000)
		o.MaxEvents = 1 + rnd.IntN(12)
	})
	version := 0
	number := func() int { version++; return version }
	var producers sync.WaitGroup
	keys, cut, after := 1+rnd.IntN(5), rnd.IntN(4) == 0, time.Duration(rnd.Int64N(int64(300*time.Millisecond)))
	for range 1 + rnd.IntN(3) {
		types := allTypes
		if rnd.IntN(3) == 0 {
			types = allTypes[:1+rnd.IntN(3)]
		}
		m.watches = append(m.watches, &watch{number: len(m.watches), port: m.NewPort(pods.Name(), pods, "", types), types: types, deltas: 5 + rnd.IntN(40)})
	}
	for _, w := range m.watches {
		producers.Go(func() { m.produce(w, number, keys) })
	}
	watching, stopWatching := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for watching.Err() == nil {
			m.verify(false)
			select {
			case <-time.After(40 * time.Millisecond):
			case <-watching.Done():
			}
		}
	})
	if cut {
		time.Sleep(after)
		m.stop()
	}
	producers.Wait()
	stopWatching()
	watcher.Wait()
	synctest.Wait()
	m.verify(true)
	if cut {
		time.Sleep(time.Minute) // late answers
		synctest.Wait()
		m.verify(true)
	} else {
		m.drain()
		m.verify(true)
		m.finish()
	}
	m.stop()
	return m.problems
}

func TestTheModelHoldsForEverySeed(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	switch {
	case *oneSeed > 0:
		first, last = *oneSeed, *oneSeed
	case testing.Short() || raceEnabled:
		last = min(last, 200)
	}
	for seed := first; seed <= last && !t.Failed(); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, err := range runModel(t, seed) {
					t.Errorf("-seed=%d: %v", seed, err)
				}
			})
		})
	}
}
