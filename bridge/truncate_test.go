package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/spill/spilltest"
	"github.com/kbridge-io/kbridge/sinks"
)

var errLarge = sinks.TooLarge(errors.New("larger than the broker takes"))

func TestAnEventThatIsTooLargeGoesOnceWithoutItsBody(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary} {
		for _, change := range []bool{false, true} {
			for _, passes := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) { truncated(t, format, change, passes) })
			}
		}
	}
}

func truncated(t *testing.T, format event.Format, change, passes bool) {
	resource := event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "things", Kind: "Thing", Change: change})
	var values []string
	r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
		switch {
		case e.Key.Name != "big":
			done(nil)
		case e.Truncated && passes:
			values = append(values, string(e.AppendStructured(nil)))
			done(nil)
		default:
			values = append(values, string(e.AppendStructured(nil)))
			done(errLarge)
		}
	}, func(o *Options) { o.Truncate, o.Format = true, format })
	p := r.NewPort(resource.Name(), resource, "", allTypes)
	f := NewFeed(nil, p)
	object := func(version int) *event.Object {
		o := thing("big", "big1", version)
		o.Body = append(slices.Clip(o.Body[:len(o.Body)-1]), `,"spec":{"blob":"`+strings.Repeat("b", 10_000)+`"}}`...)
		return o
	}
	o := object(2)
	body := string(o.Body)
	r.send(f, &event.Delta{Type: event.Updated, Resource: resource, Object: o, Old: object(1)})
	r.send(f, &event.Delta{Type: event.Added, Resource: resource, Object: thing("small", "small1", 3)})
	r.drain()
	wantPosition(t, p, "3")
	if string(o.Body) != body {
		t.Error("the object was changed")
	}
	if len(values) != 2 {
		t.Fatalf("it was published %d times", len(values))
	}
	var e struct {
		ID, UID   string
		Truncated *bool
		Data      map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(values[1]), &e); err != nil {
		t.Fatal(err)
	}
	data := e.Data
	if change {
		if len(data) != 1 {
			t.Errorf("data is %v", data)
		}
		data = nil
		if err := json.Unmarshal(e.Data["object"], &data); err != nil {
			t.Fatal(err)
		}
	}
	if want := `{"name":"big","uid":"big1","resourceVersion":"2"}`; len(data) != 3 || string(data["apiVersion"]) != `"v1"` || string(data["kind"]) != `"Thing"` || string(data["metadata"]) != want {
		t.Errorf("data is %s", values[1])
	}
	if e.Truncated == nil || !*e.Truncated || e.ID != "big1.2" || strings.Contains(values[0], "truncated") {
		t.Errorf("%s after %s", values[1], values[0])
	}
	if n := r.sum("kbridge_truncated_total"); n != 1 {
		t.Errorf("%d are counted as truncated", n)
	}
	letters := r.letters()
	if passes != (len(letters) == 0) || len(letters) > 1 {
		t.Errorf("%d dead letters", len(letters))
	}
	r.books(2)
}

func TestWithoutTruncationAnEventThatIsTooLargeIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true, refuse: func(*event.Event) error { return errLarge }}
		r := newRig(t, d.publish)
		w := watchOf(t, r.port())
		w.has("a")
		r.drain()
		d.wants(t, 0, "added a1/1")
		if n := len(r.letters()); n != 1 || r.sum("kbridge_truncated_total") != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestWhatIsRefusedForAnotherReasonKeepsItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{flow: true, refuse: func(*event.Event) error { return errNever }}
		r := newRig(t, d.publish, func(o *Options) { o.Truncate = true })
		w := watchOf(t, r.port())
		w.has("a")
		r.drain()
		if letters := r.letters(); len(letters) != 1 || strings.Contains(string(letters[0].Event), "truncated") {
			t.Errorf("%s", letters)
		}
	})
}

func TestBodiesThatCanNotBeReadAreCountedAndLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var truncated int
		r := newRig(t, func(_ context.Context, e *event.Event, done func(error)) {
			if e.Truncated {
				truncated++
			}
			done(nil)
		})
		aside := spilltest.Open(t)
		f, p := r.feed()
		deltas := []*event.Delta{update("a", 1, 100), update("b", 2, 100), update("c", 3, 100)}
		for _, d := range deltas {
			d.Object = d.Object.PutAside(aside)
		}
		for range 8 { // until they are on the disk
			aside.Put(make([]byte, 100<<10))
		}
		if err := aside.Close(); err != nil {
			t.Fatal(err)
		}
		for _, d := range deltas {
			r.send(f, d)
		}
		r.drain()
		wantPosition(t, p, "3")
		if n := r.sum("kbridge_truncated_total"); truncated != 3 || n != 3 {
			t.Errorf("%d events say that they are not all, and %d are counted", truncated, n)
		}
		if n := strings.Count(r.log.String(), "can not be read"); n != 1 {
			t.Errorf("it is logged %d times: %s", n, r.log)
		}
	})
}
