package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/kbridge-io/kbridge/event"
)

// at makes the lane log to the text from a level on.
func at(level slog.Level, text *logText) change {
	return func(o *Options) {
		o.Log = slog.New(slog.NewJSONHandler(text, &slog.HandlerOptions{Level: level}))
	}
}

// line is one of a lane's log.
type line struct {
	Msg, Sink, Type, ID, Resource, Namespace, Name, ResourceVersion string

	Bytes, Attempt, Events int
	Took                   time.Duration
}

func linesOf(t *testing.T, text *logText) (all []line) {
	t.Helper()
	for l := range strings.Lines(text.String()) {
		var parsed line
		if err := json.Unmarshal([]byte(l), &parsed); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		all = append(all, parsed)
	}
	return all
}

func TestAtLevelDebugTheFirstEventsOfEachSecondAreLoggedAndTheOthersCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logText
		r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) { done(nil) }, at(slog.LevelDebug, &text))
		f, _ := r.feed()
		for second := range 3 {
			for i := range 20 {
				r.send(f, update(fmt.Sprint("pod", i), 100*second+i, 1000))
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		r.send(f, update("last", 1000, 1000))
		r.drain()
		r.stop()
		logged, counted := 0, 0
		for _, l := range linesOf(t, &text) {
			switch {
			case l.Msg == "published":
				logged++
			case l.Events > 0:
				counted += l.Events
			}
		}
		if logged != 3*trailEvents+1 || logged+counted != 61 {
			t.Errorf("of 61 events %d are logged and %d counted:\n%s", logged, counted, text.String())
		}
		first := linesOf(t, &text)[0]
		first.Took = 0
		if want := (line{Msg: "published", Sink: "live", Type: "updated", ID: "uid-pod0.0", Resource: "pods", Namespace: "shop", Name: "pod0", ResourceVersion: "0", Bytes: first.Bytes}); first != want || first.Bytes < 1000 {
			t.Errorf("an event is logged as %+v, want %+v", first, want)
		}
		if strings.Contains(text.String(), "xxx") {
			t.Error("bodies are in the log")
		}
	})
}

// What was left out when the lane ends is told, though no second has passed.
func TestEventsThatAreLeftOutOfTheLogAreToldAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logText
		r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) { done(nil) }, at(slog.LevelDebug, &text))
		f, _ := r.feed()
		for i := range trailEvents + 2 {
			r.send(f, update(fmt.Sprint("pod", i), i, 10))
		}
		r.drain()
		r.stop()
		if all := linesOf(t, &text); len(all) != trailEvents+1 || all[trailEvents].Events != 2 {
			t.Errorf("the log is\n%s", text.String())
		}
	})
}

func TestNoEventIsLoggedAtOtherLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logText
		r := newRig(t, func(_ context.Context, _ *event.Event, done func(error)) { done(nil) }, at(slog.LevelInfo, &text))
		f, _ := r.feed()
		r.send(f, update("pod", 1, 10))
		r.drain()
		r.stop()
		if r.trail != nil || text.String() != "" {
			t.Errorf("the log is\n%s", text.String())
		}
	})
}

// The API server takes any name of a Role. What a terminal would obey must not reach it.
func TestNamesWithControlCharactersAreEscapedInTheLog(t *testing.T) {
	d := update("pod\n\x1b[2J\u202ereversed\xff", 1, 10)
	d.Object.Namespace = "a\rb"
	var e event.Event
	if err := d.Encode(&e, event.Structured, nil); err != nil {
		t.Fatal(err)
	}
	for name, handler := range map[string]func(*bytes.Buffer, *slog.HandlerOptions) slog.Handler{
		"text": func(b *bytes.Buffer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(b, o) },
		"json": func(b *bytes.Buffer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(b, o) },
	} {
		var text bytes.Buffer
		newTrail(slog.New(handler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))).published(&e, 0, time.Now())
		if got := text.String(); strings.Count(got, "\n") != 1 || strings.ContainsAny(got, "\x1b\r") || !utf8.ValidString(got) || !strings.Contains(got, `pod\n`) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
