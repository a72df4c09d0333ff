package informer

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/cache"
)

// watching is one watch that is kept going. It calls the Reflector's ListAndWatch
// itself rather than Run, which would log errors where we can neither tell them
// apart nor learn of them.
type watching struct {
	reflector *cache.Reflector
	view      *view
	log       *slog.Logger
	resumed   bool              // an earlier run knew the view
	again     map[string]string // the ids of snapshots that it did not complete, by sink
	onError   func(error)       // told why the beginning is still awaited
}

// healthy is how long a watch must have lasted for the next failure to be the
// first of its kind.
const healthy = time.Minute

// run lists and watches until ctx ends. Where a watch ended for good it lists
// anew, and the comparison with the index finds what was missed.
func (w *watching) run(ctx context.Context) {
	defer w.view.release()
	var tidying sync.WaitGroup
	defer tidying.Wait()
	tidying.Go(func() { w.view.keepTidy(ctx) })
	complaint := repeated{log: w.log}
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := w.attempt(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			// The watch can not go on from where it was; kbridge_lists_total says why.
		default:
			complaint.warn("list and watch failed, trying again", err)
			if !w.view.begun {
				w.onError(err)
			}
		}
		if time.Since(began) > healthy {
			pause = firstPause
			complaint.last = ""
		}
		if utilnet.IsConnectionRefused(err) {
			pause = min(pause, refusedLimit)
		}
		pause.sleep(ctx)
		pause = pause.next(pauseLimit)
	}
}

// attempt lists and watches once. What it has opened ends with it: the Reflector does
// not stop a watch whose initial events its store has refused.
func (w *watching) attempt(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	return w.reflector.ListAndWatchWithContext(ctx)
}

// pause is the time between two attempts. It doubles up to a limit.
type pause time.Duration

const (
	firstPause = pause(250 * time.Millisecond)
	pauseLimit = pause(20 * time.Second)
	// A refused connection costs a server nothing, and how soon a server that is back
	// is noticed decides how much has happened in between.
	refusedLimit = pause(time.Second)
)

func (p pause) next(limit pause) pause { return min(2*p, limit) }

// sleep waits between half of the pause and all of it, so that many watches do not
// come back to the server at once. It returns early when ctx ends.
func (p pause) sleep(ctx context.Context) {
	t := time.NewTimer(time.Duration(p)/2 + rand.N(time.Duration(p)/2))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// repeated logs a failure that comes back unchanged only once. One goroutine uses it.
type repeated struct {
	log  *slog.Logger
	last string
}

func (r *repeated) warn(msg string, err error) {
	if text := err.Error(); text != r.last {
		r.last = text
		r.log.Warn(msg, "err", text)
	}
}
