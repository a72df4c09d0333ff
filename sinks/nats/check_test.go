package nats_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// pods are the events of all pods.
func podSamples() []sinks.Sample {
	d := sinktest.Pod("a", 1, 10)
	var e event.Event
	if err := d.Encode(&e, event.Structured, nil); err != nil {
		panic(err)
	}
	return []sinks.Sample{{Event: &e, Unknown: []string{"namespace", "name", "type"}}}
}

// checked is what a check finds, a line each with its outcome.
func checked(t *testing.T, sink config.Sink) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	found := &check.Subject{Group: check.Sinks, Name: sink.Name}
	nats.Check(ctx, sink, podSamples(), found)
	var lines []string
	for _, f := range found.Findings {
		lines = append(lines, string(f.Outcome)+" "+f.Text)
	}
	return lines
}

func sinkWith(c config.NATS) config.Sink {
	s := config.DefaultSink()
	s.Name, s.NATS = "test", &c
	return s
}

// matching are the lines that match the pattern.
func matching(lines []string, pattern string) (found []string) {
	for _, line := range lines {
		if regexp.MustCompile(pattern).MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

func TestACheckFindsWhatAStartWouldMeet(t *testing.T) {
	user := func(permissions string) string {
		return "authorization {users: [{user: kbridge, password: right, permissions: {" + permissions + "}}, {user: admin, password: admin}]}"
	}
	const requests = `subscribe: "_INBOX.>", `
	password := func(t *testing.T, text string) func(*config.NATS) {
		file := write(t, filepath.Join(t.TempDir(), "password"), text)
		return func(c *config.NATS) { c.User, c.PasswordFile = "kbridge", file }
	}
	inDomain := func(t *testing.T) func(*config.NATS) {
		logsIn := password(t, "right")
		return func(c *config.NATS) { logsIn(c); c.Domain, c.MaxPayload = "hub", 1<<20 }
	}
	account := func(limits string) string {
		return "accounts: {A: {jetstream: {" + limits + "}, users: [{user: kbridge, password: right}, {user: admin, password: admin}]}}"
	}
	for name, c := range map[string]struct {
		server   string
		stream   *jetstream.StreamConfig // that is there
		admin    bool                    // makes it
		settings func(t *testing.T) func(*config.NATS)
		dead     string // the subject of dead letters
		want     []string
		gaps     int
		starts   bool // a start is able to publish
	}{
		"all is there": {
			stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}, MaxAge: 24 * time.Hour, MaxBytes: 1 << 30, Discard: jetstream.DiscardOld},
			want:   []string{`^ok logged in at nats://127.0.0.1:\d+: nats-server 2\.\d+\.\d+, which takes messages of up to 1MiB$`, `^ok stream KBRIDGE stores k8s.>: 0 messages`, `^ok it may publish events to k8s.test.core.pods.\*.\*$`}, starts: true,
		},
		"a stream that is created": {
			want:   []string{`^ok a start would create stream KBRIDGE for k8s.>: 1GiB, kept for 24h0m0s, file storage, replicas: 1, when full it discards the old, duplicates are known for 2m0s$`},
			starts: true,
		},
		"a stream that may not be created": {
			settings: func(*testing.T) func(*config.NATS) { return func(c *config.NATS) { c.Stream.Create = false } },
			want:     []string{`^gap look up stream KBRIDGE: stream KBRIDGE not found, and the configuration does not let kbridge create it$`}, gaps: 1,
		},
		"a stream that takes no such subjects": {
			stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"other.>"}},
			want:   []string{`^warning stream KBRIDGE: none of them matches a subject of the sink: .* \(subjects is other.>, expected k8s`},
		},
		"a stream that leaves out some subjects": {
			stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.*.*.*.kube-system.>"}},
			want:   []string{`^warning stream KBRIDGE: they leave out subjects of the sink: .* \(subjects is k8s.\*.\*.\*.kube-system.>, expected k8s`},
		},
		"a stream that leaves out the subjects of this configuration": {
			stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.*.apps.>"}},
			want:   []string{`^warning stream KBRIDGE does not store all of k8s.test.core.pods.\*.\*: unless the account maps subjects, such events are not stored$`},
		},
		"a stream for the subjects of this configuration": {
			stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.test.core.>"}},
			want:   []string{`^ok stream KBRIDGE stores k8s.test.core.>`}, starts: true,
		},
		"a subject that another stream has": {
			stream: &jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"k8s.prod.>"}},
			want:   []string{`^gap a start would create stream KBRIDGE for .*; but k8s.> is stored by OTHER already$`}, gaps: 1,
		},
		"replicas without a cluster": {
			settings: func(*testing.T) func(*config.NATS) { return func(c *config.NATS) { c.Stream.Replicas = 3 } },
			want:     []string{`^gap .*the server is in no cluster, and there can be one replica, not 3`}, gaps: 1,
		},
		"an account that has its streams": {
			server: account("max_streams: 1"), admin: true, stream: &jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}},
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want:     []string{`^ok logged in at .* as kbridge: `, `^gap .*; but the account has 1 streams and may have no more$`}, gaps: 1,
		},
		"an account with too little room": {
			server:   account("max_store: 10MB"),
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want:     []string{`^gap .*; but the account may store \S+, of which 0 are reserved$`}, gaps: 1,
		},
		"a login that is refused": {
			server:   user(""),
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "wrong") },
			want:     []string{`^gap connect to nats://\S+: nats: authorization violation$`}, gaps: 1,
		},
		"one of two servers": {
			settings: func(*testing.T) func(*config.NATS) {
				return func(c *config.NATS) { c.URLs = append(c.URLs, "nats://127.0.0.1:1") }
			},
			want: []string{`^warning connect to nats://127.0.0.1:1: .*connection refused$`, "^ok logged in at"}, starts: true,
		},
		"a stream that it may not create": {
			server:   user(requests + `publish: {deny: "$JS.API.STREAM.CREATE.>"}`),
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want:     []string{`^gap a start would create .*; but it may not publish to \$JS.API.STREAM.CREATE.KBRIDGE$`}, gaps: 1,
		},
		"a stream that it may not see": {
			server:   user(requests + `publish: {deny: "$JS.API.STREAM.INFO.>"}`),
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want:     []string{`^gap look up stream KBRIDGE: .*Permissions Violation for Publish to "\$JS.API.STREAM.INFO.KBRIDGE"`}, gaps: 1,
		},
		"events that it may not publish": {
			server: user(requests + `publish: ["$JS.API.>", "$SYS.REQ.USER.INFO", "k8s.*.apps.>"]`), admin: true, stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}},
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want:     []string{`^gap it may not publish events to k8s.test.core.pods.\*.\* \(allowed: .*k8s.\*.apps.>`}, gaps: 1,
		},
		"some events that it may not publish": {
			server: user(requests + `publish: {deny: "k8s.*.*.*.kube-system.>"}`), admin: true, stream: &jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}},
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want:     []string{`^gap it may not publish events to all of k8s.test.core.pods.\*.\* \(allowed: >; denied: k8s.\*.\*.\*.kube-system.>\)$`}, gaps: 1, starts: true,
		},
		"permissions that it may not know": {
			server:   user(requests + `publish: ["$JS.API.>", "k8s.>"]`),
			settings: func(t *testing.T) func(*config.NATS) { return password(t, "right") },
			want: []string{`^warning a start would create stream KBRIDGE .*; whether it may is not known: the server does not tell its permissions`,
				`^warning whether it may publish events is not known: `}, starts: true,
		},
		"no JetStream": {
			server: "accounts: {A: {users: [{user: a, password: b}]}}\nno_auth_user: a",
			want:   []string{`^gap look up stream KBRIDGE: JetStream is not enabled for this account: `}, gaps: 1,
		},
		"no JetStream at all": {
			server: "# " + natsserver.Store,
			want:   []string{`^gap look up stream KBRIDGE: JetStream is not enabled on this server: `}, gaps: 1,
		},
		"a domain that nobody has": {
			settings: func(*testing.T) func(*config.NATS) { return func(c *config.NATS) { c.Domain = "hub" } },
			want:     []string{`^warning how large a message the domain hub takes is not known here`, `^gap look up stream KBRIDGE: no JetStream answers in the domain hub: `}, gaps: 1,
		},
		"a stream that it may not create in a domain": {
			server:   "jetstream {store_dir: " + natsserver.Store + ", domain: hub}\n" + user(requests+`publish: {deny: ["$JS.API.STREAM.CREATE.>", "$JS.hub.API.STREAM.CREATE.>"]}`),
			settings: inDomain,
			want:     []string{`^gap a start would create .*; but it may not publish to \$JS.hub.API.STREAM.CREATE.KBRIDGE$`}, gaps: 1,
		},
		"a stream that it may create in the server's own domain": { // which the server looks at without its domain
			server:   "jetstream {store_dir: " + natsserver.Store + ", domain: hub}\n" + user(requests+`publish: ["$JS.API.>", "$SYS.REQ.USER.INFO", "k8s.>"]`),
			settings: inDomain,
			want:     []string{`^ok a start would create stream KBRIDGE`}, starts: true,
		},
		"a prefix that nobody has": {
			settings: func(*testing.T) func(*config.NATS) { return func(c *config.NATS) { c.APIPrefix = "JS.other.API" } },
			want:     []string{`^gap look up stream KBRIDGE: no JetStream answers under JS.other.API: `}, gaps: 1,
		},
		"a limit that the server does not have": {
			settings: func(*testing.T) func(*config.NATS) { return func(c *config.NATS) { c.MaxPayload = 2 << 20 } },
			want:     []string{`^warning maxPayload is 2MiB, and the server takes no more than 1MiB$`}, starts: true,
		},
		"dead letters that a stream stores": {
			dead:     "dead.letters",
			settings: func(*testing.T) func(*config.NATS) { return func(c *config.NATS) { c.Stream.Name = "EVENTS" } },
			stream:   &jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.*"}},
			want:     []string{`^ok dead letters: stream DEAD stores dead.letters$`, `^ok it may publish dead letters to dead.letters$`},
		},
		"dead letters in the stream to come": {
			dead: "dead.letters",
			settings: func(*testing.T) func(*config.NATS) {
				return func(c *config.NATS) { c.Stream.Subjects = []string{"k8s.>", "dead.>"} }
			},
			want: []string{`^ok dead letters: the created stream would store dead.letters$`}, starts: true,
		},
		"dead letters of no stream": {
			dead: "dead.letters",
			want: []string{`^gap dead letters: no stream stores dead.letters$`}, gaps: 1, starts: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := natsserver.New(t, c.server)
			cfg := settings(srv.URL())
			if c.settings != nil {
				c.settings(t)(&cfg)
			}
			var login []client.Option
			if c.admin {
				login = append(login, client.UserInfo("admin", "admin"))
			}
			if c.stream != nil {
				makeStream(t, srv.URL(), *c.stream, login...)
			}
			sink := sinkWith(cfg)
			sink.DeadLetter.Subject = c.dead
			found := checked(t, sink)
			for _, want := range c.want {
				if len(matching(found, want)) != 1 {
					t.Errorf("%s is not found", want)
				}
			}
			if gaps := matching(found, "^gap "); len(gaps) != c.gaps {
				t.Errorf("%d gaps, want %d", len(gaps), c.gaps)
			}
			if t.Failed() {
				t.Logf("found:\n%s", strings.Join(found, "\n"))
			}
			if c.dead == "" {
				wentAsFound(t, cfg, c.starts)
			}
		})
	}
}

// wentAsFound opens the sink, and expects it to publish, or not.
func wentAsFound(t *testing.T, cfg config.NATS, publishes bool) {
	t.Helper()
	var log sinktest.Log
	cfg.AckTimeout = time.Second
	s := openLogged(t, cfg, log.Handler())
	var e event.Event
	if err := sinktest.Pod("a", 1, 100).Encode(&e, event.Structured, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go s.Publish(ctx, &e, func(err error) { ended <- err })
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-ended:
			if (err == nil) != publishes {
				t.Errorf("publishing gave %v", err)
			}
			return
		default:
		}
		if log.Count("cannot publish") > 0 {
			if publishes {
				t.Errorf("it can not publish:\n%s", log.String())
			}
			cancel()
			<-ended
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nothing comes of publishing:\n%s", log.String())
		}
	}
}

func TestACheckCreatesAndPublishesNothing(t *testing.T) {
	srv := natsserver.New(t, "")
	c := settings(srv.URL())
	if found := checked(t, sinkWith(c)); len(matching(found, "would create")) != 1 {
		t.Errorf("found %q", found)
	}
	withJetStream(t, srv.URL(), func(js jetstream.JetStream) error {
		for name := range js.StreamNames(t.Context()).Name() {
			t.Errorf("there is a stream %s", name)
		}
		return nil
	})
	s := open(t, c)
	if err := publish(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	if found := checked(t, sinkWith(c)); len(matching(found, "^ok stream KBRIDGE stores k8s.>: 1 messages")) != 1 {
		t.Errorf("found %q", found)
	}
	if err := publish(t, s, "b"); err != nil || s.Stats().Connects != 1 {
		t.Errorf("publishing after it gave %v over %d connections", err, s.Stats().Connects)
	}
	if n := len(messages(t, srv.URL(), "KBRIDGE")); n != 2 {
		t.Errorf("%d messages are stored", n)
	}
}

func TestACheckWarnsOfWhatAStartWarnsOf(t *testing.T) {
	srv := natsserver.New(t, "")
	makeStream(t, srv.URL(), jetstream.StreamConfig{
		Name: "KBRIDGE", Subjects: []string{"k8s.>", "more"}, MaxAge: time.Hour, Storage: jetstream.MemoryStorage,
		Discard: jetstream.DiscardNew, MaxMsgs: 7, MaxMsgSize: 4096, Duplicates: time.Minute,
	})
	c := settings(srv.URL())
	var log sinktest.Log
	s := openLogged(t, c, log.Handler())
	ready(t, s)
	var told, found []string
	for _, m := range regexp.MustCompile(`msg="stream: ([^"]+)".* setting=(\S+) `).FindAllStringSubmatch(log.String(), -1) {
		told = append(told, fmt.Sprintf("stream KBRIDGE: %s (%s", m[1], m[2]))
	}
	warning := regexp.MustCompile(`^warning (stream KBRIDGE: .* \(\S+) is `)
	for _, line := range checked(t, sinkWith(c)) {
		if m := warning.FindStringSubmatch(line); m != nil {
			found = append(found, m[1])
		}
	}
	slices.Sort(told)
	slices.Sort(found)
	for _, setting := range []string{"storage", "discard", "max_msg_size", "subjects", "max_age", "max_bytes", "duplicate_window"} {
		if !slices.ContainsFunc(told, func(s string) bool { return strings.HasSuffix(s, "("+setting) }) {
			t.Errorf("a start does not warn of %s", setting)
		}
	}
	if !slices.Equal(told, found) {
		t.Errorf("a start warns of\n%s\nand a check of\n%s", strings.Join(told, "\n"), strings.Join(found, "\n"))
	}
}

func TestACheckOfAServerThatSaysNothingEndsInTime(t *testing.T) {
	srv := natsserver.New(t, "")
	srv.Pause()
	defer srv.Resume()
	sink := sinkWith(settings(srv.URL()))
	found := check.Run(t.Context(), 300*time.Millisecond, check.Sinks, "test", func(ctx context.Context, s *check.Subject) { nats.Check(ctx, sink, nil, s) })
	if len(found) != 1 || found[0].Outcome != check.Gap || !strings.Contains(found[0].Text, "no answer within 300ms") {
		t.Errorf("found %v", found)
	}
}
