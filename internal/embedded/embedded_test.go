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
	"github.com/nats-io/nkeys"
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

func connect(t *testing.T, s *embedded.Server, dir string) jetstream.JetStream {
	t.Helper()
	login, err := nats.NkeyOptionFromSeed(embedded.KeyFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.URL(), login)
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
	js := connect(t, s, dir)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", make([]byte, 2<<20)); err != nil {
		t.Fatal(err) // more than NATS's usual megabyte
	}
	s.Stop()

	s = start(t, embedded.Options{Dir: dir})
	stream, err := connect(t, s, dir).Stream(t.Context(), "S")
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
	dir := t.TempDir()
	js := connect(t, start(t, embedded.Options{Dir: dir, MaxBytes: 1 << 20}), dir)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 2 << 20})
	if err == nil {
		t.Error("a stream larger than the store was created")
	}
}

func TestTheServerLogsNothingWhenAllIsWell(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s := start(t, embedded.Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	connect(t, s, dir)
	s.Stop()
	if log.Len() > 0 {
		t.Errorf("it logged:\n%s", log.String())
	}
}

func TestWhoHasNotTheKeyCanNeitherReadNorWrite(t *testing.T) {
	dir := t.TempDir()
	s := start(t, embedded.Options{Dir: dir})
	other, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := other.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for what, login := range map[string][]nats.Option{
		"without a login":  nil,
		"with a token":     {nats.Token("guess")},
		"with a user":      {nats.UserInfo("kbridge", "")},
		"with another key": {nats.Nkey(public, other.Sign)},
	} {
		if nc, err := nats.Connect(s.URL(), login...); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				nc.Close()
			}
		}
	}
	connect(t, s, dir)
}

func TestTheKeyStaysUntilSomebodyElseMayKnowIt(t *testing.T) {
	dir := t.TempDir()
	file := embedded.KeyFile(dir)
	seed := func() string {
		t.Helper()
		s := start(t, embedded.Options{Dir: dir})
		connect(t, s, dir)
		s.Stop()
		info, err := os.Lstat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("the key's file is %v, %v", info.Mode(), err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	first := seed()
	if seed() != first {
		t.Error("a start makes another key where there is a good one")
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func() error{
		"others may read it":    func() error { return os.Chmod(file, 0o644) },
		"others may write it":   func() error { return os.Chmod(file, 0o620) },
		"it is cut":             func() error { return os.Truncate(file, 20) },
		"it is empty":           func() error { return os.Truncate(file, 0) },
		"it is no key":          func() error { return os.WriteFile(file, bytes.Repeat([]byte("A"), 58), 0o600) },
		"it is a symbolic link": func() error { return errors.Join(os.Remove(file), os.Symlink(other, file)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if again := seed(); again == first {
			t.Errorf("%s, and it stays", what)
		} else {
			first = again
		}
		if err := os.WriteFile(other, []byte(first), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingIsWrittenThroughASymbolicLinkOrWhereAnybodyMayWrite(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	for _, name := range []string{"lock", "address", "nkey"} {
		dir := t.TempDir()
		if err := os.Symlink(other, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := embedded.Address(dir); err == nil {
			t.Errorf("an address is read through a link")
		}
		s, err := embedded.Start(embedded.Options{Dir: dir})
		if err == nil {
			s.Stop()
		}
		if (err != nil) != (name == "lock") { // the others are replaced
			t.Errorf("%s is a link: Start returned %v", name, err)
		}
		if _, err := os.Lstat(other); err == nil {
			t.Errorf("%s is written to what it leads to", name)
			os.Remove(other)
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Start(embedded.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "anybody may write") {
		t.Errorf("in a folder that anybody may write to Start returned %v", err)
	}
}
