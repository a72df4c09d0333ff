package nats_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// login logs in as a user with a password.
func login(t *testing.T, c *config.NATS, user, password string) {
	t.Helper()
	c.User, c.PasswordFile = user, write(t, filepath.Join(t.TempDir(), "password"), password)
}

// works expects a check without gaps, an event that is stored, and a dead letter that is.
func works(t *testing.T, c config.NATS) {
	t.Helper()
	sink := sinkWith(c)
	sink.DeadLetter.Subject = "k8s.dead.letters.of.this.sink"
	if gaps := matching(checked(t, sink), "^gap "); len(gaps) > 0 {
		t.Errorf("a check finds %q", gaps)
	}
	s := open(t, c)
	if err := publish(t, s, "a"); err != nil {
		t.Errorf("done got %v", err)
	}
	d := nats.OpenDeadLetters(c, sink.DeadLetter.Subject)
	defer d.Close()
	if err := d.Write(t.Context(), "test", refused("a", event.Structured, 300), errRefused); err != nil {
		t.Error(err)
	}
	if gaps := matching(checked(t, sink), "^gap "); len(gaps) > 0 {
		t.Errorf("with the stream a check finds %q", gaps)
	}
}

func TestAnAccountMayHaveInboxesOfItsOwnOnly(t *testing.T) {
	srv := natsserver.New(t, `authorization {users: [{user: kbridge, password: right, permissions: {subscribe: "_INBOX_kbridge.>"}}]}`)
	c := settings(srv.URL())
	login(t, &c, "kbridge", "right")
	failing(t, open(t, c), "Permissions Violation for Subscription to", "set inboxPrefix")
	if gaps := matching(checked(t, sinkWith(c)), `^gap it can not be answered: .*Permissions Violation for Subscription to "_INBOX.*set inboxPrefix`); len(gaps) == 0 {
		t.Error("a check does not find it")
	}
	c.InboxPrefix = "_INBOX_kbridge"
	works(t, c)
}

// What a stream stores under another subject than it was published to is acknowledged, and
// that counts. Permissions are for that other subject, too.
func TestAnAccountMayMapSubjects(t *testing.T) {
	srv := natsserver.New(t, `accounts: {A: {jetstream: enabled, users: [
  {user: a, password: b, permissions: {publish: ["$JS.API.>", "$SYS.REQ.USER.INFO", "stored.>"]}}
  {user: admin, password: admin}
], mappings: {"k8s.*.*.*.*.*": "stored.$1.$2.$3.$4.$5"}}}
no_auth_user: a`)
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"stored.>"}})
	c := settings(srv.URL())
	c.Stream.Create = false
	var log sinktest.Log
	s := openLogged(t, c, log.Handler())
	if err := publish(t, s, "a"); err != nil {
		t.Errorf("done got %v", err)
	}
	if err := s.Err(); err != nil || log.Count("none of them matches a subject of the sink") != 1 {
		t.Errorf("Err is %v, and the log is\n%s", err, log.String())
	}
	found := checked(t, sinkWith(c))
	if len(matching(found, "^gap ")) > 0 || len(matching(found, "^warning .*none of them matches a subject of the sink: unless the account maps subjects")) != 1 {
		t.Errorf("a check finds %q", found)
	}
	if all := messages(t, srv.URL(), "KBRIDGE"); len(all) != 1 || all[0].Subject != "stored.test.core.pods.shop.a" {
		t.Errorf("stored is %v", all)
	}
}

func TestSubjectsThatAnotherStreamHasAreNamedWithIt(t *testing.T) {
	srv := natsserver.New(t, "")
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"k8s.prod.>"}})
	failing(t, open(t, settings(srv.URL())), "create stream KBRIDGE", "k8s.> is stored by OTHER already")
}

// What passes says nothing of what does not.
func TestWhatIsRefusedIsNamedUntilItPassesItself(t *testing.T) {
	permissions := func(deny string) string {
		return `authorization {users: [{user: kbridge, password: right, permissions: {publish: {deny: "` + deny + `"}}}]}`
	}
	srv := natsserver.New(t, permissions("k8s.*.*.*.*.bad"))
	c := settings(srv.URL())
	login(t, &c, "kbridge", "right")
	s := open(t, c)
	for range 3 {
		if err := publish(t, s, "bad"); err == nil {
			t.Fatal("what is denied is acknowledged")
		}
		if err := publish(t, s, "good"); err != nil {
			t.Fatal(err)
		}
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), `Permissions Violation for Publish to "k8s.test.core.pods.shop.bad"`) {
			t.Errorf("while one is refused Err is %v", err)
		}
	}
	srv.Kill()
	srv.Configure(permissions("other"))
	srv.Start()
	eventually(t, "another connection", func() bool { return s.Stats().Connects == 2 })
	if err := publish(t, s, "good"); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err == nil {
		t.Error("what was refused is forgotten with its connection")
	}
	if err := publish(t, s, "bad"); err != nil || s.Err() != nil {
		t.Errorf("after it was allowed done got %v, and Err is %v", err, s.Err())
	}
}

// hubAndLeaf are two servers with domains of their own, and the leaf has more settings. The
// hub takes messages of 8 KiB.
func hubAndLeaf(t *testing.T, more string) (hub, leaf *natsserver.Server) {
	t.Helper()
	port := natsserver.FreePort(t)
	hub = natsserver.New(t, fmt.Sprintf("server_name: hub\njetstream {store_dir: %s, domain: hub}\nmax_payload: 8192\nleafnodes {host: 127.0.0.1, port: %d}", natsserver.Store, port))
	leaf = natsserver.New(t, fmt.Sprintf("server_name: leaf\njetstream {store_dir: %s, domain: leaf}\nleafnodes {reconnect: \"1s\", remotes: [{url: \"nats://127.0.0.1:%d\"}]}\n%s", natsserver.Store, port, more))
	return hub, leaf
}

func TestAStreamOfTheHubIsReachedThroughALeafNode(t *testing.T) {
	hub, leaf := hubAndLeaf(t, `authorization {users: [{user: kbridge, password: right, permissions: {publish: ["$JS.hub.API.>", "$SYS.REQ.USER.INFO", "k8s.>"]}}, {user: admin, password: admin}]}`)
	c := settings(leaf.URL())
	login(t, &c, "kbridge", "right")
	c.Domain = "hub"
	ready(t, open(t, c)) // the leaf's connection to the hub takes its time
	works(t, c)
	if n := len(messages(t, hub.URL(), "KBRIDGE")); n != 2 {
		t.Errorf("%d messages are stored in the hub, want an event and a dead letter", n)
	}
	withJetStream(t, strings.Replace(leaf.URL(), "//", "//admin:admin@", 1), func(js jetstream.JetStream) error {
		for name := range js.StreamNames(t.Context()).Name() {
			t.Errorf("the leaf has the stream %s", name)
		}
		return nil
	})
	c.Domain, c.APIPrefix = "", "$JS.hub.API"
	works(t, c)
}

// A hub cuts the connection of a leaf node that hands it more than it takes.
func TestWhatTheHubOfALeafNodeDoesNotTakeIsTooLarge(t *testing.T) {
	hub, leaf := hubAndLeaf(t, "")
	c := settings(leaf.URL())
	c.Domain, c.AckTimeout = "hub", time.Second
	const violation = "maximum payload exceeded"

	s := open(t, c)
	if err := publish(t, s, "small"); err != nil {
		t.Fatal(err)
	}
	large := sinktest.Pod("large", 1, 9000)
	err := publishDelta(t, s, large, event.Structured)
	if err == nil || !strings.Contains(err.Error(), "of the largest event so far") || !strings.Contains(err.Error(), "maxPayload") {
		t.Errorf("without a limit done got %v", err)
	}
	cut := strings.Count(hub.Log(), violation)
	if cut == 0 {
		t.Error("the hub has taken it")
	}

	c.MaxPayload = 8192
	s = open(t, c)
	if err := publish(t, s, "small"); err != nil {
		t.Fatal(err)
	}
	err = publishDelta(t, s, large, event.Structured)
	if !errors.Is(err, sinks.ErrTooLarge) || !strings.Contains(err.Error(), "is larger than maxPayload of 8192") {
		t.Errorf("with a limit done got %v", err)
	}
	d := nats.OpenDeadLetters(c, "k8s.dead.letters.of.this.sink")
	defer d.Close()
	if err := d.Write(t.Context(), "test", refused("large", event.Structured, 9000), errRefused); err != nil {
		t.Error(err)
	}
	if n := strings.Count(hub.Log(), violation); n != cut {
		t.Errorf("the hub has cut the leaf's connection %d times more", n-cut)
	}
	if err := s.Err(); err != nil {
		t.Errorf("Err is %v for an event that is at fault itself", err)
	}
}
