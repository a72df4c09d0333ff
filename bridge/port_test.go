package bridge

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kbridge-io/kbridge/event"
)

func wantPosition(t *testing.T, p *Port, want string) {
	t.Helper()
	synctest.Wait()
	if got := p.Position(); got != want {
		t.Errorf("the position is %q, want %q", got, want)
	}
}

func TestThePositionWaitsForAllBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, p := r.feed()
		other, q := r.feed()
		r.send(f, update("a", 1, 10))
		r.send(other, update("x", 2, 10))
		r.send(f, update("b", 3, 10))
		r.send(f, update("c", 4, 10))
		sink.came()
		sink.answer(t, "c/4", nil)
		wantPosition(t, p, "")
		sink.answer(t, "a/1", nil)
		wantPosition(t, p, "1")
		sink.answer(t, "b/3", errAgain)
		wantPosition(t, p, "1")
		wantPosition(t, q, "")
		sink.answer(t, "x/2", nil)
		wantPosition(t, q, "2")
		wantPosition(t, p, "1")
		r.stop()
	})
}

func TestThePositionIsVoidWhileAListIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, p := r.feed()
		r.send(f, update("a", 1, 10))
		f.Position("") // a list begins while an event is open
		wantPosition(t, p, "")
		for i, name := range []string{"b", "c"} {
			if err := f.Delta(t.Context(), update(name, 10-i, 10)); err != nil {
				t.Fatal(err)
			}
		}
		f.Position("20")
		sink.came()
		sink.answer(t, "a/1", nil)
		wantPosition(t, p, "") // not 1: the list's items are newer
		sink.answer(t, "b/10", nil)
		wantPosition(t, p, "")
		sink.answer(t, "c/9", nil)
		wantPosition(t, p, "20")
		f.Position("") // one that finds nothing new
		wantPosition(t, p, "")
		f.Position("30")
		wantPosition(t, p, "30")
	})
}

func TestFilteredDeltasAndBookmarksMoveThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish)
		f, p := r.feed(event.Added, event.Deleted)
		r.send(f, update("a", 1, 10))
		wantPosition(t, p, "1")
		added := update("b", 2, 10)
		added.Type = event.Added
		r.send(f, added)
		r.send(f, update("c", 3, 10))
		f.Position("4")
		wantPosition(t, p, "1") // they stand behind an open event
		sink.answer(t, "b/2", nil)
		wantPosition(t, p, "4")
		if got := r.sum("kbridge_filtered_total"); got != 2 || sink.came() != "b/2" {
			t.Errorf("%d are filtered, published: %s", got, sink.came())
		}
	})
}

// A watch goes on for a moment after its handler has refused a delta: the Reflector
// takes no error from its store. What comes then must not move a position past what
// was lost.
func TestThePositionNeverPassesADeltaThatWasNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sink inbox
		r := newRig(t, sink.publish, func(o *Options) { o.MaxEvents = 2 })
		first, before := r.feed()
		_, full := r.feed()
		_, behind := r.feed()
		filtering := r.NewPort(pods.Name(), pods, "", []event.Type{event.Added})
		r.send(first, update("z", 1, 10)) // the lane holds one
		f := NewFeed(nil, before, full, behind, filtering)
		ctx, cancel := context.WithCancelCause(t.Context())
		errEnd := errors.New("the end")
		go func() { synctest.Wait(); cancel(errEnd) }()
		// The first port takes it, the second has no room, the others are never asked.
		if err := f.Delta(ctx, update("a", 2, 10)); !errors.Is(err, errEnd) {
			t.Fatal(err)
		}
		sink.came()
		sink.answer(t, "z/1", nil)
		sink.answer(t, "a/2", nil)
		f.Position("3") // of a delta that all filter, or a bookmark
		f.Position("")
		f.Position("4")
		wantPosition(t, before, "4") // it has all
		wantPosition(t, full, "")
		wantPosition(t, behind, "")
		wantPosition(t, filtering, "")
	})
}

func TestAFeedHandsADeltaToAllItsPorts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var one, two inbox
		r, s := newRig(t, one.publish), newRig(t, two.publish)
		f := NewFeed(nil, r.NewPort(pods.Name(), pods, "", allTypes), s.NewPort(pods.Name(), pods, "", []event.Type{event.Added}), s.NewPort(pods.Name(), pods, "", allTypes))
		r.send(f, update("a", 1, 10))
		if one.came() != "a/1" || two.came() != "a/1" {
			t.Errorf("the first has %s, the second %s", one.came(), two.came())
		}
		wantPosition(t, f.ports[0], "")
		wantPosition(t, f.ports[1], "1")
		two.answer(t, "a/1", nil)
		wantPosition(t, f.ports[0], "")
		wantPosition(t, f.ports[2], "1")
		one.answer(t, "a/1", nil)
		wantPosition(t, f.ports[0], "1")
	})
}
