package tail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks/nats"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(kafkabroker.Main(m, func(o *kafkabroker.Options) { o.Users = users }))
}

// broker is an embedded server that can go away and come back, elsewhere.
type broker struct {
	t      *testing.T
	dir    string
	server *embedded.Server
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir()}
	b.start()
	t.Cleanup(func() { b.server.Stop() })
	return b
}

func (b *broker) start() {
	b.t.Helper()
	var err error
	if b.server, err = embedded.Start(embedded.Options{Dir: b.dir}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *broker) config() (config.NATS, error) {
	cfg := config.DefaultNATS()
	url, err := embedded.Address(b.dir)
	cfg.URLs, cfg.NKey = []string{url}, embedded.KeyFile(b.dir)
	return cfg, err
}

// publish sends the deltas' events through the real sink and waits for their acknowledgements.
func (b *broker) publish(format event.Format, deltas ...*event.Delta) {
	b.t.Helper()
	cfg, err := b.config()
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	sink, err := nats.Open(ctx, "test", cfg, discard)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, d := range deltas {
		var e event.Event
		d.Encode(&e, format, nil)
		done := make(chan error, 1)
		sink.Publish(ctx, &e, func(err error) { done <- err })
		if err := <-done; err != nil {
			b.t.Fatal(err)
		}
	}
	if err := sink.Close(ctx); err != nil {
		b.t.Fatal(err)
	}
}

// stream opens the stream for what happens to it beside kbridge.
func (b *broker) stream(use func(context.Context, jetstream.JetStream) error) {
	b.t.Helper()
	login, err := client.NkeyOptionFromSeed(embedded.KeyFile(b.dir))
	if err != nil {
		b.t.Fatal(err)
	}
	nc, err := client.Connect(b.server.URL(), login)
	if err != nil {
		b.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	if err := use(ctx, js); err != nil {
		b.t.Fatal(err)
	}
}

// tailing is a running Run.
type tailing struct {
	t     *testing.T
	lines chan string // what was printed: names and notes, in order
	ended chan error
	stop  context.CancelFunc
}

func start(t *testing.T, o Options) *tailing {
	ctx, stop := context.WithCancel(t.Context())
	r := &tailing{t: t, lines: make(chan string, 1000), ended: make(chan error, 1), stop: stop}
	o.Event = func(e *Event) error {
		r.lines <- fmt.Sprint(e.typeName(), " ", e.objectName(), " ", e.Attribute("resourceversion"))
		return nil
	}
	o.Note = func(text string) { r.lines <- "# " + text }
	go func() { r.ended <- Run(ctx, o) }()
	t.Cleanup(func() {
		stop()
		<-r.ended // a test that cares has read it
	})
	return r
}

// expect waits for the lines. A note needs to be given by its beginning only.
func (r *tailing) expect(want ...string) {
	r.t.Helper()
	for _, w := range want {
		select {
		case got := <-r.lines:
			if got != w && !(strings.HasPrefix(w, "#") && strings.HasPrefix(got, w)) {
				r.t.Fatalf("got %q, want %q", got, w)
			}
		case <-time.After(30 * time.Second):
			r.t.Fatalf("waited in vain for %q", w)
		}
	}
}

// end waits until Run has returned, and for nothing that was printed in the meantime.
func (r *tailing) end() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- nil
		select {
		case line := <-r.lines:
			r.t.Fatalf("unexpected: %q", line)
		default:
		}
		return err
	case <-time.After(30 * time.Second):
		r.t.Fatal("it does not end")
		return nil
	}
}

func numbered(from, to int) []*event.Delta {
	var deltas []*event.Delta
	for i := from; i <= to; i++ {
		deltas = append(deltas, delta(event.Added, deployments, object(fmt.Sprintf("shop/d%d", i), fmt.Sprint(i), "")))
	}
	return deltas
}

func TestEventsOfBothFormatsAreReadInOrder(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, numbered(1, 2)...)
	b.publish(event.Binary, numbered(3, 4)...)
	r := start(t, Options{Source: JetStream{Where: b.config, ServerName: "kbridge-embedded"}, All: true, Count: 4})
	r.expect("# reading stream KBRIDGE at nats://127.0.0.1:", "added shop/d1 1", "added shop/d2 2", "added shop/d3 3", "added shop/d4 4")
	if err := r.end(); err != nil {
		t.Error(err)
	}
	b.stream(func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, "KBRIDGE")
		if err == nil && s.CachedInfo().State.Consumers != 0 {
			t.Errorf("%d consumers are left", s.CachedInfo().State.Consumers)
		}
		return err
	})
}

func TestOnlyNewEventsAreReadUnlessOlderOnesAreAskedFor(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, numbered(1, 2)...)
	fresh := start(t, Options{Source: JetStream{Where: b.config}})
	fresh.expect("# reading stream KBRIDGE at ")
	middle := time.Now()
	b.publish(event.Structured, numbered(3, 3)...)
	fresh.expect("added shop/d3 3")
	since := start(t, Options{Source: JetStream{Where: b.config}, Since: middle})
	since.expect("# reading stream KBRIDGE at ", "added shop/d3 3")
	all := start(t, Options{Source: JetStream{Where: b.config}, All: true})
	all.expect("# reading stream KBRIDGE at ", "added shop/d1 1", "added shop/d2 2", "added shop/d3 3")
	b.publish(event.Binary, numbered(4, 4)...)
	for _, r := range []*tailing{fresh, since, all} {
		r.expect("added shop/d4 4")
		r.stop()
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

func TestAFilterSelectsSubjects(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, append(numbered(1, 1), delta(event.Added, nodes, object("node-1.example.com", "2", "")))...)
	r := start(t, Options{Source: JetStream{Where: b.config}, All: true, Filter: "k8s.*.core.nodes.>", Count: 1})
	r.expect("# reading", "added node-1.example.com 2")
	if err := r.end(); err != nil {
		t.Error(err)
	}
	r = start(t, Options{Source: JetStream{Where: b.config}, Filter: "pods"})
	if err := r.end(); err == nil || !strings.Contains(err.Error(), `filter "pods": stream KBRIDGE has no such subject: it stores k8s.>`) {
		t.Errorf("got %v", err)
	}
}

func TestAServerAndAStreamThatAreNotThereYetAreWaitedFor(t *testing.T) {
	var mu sync.Mutex
	var b *broker
	r := start(t, Options{Source: JetStream{Where: func() (config.NATS, error) {
		mu.Lock()
		defer mu.Unlock()
		if b == nil {
			return config.NATS{}, errors.New("no kbridge here")
		}
		return b.config()
	}}})
	r.expect("# waiting: no kbridge here")
	mu.Lock()
	b = startBroker(t)
	mu.Unlock()
	r.expect("# waiting: the server has no stream KBRIDGE yet")
	// What comes before the stream is noticed is new to somebody who waited for it.
	b.publish(event.Structured, numbered(1, 2)...)
	r.expect("# reading stream", "added shop/d1 1", "added shop/d2 2")
}

func TestReadingGoesOnWhereItWasWhenTheServerComesBack(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, numbered(1, 2)...)
	gate := newGate(b)
	r := start(t, Options{Source: JetStream{Where: gate.config}, All: true})
	r.expect("# reading stream", "added shop/d1 1", "added shop/d2 2")
	gate.close()
	b.server.Stop()
	r.expect("# waiting: the connection to the server is lost", "# waiting: the gate is closed")
	b.start()
	b.publish(event.Binary, numbered(3, 4)...)
	gate.open()
	r.expect("# reading again stream", "added shop/d3 3", "added shop/d4 4")
}

func TestEventsThatAreGoneBeforeTheyAreReadAreReported(t *testing.T) {
	for name, c := range map[string]struct{ filter, note string }{
		"all":      {"", "# lost 2 events: the stream's limits removed what was not read"},
		"filtered": {"k8s.>", "# lost events: the stream's limits removed 2 before they were read; those that match the filter are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBroker(t)
			b.publish(event.Structured, numbered(1, 2)...)
			gate := newGate(b)
			r := start(t, Options{Source: JetStream{Where: gate.config}, All: true, Filter: c.filter})
			r.expect("# reading stream", "added shop/d1 1", "added shop/d2 2")
			gate.close()
			b.server.Stop()
			r.expect("# waiting: the connection to the server is lost", "# waiting: the gate is closed")
			b.start()
			b.publish(event.Structured, numbered(3, 5)...)
			b.stream(func(ctx context.Context, js jetstream.JetStream) error {
				s, err := js.Stream(ctx, "KBRIDGE")
				if err != nil {
					return err
				}
				return s.Purge(ctx, jetstream.WithPurgeSequence(5))
			})
			gate.open()
			r.expect(c.note, "# reading again stream", "added shop/d5 5")
		})
	}
}

func TestAStreamThatWasMadeAnewIsReadFromItsBeginning(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, numbered(1, 3)...)
	r := start(t, Options{Source: JetStream{Where: b.config}, All: true})
	r.expect("# reading stream", "added shop/d1 1", "added shop/d2 2", "added shop/d3 3")
	b.stream(func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteStream(ctx, "KBRIDGE") })
	r.expect("# waiting: ")
	b.publish(event.Structured, numbered(4, 4)...)
	for {
		line := <-r.lines
		if line == "# the stream was made anew: reading it from its beginning" {
			break
		}
		if !strings.HasPrefix(line, "# waiting: ") {
			t.Fatalf("unexpected: %q", line)
		}
	}
	r.expect("# reading again stream", "added shop/d4 4")
}

func TestMessagesThatAreNoEventsArePassedOver(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, numbered(1, 1)...)
	b.stream(func(ctx context.Context, js jetstream.JetStream) error {
		for range 2 {
			if _, err := js.Publish(ctx, "k8s.x", []byte("hello")); err != nil {
				return err
			}
		}
		return nil
	})
	b.publish(event.Structured, numbered(2, 2)...)
	r := start(t, Options{Source: JetStream{Where: b.config}, All: true, Count: 2})
	r.expect("# reading", "added shop/d1 1", "# message 2 on k8s.x is passed over", "added shop/d2 2")
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestWhatWaitingDoesNotMendEndsTheReading(t *testing.T) {
	b := startBroker(t)
	for name, wrong := range map[string]func(*config.NATS){
		"credentials that are not there": func(n *config.NATS) { n.Creds = filepath.Join(t.TempDir(), "user.creds") },
		"TLS that the server has not":    func(n *config.NATS) { n.TLS = &config.TLS{} },
	} {
		r := start(t, Options{Source: JetStream{Where: func() (config.NATS, error) {
			cfg, err := b.config()
			wrong(&cfg)
			return cfg, err
		}}})
		if err := r.end(); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

func TestTheSinksLoginIsUsedAndEachOfItsServersTried(t *testing.T) {
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), Username: "reader", Password: "right",
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	password := filepath.Join(t.TempDir(), "password")
	source := func() (config.NATS, error) {
		cfg := config.DefaultNATS()
		cfg.URLs = []string{"nats://127.0.0.1:1", srv.ClientURL(), "nats://127.0.0.1:2"}
		cfg.User, cfg.PasswordFile = "reader", password
		return cfg, nil
	}
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong\n")
	if err := start(t, Options{Source: JetStream{Where: source}}).end(); !errors.Is(err, client.ErrAuthorization) {
		t.Errorf("got %v", err)
	}
	write("right\n")
	start(t, Options{Source: JetStream{Where: source}}).expect("# waiting: the server has no stream KBRIDGE yet")
}

func TestAnotherServerAtTheAddressIsNotRead(t *testing.T) {
	b := startBroker(t)
	r := start(t, Options{Source: JetStream{Where: b.config, ServerName: "other"}})
	r.expect("# waiting: another NATS server has taken nats://127.0.0.1:")
}

func TestAnErrorOfTheOutputEndsTheReading(t *testing.T) {
	b := startBroker(t)
	b.publish(event.Structured, numbered(1, 1)...)
	cfg := b.config
	err := Run(t.Context(), Options{Source: JetStream{Where: cfg}, All: true, Note: func(string) {}, Event: func(*Event) error { return os.ErrClosed }})
	if !errors.Is(err, os.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestASlowReaderLearnsOfWhatItMissed(t *testing.T) {
	b := startBroker(t)
	b.stream(func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}})
		return err
	})
	const published = 3 * prefetched
	b.publish(event.Structured, numbered(1, published)...)
	lines, proceed := make(chan string), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Options{
			Source: JetStream{Where: b.config}, All: true,
			Note: func(text string) {
				if strings.HasPrefix(text, "lost ") {
					lines <- text
				}
			},
			Event: func(e *Event) error {
				switch e.Attribute("name") {
				case "d1":
					lines <- "first"
					<-proceed
				case fmt.Sprintf("d%d", published):
					return errEnough
				}
				return nil
			},
		})
	}()
	if got := <-lines; got != "first" {
		t.Fatal(got)
	}
	b.stream(func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, "KBRIDGE")
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(published))
	})
	close(proceed)
	if got := <-lines; !strings.HasPrefix(got, "lost ") {
		t.Error(got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// gate keeps a reader from connecting while it is closed.
type gate struct {
	b    *broker
	mu   sync.Mutex
	shut bool
}

func newGate(b *broker) *gate { return &gate{b: b} }

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
}

func (g *gate) close() { g.set(true) }
func (g *gate) open()  { g.set(false) }

func (g *gate) config() (config.NATS, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return config.NATS{}, errors.New("the gate is closed")
	}
	return g.b.config()
}
