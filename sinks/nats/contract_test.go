package nats_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

// settings are the defaults, for a server.
func settings(urls ...string) config.NATS {
	c := config.DefaultNATS()
	c.URLs = urls
	c.AckTimeout = 5 * time.Second
	return c
}

func open(t *testing.T, c config.NATS) *nats.Sink { return openLogged(t, c, nil) }

func openLogged(t *testing.T, c config.NATS, h slog.Handler) *nats.Sink {
	t.Helper()
	if h == nil {
		h = slog.NewTextHandler(t.Output(), nil)
	}
	s, err := nats.Open(context.Background(), "test", c, slog.New(h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("Close returned %v", err)
		}
	})
	return s
}

// messages reads a stream back.
func messages(t *testing.T, url, stream string, login ...client.Option) []*jetstream.RawStreamMsg {
	t.Helper()
	nc, err := client.Connect(url, login...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	st, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	state := st.CachedInfo().State
	cons, err := st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for uint64(len(all)) < state.Msgs {
		batch, err := cons.Fetch(int(state.Msgs)-len(all), jetstream.FetchMaxWait(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		before := len(all)
		for m := range batch.Messages() {
			all = append(all, &jetstream.RawStreamMsg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()})
		}
		if len(all) == before {
			t.Fatalf("read %d of %d messages: %v", len(all), state.Msgs, batch.Error())
		}
	}
	return all
}

func makeStream(t testing.TB, url string, c jetstream.StreamConfig, login ...client.Option) {
	t.Helper()
	nc, err := client.Connect(url, login...)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func values(t *testing.T, url string, login ...client.Option) [][]byte {
	t.Helper()
	var all [][]byte
	for _, m := range messages(t, url, "KBRIDGE", login...) {
		all = append(all, m.Data)
	}
	return all
}

func TestContractWithAServerProcess(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Harness {
		srv := natsserver.New(t, "")
		return sinktest.Harness{
			Open: func() sinks.Sink {
				c := settings(srv.URL())
				c.AckTimeout = 2 * time.Second
				return open(t, c)
			},
			Stored: func() [][]byte { return values(t, srv.URL()) },
			Stop:   srv.Kill, Start: srv.Start,
			Stall:    func() func() { srv.Pause(); return srv.Resume },
			TooLarge: 2 << 20, Deduplicates: true,
		}
	})
}

func TestContractWithTheEmbeddedServer(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Harness {
		dir := t.TempDir()
		srv, err := embedded.Start(embedded.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(srv.Stop)
		login, err := client.NkeyOptionFromSeed(embedded.KeyFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		// The server leaks what it makes for a stream while it is stopped.
		makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}}, login)
		return sinktest.Harness{
			Open: func() sinks.Sink {
				c := settings(srv.URL())
				c.NKey = embedded.KeyFile(dir)
				return open(t, c)
			},
			Stored:   func() [][]byte { return values(t, srv.URL(), login) },
			TooLarge: 9 << 20, Deduplicates: true,
		}
	})
}
