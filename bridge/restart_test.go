package bridge

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

var restartSeeds = flag.Int("restart-seeds", 300, "how many seeds to run the restart model with")

// consumer is what a reader of the sink's stream makes of it: the objects that are
// there. One that drops what it has had, by id, and what is older, must come to the
// same.
type consumer struct {
	drops bool
	had   map[string]bool
	there map[string]string // name to uid/version
	known map[string]bool   // uids that were announced and not deleted
	seen  map[string]int    // the newest version of a uid
}

func newConsumer(drops bool) *consumer {
	return &consumer{drops: drops, had: map[string]bool{}, there: map[string]string{}, known: map[string]bool{}, seen: map[string]int{}}
}

func (c *consumer) read(e *event.Event) {
	if e.Type > event.Synced || c.drops && c.had[e.ID] {
		return
	}
	c.had[e.ID] = true
	// A deletion that comes again is dropped where its id is remembered. What comes
	// again before it may be finer than what was folded the first time, so that its ids
	// are new: it is known by its version.
	version, _ := strconv.Atoi(e.ResourceVersion)
	if c.drops && version < c.seen[e.UID] && e.Type != event.Deleted {
		return
	}
	c.seen[e.UID] = max(version, c.seen[e.UID])
	if e.Type == event.Deleted {
		if strings.HasPrefix(c.there[e.Key.Name], e.UID+"/") {
			delete(c.there, e.Key.Name)
		}
		delete(c.known, e.UID)
		return
	}
	c.there[e.Key.Name] = e.UID + "/" + e.ResourceVersion
	c.known[e.UID] = true
}

func (c *consumer) compare(s *apiServer) error {
	want := map[string]string{}
	uids := map[string]bool{}
	for name, o := range s.objects {
		want[name] = o.UID + "/" + o.ResourceVersion
		uids[o.UID] = true
	}
	if !maps.Equal(c.there, want) {
		return fmt.Errorf("a consumer that drops repeats (%t) has %v, the server %v", c.drops, c.there, want)
	}
	for uid := range c.known {
		if !uids[uid] {
			return fmt.Errorf("a consumer that drops repeats (%t) never heard that %s is gone", c.drops, uid)
		}
	}
	return nil
}

// moody is a broker that answers late, or never, or not before it has stored.
type moody struct {
	mu        sync.Mutex
	rnd       *rand.Rand
	consumers []*consumer
	log       []string
	slowest   time.Duration
	silent    bool // what comes is neither stored nor answered
	failing   int
	life      int
	count     int
}

func (m *moody) publish(_ context.Context, e *event.Event, done func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	life := m.life
	read := func() {
		m.log = append(m.log, fmt.Sprintf("%d: %s", life, tell(e)))
		for _, c := range m.consumers {
			c.read(e)
		}
		m.count++
	}
	delay := time.Duration(m.rnd.Int64N(int64(m.slowest)))
	switch {
	case m.silent:
		return
	case m.rnd.IntN(100) < m.failing:
		time.AfterFunc(delay, func() { done(errAgain) })
		return
	}
	early := m.rnd.IntN(2) == 0
	if early {
		read()
	}
	time.AfterFunc(delay, func() {
		m.mu.Lock()
		if m.life != life {
			m.mu.Unlock()
			return // nobody hears the answer, and nothing is stored any more
		}
		if !early {
			read()
		}
		m.mu.Unlock()
		done(nil)
	})
}

// runRestarts runs lives that end by kill -9 with whatever is stored then, and one
// that ends in peace. Whatever happened, the consumers have what the server has.
func runRestarts(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	store, server := newMemory(), newAPIServer()
	sinks := 1 + rnd.IntN(2)
	brokers := make([]*moody, sinks)
	for i := range brokers {
		brokers[i] = &moody{rnd: rand.New(rand.NewPCG(seed, uint64(i+2))), consumers: []*consumer{newConsumer(false), newConsumer(true)}}
	}
	objects := 1 + rnd.IntN(8)
	changing := rand.New(rand.NewPCG(seed, 0))
	someChange := func() {
		name := fmt.Sprint("n", changing.IntN(objects))
		if server.objects[name] != nil && changing.IntN(3) == 0 {
			server.gone(name)
		} else {
			server.has(name)
		}
	}
	for range rnd.IntN(8) {
		someChange()
	}
	lives := 2 + rnd.IntN(4)
	expired, skip := false, false
	var compacted atomic.Int64
	compacted.Store(1)
	read := 0 // the version up to which some life has come
	var trail []string
	for n := range lives {
		last := n == lives-1
		for _, b := range brokers {
			b.mu.Lock()
			b.life = n
			b.slowest = []time.Duration{2, 100 * time.Millisecond, 3 * time.Second}[rnd.IntN(3)]
			b.silent, b.failing = !last && rnd.IntN(3) == 0, []int{0, 0, 30}[rnd.IntN(3)]
			b.mu.Unlock()
		}
		with := setup{change: []change{func(o *Options) {
			o.Fold, o.FoldAfter = rnd.IntN(4) > 0, 500*time.Millisecond
			o.MaxEvents = []int{1, 2, 4, 16}[rnd.IntN(4)]
		}}}
		if last {
			with.change = append(with.change, func(o *Options) { o.Fold = true })
		}
		l := startBrokers(t, store, server, with, brokers)
		trail = append(trail, fmt.Sprintf("life %d: position %q listed %t", n, l.known.Position, l.known.Listed))
		if expired {
			l.known.Position = "" // the server has no history of it any more
		}
		expired = false
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		l.ctx = ctx
		var watcher sync.WaitGroup
		changes := rnd.IntN(30)
		pauses := make([]time.Duration, changes)
		for i := range pauses {
			pauses[i] = time.Duration(rnd.Int64N(int64(400 * time.Millisecond)))
		}
		relistAt, snapshotAt := rnd.IntN(60), rnd.IntN(60)
		watcher.Go(func() {
			l.resume()
			for i := range changes {
				time.Sleep(pauses[i])
				if ctx.Err() != nil {
					return
				}
				someChange()
				if i == relistAt { // the history up to here is gone
					compacted.Store(int64(server.version))
					l.list()
				}
				if i == snapshotAt {
					watcher.Go(func() { _ = snapshotAll(ctx, l.feed, fmt.Sprint("R", n)) })
				}
				l.sync()
			}
		})
		ticks := rnd.IntN(40)
		if last {
			end := l.keep()
			watcher.Wait()
			end()
			l.drain()
			cancel()
			break
		}
		for range ticks {
			time.Sleep(time.Duration(rnd.Int64N(int64(400 * time.Millisecond))))
			if rnd.IntN(2) == 0 {
				skip = skip || overfull(l)
				l.store()
			}
		}
		for _, b := range brokers { // from here on nothing arrives
			b.mu.Lock()
			b.life, b.silent = -1, true
			b.mu.Unlock()
		}
		// What was acknowledged after the last batch can be seen in the server's history
		// alone. Where that is of no use, the batch has to have it.
		if precise(l) && rnd.IntN(2) == 0 {
			skip = skip || overfull(l)
			l.store()
			at, _ := strconv.Atoi(store.view().info.Position)
			expired = at >= read && int64(at) >= l.at.Load()
		}
		read = max(read, int(l.at.Load()))
		if at, _ := strconv.Atoi(store.view().info.Position); at < int(compacted.Load()) && !expired {
			cancel()
			l.kill()
			watcher.Wait()
			time.Sleep(time.Minute)
			return
		}
		cancel()
		l.kill()
		watcher.Wait()
		time.Sleep(time.Minute)
		for range rnd.IntN(6) {
			someChange()
		}
	}
	synctest.Wait()
	if skip {
		return
	}
	for i, b := range brokers {
		for _, c := range b.consumers {
			if err := c.compare(server); err != nil {
				t.Errorf("-seed=%d: sink %d: %v\n%s\n%s", seed, i, err, strings.Join(trail, "\n"), strings.Join(b.log, "\n"))
				for _, h := range server.history {
					t.Logf("%d %s deleted=%t", h.version, h.object.UID, h.deleted)
				}
				return
			}
		}
	}
}

// overfull says that a record has to leave a deletion out: it has room for one, and an
// object was made anew and deleted twice while its sink was behind.
func overfull(l *life) bool {
	for _, p := range l.feed.ports {
		p.lane.mu.Lock()
		gone := map[event.Key]int{}
		for e := p.head; e != nil; e = e.after {
			if !e.dealt && e.event.Type == event.Deleted {
				gone[e.event.Key]++
			}
		}
		for key, b := range p.behind {
			if gone[key] += len(b.before); b.gone != nil {
				gone[key]++
			}
		}
		p.lane.mu.Unlock()
		for _, n := range gone {
			if n > 1 {
				return true
			}
		}
	}
	return false
}

// precise says that the next batch has all that the sinks have received: nothing that
// was acknowledged waits behind what was not.
func precise(l *life) bool {
	for _, p := range l.feed.ports {
		p.lane.mu.Lock()
		behindOthers := p.head != nil && !p.lane.folding
		p.lane.mu.Unlock()
		if behindOthers {
			return false
		}
	}
	return true
}

func startBrokers(t *testing.T, m *memory, s *apiServer, with setup, brokers []*moody) *life {
	desks := make([]*desk, len(brokers))
	for i := range desks {
		desks[i] = &desk{}
	}
	with.publish = func(i int) func(context.Context, *event.Event, func(error)) { return brokers[i].publish }
	return start(t, m, s, with, desks...)
}

func TestConsumersHaveWhatTheServerHasAfterAnyRestarts(t *testing.T) {
	first, last := uint64(1), uint64(*restartSeeds)
	if *oneSeed > 0 {
		first, last = *oneSeed, *oneSeed
	} else if testing.Short() || raceEnabled {
		last = min(last, 100)
	}
	for seed := first; seed <= last && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { runRestarts(t, seed) })
	}
}
