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

	"github.com/kbridge-io/kbridge/internal/cause"
)

// watching is one watch that is kept going. It calls the Reflector's ListAndWatch
// itself rather than Run, which would log errors where we can neither tell them
// apart nor learn of them.
type watching struct {
	reflector *cache.Reflector
	requests  *listWatch
	view      *view
	verifier  *verifier
	log       *slog.Logger
	resumed   bool              // an earlier run knew the view
	again     map[string]string // the ids of snapshots that it did not complete, by sink
	// follow looks for the version in which the server serves the resource now. Nil: the
	// configuration says which.
	follow  func(context.Context, *watching)
	clients func(*served) (*clients, error)
}

// short is the life of a watch that does not count as one: a server that accepts watches
// and ends them at once is not asked without a pause.
const short = time.Second

// run lists and watches until ctx ends. A watch that has ended goes on from where it was;
// where it can not, a list is compared with the index, and that finds what was missed.
func (w *watching) run(ctx context.Context) {
	defer w.view.release()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { w.view.keepTidy(ctx) })
	beside.Go(func() { w.verifier.run(ctx) })
	pause := firstPause
	for ctx.Err() == nil {
		err := w.attempt(ctx)
		if ctx.Err() != nil {
			return
		}
		if isExpired(err) {
			err = nil // kbridge_lists_total says why the watch can not go on
		}
		w.requests.health.ended(err)
		if w.follow != nil && apierrors.IsNotFound(err) {
			w.follow(ctx, w)
		}
		if began := w.requests.began; !began.IsZero() && time.Since(began) >= short {
			pause = firstPause
		}
		if utilnet.IsConnectionRefused(err) {
			pause = min(pause, refusedLimit)
		}
		pause.sleep(ctx)
		pause = pause.next(pauseLimit)
		w.view.goOn()
	}
}

// moveTo has the watch go on with the resource as it is served now. What is known is
// compared with a list: the bodies are of the version before.
func (w *watching) moveTo(s *served) error {
	c, err := w.clients(s)
	if err != nil {
		return err
	}
	w.requests.served.Store(c)
	w.requests.mustList(listMoved)
	w.view.becomes(s.resource)
	return nil
}

// attempt lists, unless the watch can go on, and watches. What it has opened ends with it:
// the Reflector does not stop a watch whose initial events its store has refused.
func (w *watching) attempt(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer w.verifier.relists(end)()
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

// repeated logs a failure that comes back with the same cause only once. One goroutine uses it.
type repeated struct {
	log  *slog.Logger
	last string
}

func (r *repeated) warn(msg string, err error) {
	if c := cause.Of(err); c != r.last {
		r.last = c
		r.log.Warn(msg, "err", err)
	}
}
