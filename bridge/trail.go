package bridge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// trail logs the events that a sink has acknowledged: what they are about, and never what
// is in them. Of each second it logs the first few, and how many more there were. A nil
// trail logs nothing: there is one at level debug only.
type trail struct {
	log *slog.Logger

	mu    sync.Mutex
	begun time.Time // of the second that is counted
	told  int       // in it
	left  int       // since it was said how many were left out
}

// A trail logs this many events in this time.
const (
	trailEvents = 5
	trailPeriod = time.Second
)

func newTrail(log *slog.Logger) *trail {
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return nil
	}
	return &trail{log: log}
}

// published logs an event, or counts it.
func (t *trail) published(e *event.Event, attempts int, now time.Time) {
	if t == nil || !t.tells(now) {
		return
	}
	about := []any{"type", e.Type.String(), "id", e.ID, "resource", e.Resource.Name()}
	for _, a := range [][2]string{{"namespace", e.Key.Namespace}, {"name", e.Key.Name}, {"resourceVersion", e.ResourceVersion}, {"snapshot", e.Snapshot}} {
		if a[1] != "" {
			about = append(about, a[0], a[1])
		}
	}
	if e.Inferred {
		about = append(about, "inferred", true)
	}
	if attempts > 0 {
		about = append(about, "attempt", attempts+1)
	}
	t.log.Debug("published", append(about, "bytes", len(e.Value), "took", now.Sub(e.Time).Round(time.Microsecond))...)
}

func (t *trail) tells(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.begun) >= trailPeriod {
		t.begun, t.told = now, 0
	}
	if t.told == trailEvents {
		t.left++
		return false
	}
	t.told++
	return true
}

// run says now and then how many events were left out, until ctx ends.
func (t *trail) run(ctx context.Context) {
	tick := time.NewTicker(trailPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		t.mu.Lock()
		left := t.left
		t.left = 0
		t.mu.Unlock()
		if left > 0 {
			t.log.Debug("published more events, which are not logged one by one", "events", left)
		}
	}
}
