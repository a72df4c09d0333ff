package nats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

const timeout = 30 * time.Second

// publish publishes a Pod's event and returns what done got.
func publish(t *testing.T, s *nats.Sink, name string) error {
	t.Helper()
	return publishDelta(t, s, sinktest.Pod(name, 1, 300), event.Structured)
}

func publishDelta(t *testing.T, s *nats.Sink, d *event.Delta, format event.Format) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var e event.Event
	d.Encode(&e, format, nil)
	ended := make(chan error, 1)
	s.Publish(ctx, &e, func(err error) { ended <- err })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		t.Fatal("done was not called")
		return nil
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

func ready(t *testing.T, s *nats.Sink) {
	t.Helper()
	eventually(t, "the sink to be ready", func() bool { return s.Err() == nil })
}

// failing waits until the sink's error has all the texts.
func failing(t *testing.T, s *nats.Sink, texts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an error with %q (it is %v)", texts, s.Err()), func() bool {
		err := s.Err()
		return err != nil && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(err.Error(), text) })
	})
}

func TestTheCloudEventsSDKReadsBothFormats(t *testing.T) {
	srv := natsserver.New(t, "")
	s := open(t, settings(srv.URL()))
	d := sinktest.Pod("checkout", 7, 300)
	d.Resource = event.NewResource(event.ResourceInfo{Cluster: "prod.eu", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	d.Snapshot, d.Inferred = "s-1", true
	var texts []string
	for _, format := range []event.Format{event.Structured, event.Binary} {
		d.Object = &event.Object{Namespace: "shop", Name: "checkout", UID: "u", ResourceVersion: fmt.Sprint(format), Body: d.Object.Body}
		if err := publishDelta(t, s, d, format); err != nil {
			t.Fatal(err)
		}
		all := messages(t, srv.URL(), "KBRIDGE")
		m := all[len(all)-1]
		read := nats_jetstream.NewMessage(&client.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
		if want := map[event.Format]binding.Encoding{event.Structured: binding.EncodingStructured, event.Binary: binding.EncodingBinary}[format]; read.ReadEncoding() != want {
			t.Errorf("the SDK takes it for %v, want %v", read.ReadEncoding(), want)
		}
		e, err := binding.ToEvent(t.Context(), read)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(e.Data(), d.Object.Body) {
			t.Errorf("data is %s", e.Data())
		}
		if e.ID() != "u."+fmt.Sprint(format) || e.Type() != "dev.kbridge.object.updated" || e.Subject() != "shop/checkout" || e.DataContentType() != "application/json" || !e.Time().Equal(d.Time.Truncate(time.Microsecond)) {
			t.Errorf("attributes are %v", e)
		}
		ext := e.Extensions()
		for name, want := range map[string]string{"group": "apps", "version": "v1", "resource": "deployments", "kind": "Deployment", "namespace": "shop", "name": "checkout", "uid": "u", "snapshot": "s-1", "inferred": "true"} {
			if got := fmt.Sprint(ext[name]); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if m.Subject != "k8s.prod%2Eeu.apps.deployments.shop.checkout" {
			t.Errorf("subject is %s", m.Subject)
		}
		texts = append(texts, fmt.Sprint(m.Header["content-type"]))
		if id := m.Header.Get(jetstream.MsgIDHeader); id != "kubernetes://prod.eu/apis/apps/v1/deployments/u."+fmt.Sprint(format)+"/s-1" {
			t.Errorf("Nats-Msg-Id is %q", id)
		}
	}
	if want := []string{"[application/cloudevents+json]", "[application/json]"}; !slices.Equal(texts, want) {
		t.Errorf("content types are %v, want %v", texts, want)
	}
}

func TestABinaryEventHasNoHeaderOfTheOneBeforeIt(t *testing.T) {
	srv := natsserver.New(t, "")
	s := open(t, settings(srv.URL()))
	with := sinktest.Pod("a", 1, 300)
	with.Snapshot = "s-1"
	for i, d := range []*event.Delta{with, sinktest.Pod("b", 1, 300)} {
		if err := publishDelta(t, s, d, event.Binary); err != nil {
			t.Fatal(err)
		}
		m := messages(t, srv.URL(), "KBRIDGE")[i]
		if _, has := m.Header["ce-snapshot"]; has != (i == 0) {
			t.Errorf("event %d has headers %v", i, m.Header)
		}
	}
	if err := publish(t, s, "c"); err != nil {
		t.Fatal(err)
	}
	for name := range messages(t, srv.URL(), "KBRIDGE")[2].Header {
		if strings.HasPrefix(name, "ce-") {
			t.Errorf("a structured event has the header %s", name)
		}
	}
}

func TestAnAbsentStreamIsCreatedAsConfigured(t *testing.T) {
	srv := natsserver.New(t, "")
	c := settings(srv.URL())
	c.Stream.MaxAge, c.Stream.MaxBytes, c.Stream.Duplicates, c.Stream.Discard = time.Hour, 64<<20, time.Minute, "new"
	ready(t, open(t, c))
	got := streamInfo(t, srv.URL(), "KBRIDGE").Config
	if got.MaxAge != time.Hour || got.MaxBytes != 64<<20 || got.Duplicates != time.Minute || got.Discard != jetstream.DiscardNew ||
		got.Storage != jetstream.FileStorage || got.Replicas != 1 || !slices.Equal(got.Subjects, []string{"k8s.>"}) {
		t.Errorf("it was created as %+v", got)
	}
}

func streamInfo(t *testing.T, url, name string) *jetstream.StreamInfo {
	t.Helper()
	var info *jetstream.StreamInfo
	withJetStream(t, url, func(js jetstream.JetStream) error {
		st, err := js.Stream(t.Context(), name)
		if err == nil {
			info = st.CachedInfo()
		}
		return err
	})
	return info
}

func withJetStream(t *testing.T, url string, do func(jetstream.JetStream) error) {
	t.Helper()
	nc, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err == nil {
		err = do(js)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnExistingStreamIsNotChangedAndItsDifferencesAreLoggedOnce(t *testing.T) {
	srv := natsserver.New(t, "")
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>", "more"}, Storage: jetstream.MemoryStorage, MaxAge: time.Hour})
	var log sinktest.Log
	s := openLogged(t, settings(srv.URL()), log.Handler())
	ready(t, s)
	for _, want := range []string{
		"setting=storage value=memory expected=file", "setting=max_age value=1h0m0s expected=24h0m0s",
		`setting=subjects value="[k8s.> more]" expected=[k8s.>]`, "setting=max_bytes value=-1 expected=1073741824",
	} {
		if log.Count(want) == 0 {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	}
	if got := streamInfo(t, srv.URL(), "KBRIDGE").Config; got.MaxAge != time.Hour || got.Storage != jetstream.MemoryStorage {
		t.Errorf("it was changed to %+v", got)
	}
	srv.Kill() // and with it the stream in memory
	failing(t, s)
	srv.Start()
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}})
	ready(t, s)
	if n := log.Count("setting=duplicate_window"); n != 0 {
		t.Errorf("a setting that is as configured was logged %d times", n)
	}
}

func TestAStreamThatIsAbsentAndMayNotBeCreatedIsNamedAndWaitedFor(t *testing.T) {
	srv := natsserver.New(t, "")
	c := settings(srv.URL())
	c.Stream.Create = false
	var log sinktest.Log
	s := openLogged(t, c, log.Handler())
	failing(t, s, "stream KBRIDGE not found")
	eventually(t, "three attempts", func() bool { return s.Failures().Lookup >= 3 })
	if n := log.Count("stream KBRIDGE not found"); n != 1 {
		t.Errorf("the repeated failure was logged %d times", n)
	}
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}})
	if err := publish(t, s, "a"); err != nil {
		t.Error(err)
	}
}

func TestSubjectsThatTheStreamLeavesOutAreWarnedOfAndTheAcknowledgementDecides(t *testing.T) {
	for name, c := range map[string]struct {
		subjects []string
		warning  string
	}{
		"all":  {[]string{"other.>", "k8s.only-two"}, "none of them matches a subject of the sink"},
		"some": {[]string{"k8s.*.*.*.kube-system.>"}, "they leave out subjects of the sink"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := natsserver.New(t, "")
			makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: c.subjects})
			var log sinktest.Log
			s := openLogged(t, settings(srv.URL()), log.Handler())
			ready(t, s)
			if log.Count(c.warning) != 1 || log.Count(strings.Join(c.subjects, ", ")) == 0 {
				t.Errorf("the log is\n%s", log.String())
			}
			const failure = "publish to k8s.test.core.pods.shop.a: no stream listens on the subject"
			if err := publish(t, s, "a"); err == nil || errors.Is(err, sinks.ErrPermanent) || err.Error() != failure {
				t.Errorf("done got %v", err)
			}
			failing(t, s, failure)
		})
	}
}

func TestASubjectOfNoStreamIsRetryableAndNamed(t *testing.T) {
	srv := natsserver.New(t, "")
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.*.core.configmaps.>"}})
	s := open(t, settings(srv.URL()))
	err := publish(t, s, "a")
	if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "k8s.test.core.pods.shop.a") || !strings.Contains(err.Error(), "no stream listens") {
		t.Errorf("done got %v", err)
	}
	failing(t, s, "no stream listens")
}

func TestASubjectOfAnotherStreamIsAnErrorAndNotStoredThere(t *testing.T) {
	srv := natsserver.New(t, "")
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.*.core.configmaps.>"}})
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"k8s.*.core.pods.>"}})
	s := open(t, settings(srv.URL()))
	err := publish(t, s, "a")
	if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "not one of stream KBRIDGE") {
		t.Errorf("done got %v", err)
	}
	if n := streamInfo(t, srv.URL(), "OTHER").State.Msgs; n != 0 {
		t.Errorf("the other stream has %d messages", n)
	}
}

func TestAStreamThatVanishesUnderTheSinkIsMadeAgain(t *testing.T) {
	srv := natsserver.New(t, "")
	s := open(t, settings(srv.URL()))
	if err := publish(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	withJetStream(t, srv.URL(), func(js jetstream.JetStream) error { return js.DeleteStream(t.Context(), "KBRIDGE") })
	if err := publish(t, s, "b"); err == nil {
		t.Error("an event was acknowledged without a stream")
	}
	if err := publish(t, s, "b"); err != nil { // waits until the stream is there again
		t.Error(err)
	}
	if s.Err() != nil {
		t.Errorf("Err is %v after a success", s.Err())
	}
}

func TestAFullStreamIsRetryableAndErrTellsIt(t *testing.T) {
	srv := natsserver.New(t, "")
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	s := open(t, settings(srv.URL()))
	if err := publish(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	err := publish(t, s, "b")
	if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "maximum messages exceeded") {
		t.Errorf("done got %v", err)
	}
	failing(t, s, "maximum messages exceeded")
	withJetStream(t, srv.URL(), func(js jetstream.JetStream) error {
		st, err := js.Stream(t.Context(), "KBRIDGE")
		if err != nil {
			return err
		}
		return st.Purge(t.Context())
	})
	if err := publish(t, s, "b"); err != nil || s.Err() != nil {
		t.Errorf("after the stream was emptied: done got %v, Err is %v", err, s.Err())
	}
}

func TestLargerThanTheStreamOrTheServerTakesIsPermanentAndTellsTheSizes(t *testing.T) {
	srv := natsserver.New(t, "max_payload: 8192")
	makeStream(t, srv.URL(), jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}, MaxMsgSize: 4096})
	s := open(t, settings(srv.URL()))
	err := publishDelta(t, s, sinktest.Pod("a", 1, 5000), event.Structured)
	if !errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "message size exceeds maximum allowed") {
		t.Errorf("larger than the stream takes: done got %v", err)
	}
	// The body alone fits; with its headers it does not.
	err = publishDelta(t, s, sinktest.Pod("b", 1, 8192-60), event.Binary)
	if !errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "max_payload of 8192") {
		t.Errorf("larger than the server takes: done got %v", err)
	}
	if s.Err() != nil {
		t.Errorf("Err is %v for events that are at fault themselves", s.Err())
	}
}

func TestAMissingAcknowledgementIsAnErrorAfterTheTimeout(t *testing.T) {
	srv := natsserver.New(t, "")
	c := settings(srv.URL())
	c.AckTimeout = 300 * time.Millisecond
	s := open(t, c)
	ready(t, s)
	srv.Pause()
	err := publish(t, s, "a")
	if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "no acknowledgement") {
		t.Errorf("done got %v", err)
	}
	failing(t, s)
	srv.Resume()
	if err := publish(t, s, "a"); err != nil {
		t.Error(err)
	}
	if got := messages(t, srv.URL(), "KBRIDGE"); len(got) != 1 {
		t.Errorf("%d messages are stored, want the one that was published twice", len(got))
	}
}

func TestWhatIsUnderWayFailsWhenTheConnectionBreaks(t *testing.T) {
	srv := natsserver.New(t, "")
	c := settings(srv.URL())
	c.AckTimeout = time.Hour
	s := open(t, c)
	ready(t, s)
	srv.Pause()
	var e event.Event
	sinktest.Pod("a", 1, 300).Encode(&e, event.Structured, nil)
	ended := make(chan error, 1)
	s.Publish(t.Context(), &e, func(err error) { ended <- err })
	srv.Kill()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), "lost") {
			t.Errorf("done got %v", err)
		}
	case <-time.After(timeout):
		t.Error("done was not called")
	}
	failing(t, s, "connection refused")
	eventually(t, "the end of the connection and two attempts to be counted", func() bool { return s.Failures().Connect >= 3 })
	if f := s.Failures(); f.Lookup > 0 {
		t.Errorf("the failures are %+v", f)
	}
}

func TestAServerThatIsAwayIsNamedAndTheFailureLoggedOnce(t *testing.T) {
	srv := natsserver.Reserve(t, "")
	var log sinktest.Log
	c := settings("nats://someone:hunter2@" + srv.Address())
	s := openLogged(t, c, log.Handler())
	failing(t, s, "connect to nats://"+srv.Address(), "connection refused")
	eventually(t, "three attempts", func() bool { return s.Failures().Connect >= 3 })
	if n := log.Count("cannot publish"); n != 1 {
		t.Errorf("the repeated failure was logged %d times", n)
	}
	if log.Count("hunter2") > 0 || strings.Contains(s.Err().Error(), "hunter2") {
		t.Error("the password of the URL is in the log or in the error")
	}
	srv.Start()
	ready(t, s)
	if log.Count("msg=connected") != 1 {
		t.Error("that it connected was not logged")
	}
}

// Each of these made the server cut the connection, or refuse the message, for ever.
func TestWhatNoServerTakesIsAPermanentErrorAndItsNeighboursAreStored(t *testing.T) {
	for name, c := range map[string]struct {
		subject, object, want string
		format                event.Format
	}{
		// Role names are path segments: they have no limit, and may have colons.
		"a long subject":       {config.DefaultNATS().Subject, strings.Repeat(":", 1400), "subject k8s.test.core.pods.shop.%3A", event.Structured},
		"headers of 100,000":   {"k8s.{resource}", strings.Repeat("x", 40_000), "header size exceeds maximum", event.Binary},
		"the longest it takes": {"k8s.{name}", strings.Repeat("x", 3580), "", event.Structured},
		"one byte too many":    {"k8s.{name}", strings.Repeat("x", 3581), "has 3585 bytes", event.Structured},
	} {
		t.Run(name, func(t *testing.T) {
			srv := natsserver.New(t, "")
			cfg := settings(srv.URL())
			cfg.Subject = c.subject
			s := open(t, cfg)
			before, after := publish(t, s, "before"), error(nil)
			err := publishDelta(t, s, sinktest.Pod(c.object, 1, 300), c.format)
			after = publish(t, s, "after")
			if before != nil || after != nil {
				t.Errorf("the neighbours got %v and %v", before, after)
			}
			want := 2
			switch {
			case c.want != "" && (!errors.Is(err, sinks.ErrPermanent) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("done got %v, want a permanent error with %q", err, c.want)
			case c.want == "" && err != nil:
				t.Errorf("done got %v", err)
			case c.want == "":
				want++
			}
			if n := len(messages(t, srv.URL(), "KBRIDGE")); n != want || s.Stats().Connects != 1 {
				t.Errorf("%d messages are stored, want %d, over %d connections", n, want, s.Stats().Connects)
			}
		})
	}
}

func TestOneOfSeveralServersIsEnough(t *testing.T) {
	away, there := natsserver.Reserve(t, ""), natsserver.New(t, "")
	s := open(t, settings(away.URL(), there.URL()))
	if err := publish(t, s, "a"); err != nil {
		t.Error(err)
	}
}

func TestAServerWithoutJetStreamIsToldApart(t *testing.T) {
	srv := natsserver.New(t, "accounts: {A: {users: [{user: a, password: b}]}}\nno_auth_user: a")
	failing(t, open(t, settings(srv.URL())), "look up stream KBRIDGE: JetStream is not enabled for this account")
	srv = natsserver.New(t, "# "+natsserver.Store)
	failing(t, open(t, settings(srv.URL())), "look up stream KBRIDGE: JetStream is not enabled on this server")
}

func TestOpenRefusesSettingsThatCannotWorkWithoutTellingAPassword(t *testing.T) {
	for _, url := range []string{"http://u:hunter2@h", "nats://u:hunter2@", "nats://u:hunter2@h:port", "nats://u:hunter2@%zz"} {
		_, err := nats.Open(t.Context(), "x", settings(url), discard)
		if err == nil {
			t.Errorf("%s was taken", url)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
	c := settings("nats://h")
	c.Subject = "k8s.{nonsense}"
	if _, err := nats.Open(t.Context(), "x", c, discard); err == nil {
		t.Error("an unknown placeholder was taken")
	}
	c = settings("nats://h")
	c.Stream.Name = "a.b"
	if _, err := nats.Open(t.Context(), "x", c, discard); err == nil {
		t.Error("a stream's name with a dot was taken")
	}
}
