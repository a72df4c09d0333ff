package embedded_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func connect(t *testing.T, s *embedded.Server) jetstream.JetStream {
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

func TestWhatIsStoredIsThereAfterARestart(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{Dir: dir})
	js := connect(t, s)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", make([]byte, 2<<20)); err != nil {
		t.Fatal(err) // more than NATS's usual megabyte
	}
	s.Stop()

	s = start(t, embedded.Options{Dir: dir})
	stream, err := connect(t, s).Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("stream has %d messages, want 1", n)
	}
}

func TestASecondServerOnTheDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{Dir: dir})
	if _, err := embedded.Start(embedded.Options{Dir: dir}); !errors.Is(err, embedded.ErrInUse) {
		t.Fatalf("Start returned %v, want ErrInUse", err)
	}
	if address, err := embedded.Address(dir); err != nil || address != s.URL() {
		t.Errorf("after the refusal the address is %q, %v; want %q", address, err, s.URL())
	}
	s.Stop()
	start(t, embedded.Options{Dir: dir})
}

func TestTheAddressIsInTheDirectoryWhileTheServerRuns(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{Dir: dir})
	if address, err := embedded.Address(dir); err != nil || address != s.URL() {
		t.Errorf("Address returned %q, %v; want %q", address, err, s.URL())
	}
	s.Stop()
	if _, err := os.Stat(filepath.Join(dir, "address")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Stop the address file: %v, want none", err)
	}
}

func TestItListensOnTheLoopbackAddressAndFindsAPort(t *testing.T) {
	first := start(t, embedded.Options{Dir: t.TempDir()})
	second := start(t, embedded.Options{Dir: t.TempDir()}) // 4222 is taken by now
	if first.URL() == second.URL() {
		t.Errorf("both are at %s", first.URL())
	}
	for _, s := range []*embedded.Server{first, second} {
		if u, err := url.Parse(s.URL()); err != nil || u.Hostname() != "127.0.0.1" {
			t.Errorf("URL is %s", s.URL())
		}
	}
}

func TestAPortThatWasAskedForAndIsTakenIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = embedded.Start(embedded.Options{Dir: t.TempDir(), Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Start returned %v, want one about the address in use", err)
	}
}

func TestTheStoreIsBounded(t *testing.T) {
	js := connect(t, start(t, embedded.Options{Dir: t.TempDir(), MaxBytes: 1 << 20}))
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 2 << 20})
	if err == nil {
		t.Error("a stream larger than the store was created")
	}
}

func TestTheServerLogsNothingWhenAllIsWell(t *testing.T) {
	var log bytes.Buffer
	s := start(t, embedded.Options{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	connect(t, s)
	s.Stop()
	if log.Len() > 0 {
		t.Errorf("it logged:\n%s", log.String())
	}
}
