package informer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/internal/scriptedapi"
	"github.com/kbridge-io/kbridge/internal/status"
)

func TestTheStatusOfAResourceFollowsItsWatches(t *testing.T) {
	r := selection(configMaps)
	r.Name, r.Namespaces = "two", []string{"default", "other"}
	inBubble(t, r, twoObjects, func(b *bench) {
		s := b.informer.Status()
		listed := s.LastChange
		if listed.IsZero() || time.Since(listed) > 3*time.Minute {
			t.Errorf("the last change was at %s", listed)
		}
		s.LastChange = time.Time{}
		want := status.Resource{
			Entry: "two", Resource: "configmaps", Namespaces: r.Namespaces, Phase: status.Watching,
			Objects: 2, Changes: 2, Lists: map[string]uint64{"start": 2},
		}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("after the start: -want +got\n%s", diff)
		}
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		b.api.Delete(configMaps, "default", "b")
		synctest.Wait()
		s = b.informer.Status()
		if s.Objects != 1 || s.Changes != 4 || !s.LastChange.Equal(time.Now()) {
			t.Errorf("after two changes: %+v", s)
		}

		down := time.Now()
		b.api.Down()
		b.rest()
		s = b.informer.Status()
		if s.Phase != status.Waiting || s.Since.Sub(down) > time.Second || s.Errors < 3 || s.LastError == nil || !strings.Contains(s.LastError.Text, "connection refused") || time.Since(s.LastError.Time) > time.Minute {
			t.Errorf("while the server is away: %+v, %+v", s, s.LastError)
		}
		var unwatched *WatchError
		if err := b.informer.Err(); !errors.As(err, &unwatched) || ReasonOf(err) != Unreachable || unwatched.Others != 1 || unwatched.Since.Sub(down) > time.Second {
			t.Errorf("it is not watched for two minutes, and Err = %v", err)
		}
		b.api.Compact()
		b.api.Up()
		b.rest()
		s = b.informer.Status()
		if s.Phase != status.Watching || !s.Since.IsZero() || s.Lists["expired"] == 0 || s.LastError == nil {
			t.Errorf("when it is back: %+v", s)
		}
		b.stop()
		if s := b.informer.Status(); s.Objects != 0 {
			t.Errorf("when it has ended it has %d objects", s.Objects)
		}
	})
}

func TestTwoEntriesOfAResourceHaveAStatusEach(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		one := b.informer
		b.stop()
		b.start(nil, nil)
		b.rest()
		if s := b.informer.Status(); s.Objects != 2 || s.Changes != 2 || s.Lists["start"] != 1 {
			t.Errorf("the second one is told as %+v", s)
		}
		if s := one.Status(); s.Changes != 2 || s.Lists["start"] != 1 {
			t.Errorf("the first one is told as %+v", s)
		}
	})
}

func TestAWatchIsWaitedForSinceItsListWasHandedOverAndNotSinceTheListBegan(t *testing.T) {
	inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { api.SetWatchList(false); twoObjects(api) }, func(b *bench) {
		b.stop()
		gate := make(chan struct{})
		b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if r.GVR != configMaps || r.Verb != scriptedapi.Watch {
				return nil
			}
			f := scriptedapi.Fail(500)
			return &f
		})
		b.start(nil, func(r *recorder) { r.gate = gate })
		b.rest()
		handedOver := time.Now()
		close(gate)
		synctest.Wait()
		if s := b.informer.Status(); s.Phase != status.Waiting || !s.Since.Equal(handedOver) {
			t.Errorf("it is %s since %s, want since %s", s.Phase, s.Since, handedOver)
		}
	})
}

func TestThePhasesBeforeAWatchAreTold(t *testing.T) {
	gadgets := schema.GroupVersionResource{Group: "late.dev", Version: "v1", Resource: "gadgets"}
	inBubble(t, selection(gadgets), nil, func(b *bench) {
		phase := func(want status.Phase, err error) {
			t.Helper()
			if s := b.informer.Status(); s.Phase != want || !errors.Is(b.informer.Err(), err) {
				t.Errorf("it is %s with %v, want %s with %v", s.Phase, b.informer.Err(), want, err)
			}
		}
		phase(status.Starting, ErrNotServed)
		if s := b.informer.Status(); s.Errors == 0 || s.LastError == nil {
			t.Errorf("what keeps it from watching is not told: %+v", s)
		}
		gate := make(chan struct{})
		b.recorder.mu.Lock()
		b.recorder.gate = gate
		b.recorder.mu.Unlock()
		b.api.Register(gadgets, "Gadget", false)
		b.api.Create(gadgets, map[string]any{"metadata": map[string]any{"name": "g"}})
		b.rest()
		phase(status.Listing, ErrNotListed)
		close(gate)
		b.rest()
		phase(status.Watching, nil)
	})
}
