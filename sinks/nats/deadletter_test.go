package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

var errRefused = errors.New("larger than the broker takes")

// letterStream makes a stream for the dead letters.
func letterStream(t *testing.T, url string) {
	t.Helper()
	nc, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}}); err != nil {
		t.Fatal(err)
	}
}

func letters(t *testing.T, url string) *nats.DeadLetters {
	t.Helper()
	c := settings(url)
	c.AckTimeout = 2 * time.Second
	d := nats.OpenDeadLetters(c, "dead.live")
	t.Cleanup(d.Close)
	return d
}

func refused(name string, format event.Format, size int) *event.Event {
	var e event.Event
	sinktest.Pod(name, 7, size).Encode(&e, format, nil)
	return &e
}

func TestADeadLetterIsStoredOnceWithItsReason(t *testing.T) {
	srv := natsserver.New(t, "")
	letterStream(t, srv.URL())
	d := letters(t, srv.URL())
	for _, format := range []event.Format{event.Structured, event.Binary} {
		name := map[event.Format]string{event.Structured: "a", event.Binary: "b"}[format]
		e := refused(name, format, 300)
		for range 2 { // a lane that got no answer tries again
			if err := d.Write(t.Context(), "live", e, errRefused); err != nil {
				t.Fatal(err)
			}
		}
		all := messages(t, srv.URL(), "DEAD")
		m := all[len(all)-1]
		var letter struct {
			Time         time.Time
			Sink, Reason string
			Event        struct {
				ID   string
				Data json.RawMessage
			}
		}
		if err := json.Unmarshal(m.Data, &letter); err != nil {
			t.Fatal(err)
		}
		if m.Subject != "dead.live" || letter.Sink != "live" || letter.Reason != errRefused.Error() || letter.Event.ID != e.ID || len(letter.Event.Data) == 0 || time.Since(letter.Time) > time.Minute {
			t.Errorf("%s: %s", m.Subject, m.Data)
		}
	}
	if n := len(messages(t, srv.URL(), "DEAD")); n != 2 || d.Err() != nil {
		t.Errorf("%d letters of two events, %v", n, d.Err())
	}
}

func TestADeadLetterThatNoStreamStoresIsAnErrorUntilOneDoes(t *testing.T) {
	srv := natsserver.New(t, "")
	d := letters(t, srv.URL())
	e := refused("a", event.Structured, 300)
	err := d.Write(t.Context(), "live", e, errRefused)
	if err == nil || !errors.Is(d.Err(), err) || !strings.Contains(err.Error(), "dead.live") {
		t.Fatalf("%v; Err() is %v", err, d.Err())
	}
	letterStream(t, srv.URL())
	if err := d.Write(t.Context(), "live", e, errRefused); err != nil || d.Err() != nil {
		t.Errorf("%v; Err() is %v", err, d.Err())
	}
	if n := len(messages(t, srv.URL(), "DEAD")); n != 1 {
		t.Errorf("%d letters", n)
	}
}

func TestDeadLettersComeBackWithTheServer(t *testing.T) {
	srv := natsserver.New(t, "")
	letterStream(t, srv.URL())
	d := letters(t, srv.URL())
	if err := d.Write(t.Context(), "live", refused("a", event.Structured, 300), errRefused); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	e := refused("b", event.Structured, 300)
	began := time.Now()
	if err := d.Write(t.Context(), "live", e, errRefused); err == nil || d.Err() == nil {
		t.Fatal("a letter was written to a server that is dead")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that was told after %s", took)
	}
	srv.Start()
	eventually(t, "a letter to be written", func() bool { return d.Write(t.Context(), "live", e, errRefused) == nil })
	if n := len(messages(t, srv.URL(), "DEAD")); n != 2 {
		t.Errorf("%d letters of two events", n)
	}
}

// What is refused for its size is the usual dead letter, and a letter is larger than
// its event.
func TestADeadLetterOfAnEventThatIsTooLargeIsStored(t *testing.T) {
	srv := natsserver.New(t, "")
	letterStream(t, srv.URL())
	d := letters(t, srv.URL())
	if err := d.Write(t.Context(), "live", refused("big", event.Structured, 2<<20), errRefused); err != nil {
		t.Error(err)
	}
}

// The metadata may be larger than a message too.
func TestADeadLetterOfAnObjectWhoseMetadataIsTooLargeNamesIt(t *testing.T) {
	srv := natsserver.New(t, "")
	letterStream(t, srv.URL())
	d := letters(t, srv.URL())
	for _, format := range []event.Format{event.Structured, event.Binary} {
		delta := sinktest.Pod("labelled", 7+int(format), 300)
		delta.Object.Body = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"labelled","namespace":"shop","uid":"u","labels":{"a":%q}}}`, strings.Repeat("x", 2<<20))
		var e event.Event
		delta.Encode(&e, format, nil)
		if err := d.Write(t.Context(), "live", &e, errRefused); err != nil {
			t.Fatal(err)
		}
		all := messages(t, srv.URL(), "DEAD")
		var letter struct {
			Event struct {
				ID        string
				Truncated bool
				Data      struct{ Metadata struct{ Name, UID string } }
			}
		}
		if err := json.Unmarshal(all[len(all)-1].Data, &letter); err != nil {
			t.Fatal(err)
		}
		if got := letter.Event; got.ID != e.ID || !got.Truncated || got.Data.Metadata.Name != "labelled" || got.Data.Metadata.UID != e.UID {
			t.Errorf("the letter is %s", all[len(all)-1].Data)
		}
	}
}

// A server that takes the connection and says nothing is waited for, and so is the next
// one: at a stop there is no time for all of them.
func TestADeadLetterIsGivenUpWithItsContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	accepted := make(chan net.Conn, 100)
	go func() {
		defer close(accepted)
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	d := nats.OpenDeadLetters(settings(slices.Repeat([]string{"nats://" + silent.Addr().String()}, 20)...), "dead.live")
	t.Cleanup(d.Close)
	over := errors.New("the stop is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	written := make(chan error, 1)
	go func() { written <- d.Write(ctx, "live", refused("a", event.Structured, 300), errRefused) }()
	first := <-accepted
	cancel(over)
	select {
	case err := <-written:
		if !errors.Is(err, over) || !errors.Is(d.Err(), over) {
			t.Errorf("it was given up with %v", err)
		}
	case <-time.After(timeout):
		t.Error("it is not given up")
	}
	first.Close()
	silent.Close()
	for c := range accepted {
		c.Close()
	}
}
