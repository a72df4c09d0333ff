package nats_test

import (
	"context"
	"encoding/json"
	"errors"
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
			if err := d.Write("live", e, errRefused); err != nil {
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
	err := d.Write("live", e, errRefused)
	if err == nil || !errors.Is(d.Err(), err) || !strings.Contains(err.Error(), "dead.live") {
		t.Fatalf("%v; Err() is %v", err, d.Err())
	}
	letterStream(t, srv.URL())
	if err := d.Write("live", e, errRefused); err != nil || d.Err() != nil {
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
	if err := d.Write("live", refused("a", event.Structured, 300), errRefused); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	e := refused("b", event.Structured, 300)
	began := time.Now()
	if err := d.Write("live", e, errRefused); err == nil || d.Err() == nil {
		t.Fatal("a letter was written to a server that is dead")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that was told after %s", took)
	}
	srv.Start()
	eventually(t, "a letter to be written", func() bool { return d.Write("live", e, errRefused) == nil })
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
	if err := d.Write("live", refused("big", event.Structured, 2<<20), errRefused); err != nil {
		t.Error(err)
	}
}
