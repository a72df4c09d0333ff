package natsserver_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/internal/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, s *natsserver.Server) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestAKilledServerComesBackOnItsPortWithWhatItAcknowledged(t *testing.T) {
	s := natsserver.New(t, "")
	js := connect(t, s)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	before := s.URL()
	s.Kill()
	s.Start()
	if s.URL() != before {
		t.Errorf("URL is %s after the restart, was %s", s.URL(), before)
	}
	stream, err := connect(t, s).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("stream has %d messages, want 1", n)
	}
}

func TestConfigureChangesARunningServer(t *testing.T) {
	s := natsserver.New(t, "")
	connect(t, s)
	s.Configure(`authorization {token: "x"}`)
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
		t.Error("connected without the token that is now required")
	}
}
