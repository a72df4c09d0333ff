package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer/scan"
)

// verifier proves that the index is what the server has, behind the path of events and
// without the bodies: it lists the metadata of all objects, in pages, and compares uids
// and versions. A watch tells only what comes after its version. Where etcd was restored
// from a backup and has grown past that version since, what came before is another
// history, and neither the watch nor the server's version says so. So the proof is given
// after each start, after each time that the server was not to be reached, and on a
// schedule where the configuration has one. What differs is mended by a list, as after
// a 410.
type verifier struct {
	view     *view
	requests *listWatch
	every    time.Duration // zero: only where there is a doubt
	metrics  verifierMetrics
	log      *slog.Logger
	onError  func(error) // told what keeps the comparison from being made for long; nil: nothing does

	mu     sync.Mutex
	relist context.CancelFunc // ends the attempt that is being made, or nil
}

// doubt says that the history of a watch has to be proven. Many goroutines use it.
type doubt struct {
	mu     sync.Mutex
	raised bool
	urgent bool
	wake   chan struct{} // holds one token
}

func newDoubt() *doubt { return &doubt{wake: make(chan struct{}, 1)} }

// raise raises the doubt. It is urgent where the server was not to be reached: a restored
// backup restarts it. A watch that has ended too early is usual where a proxy cuts it.
func (d *doubt) raise(urgent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.raised, d.urgent = true, d.urgent || urgent
	select {
	case d.wake <- struct{}{}:
	default: // it is known
	}
}

// settle says that there is none any more, and returns whether it was urgent.
func (d *doubt) settle() (urgent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	urgent = d.urgent
	d.raised, d.urgent = false, false
	return urgent
}

func (d *doubt) is() (raised, urgent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.raised, d.urgent
}

const (
	// A server that is back is not met by everybody at once.
	proveAfter  = 2 * time.Second
	proveJitter = 8 * time.Second
	// A proof takes no more than half of the time where the server was not to be reached,
	// and a tenth of it where watches have merely ended early.
	earlyPause = 30 * time.Second
	earlyShare = 10

	// tolerated is for how long comparisons may fail before /readyz says so.
	tolerated = 30 * time.Second

	pageObjects = 500
	// catchUp is for how long a quiet watch may be behind a list. A server sends a bookmark
	// a minute; where it sends none, the list is made again.
	catchUp = 2 * time.Minute
	quiet   = 30 * time.Second
)

// run compares when there is a reason to, until ctx ends.
func (v *verifier) run(ctx context.Context) {
	var schedule <-chan time.Time
	if v.every > 0 {
		ticker := time.NewTicker(v.every)
		defer ticker.Stop()
		schedule = ticker.C
	}
	var last time.Time // when the last comparison ended
	var took time.Duration
	for {
		select {
		case <-v.requests.doubt.wake:
			if !v.await(ctx, last, took) {
				continue
			}
		case <-schedule:
		case <-ctx.Done():
			return
		}
		start := time.Now()
		v.verify(ctx)
		last, took = time.Now(), time.Since(start)
	}
}

// await waits until a doubt is to be looked into, and returns false if it is settled by
// then: a list proves as much. last is when a proof ended, and took is what it took.
func (v *verifier) await(ctx context.Context, last time.Time, took time.Duration) bool {
	at := time.Now().Add(proveAfter + rand.N(proveJitter))
	for {
		raised, urgent := v.requests.doubt.is()
		if !raised {
			return false
		}
		pause := took
		if !urgent {
			pause = max(earlyPause, earlyShare*took)
		}
		if next := last.Add(pause); next.After(at) {
			at = next
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-timer.C:
			raised, _ = v.requests.doubt.is()
			return raised
		case <-v.requests.doubt.wake: // it may be urgent now
			timer.Stop()
			if _, now := v.requests.doubt.is(); now && !urgent {
				at = time.Now().Add(proveAfter + rand.N(proveJitter))
			}
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// relists says how to end the attempt that is being made, until the function that it
// returns is called.
func (v *verifier) relists(end context.CancelFunc) (done func()) {
	set := func(end context.CancelFunc) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.relist = end
	}
	set(end)
	return func() { set(nil) }
}

// verify compares until nothing differs, has what differs mended, and tells the outcome.
func (v *verifier) verify(ctx context.Context) {
	complaint := repeated{log: v.log}
	differed, began := 0, time.Now()
	defer v.onError(nil)
	for pause := firstPause; ; pause = pause.next(pauseLimit) {
		if !v.awaitWatch(ctx) {
			return
		}
		urgent := v.requests.doubt.settle()
		found, err := v.compare(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errListed):
			// Where there was a doubt, the list has settled it; a schedule wants its outcome.
		case err != nil:
			v.metrics.failed.Inc()
			v.requests.doubt.raise(urgent)
			complaint.warn("the objects can not be compared with the server's, trying again", err)
			if time.Since(began) > tolerated {
				v.onError(fmt.Errorf("compare the objects with the server's: %w", err))
			}
			pause.sleep(ctx)
		case len(found.differ) == 0:
			v.metrics.same.Inc()
			v.view.proven()
			v.log.Debug("verified", "objects", found.compared, "differed", differed, "resourceVersion", found.version)
			if v.every > 0 {
				v.view.handler.Verified(event.NewSnapshotID(time.Now()), found.compared, differed, found.version)
			}
			return
		default:
			differed += len(found.differ)
			v.metrics.differ.Inc()
			v.metrics.differences.Add(float64(len(found.differ)))
			v.log.Warn("the server has other objects than were seen of it: listing anew", "differ", len(found.differ), "of", found.compared, "example", found.example())
			v.listAnew()
			pause.sleep(ctx)
		}
	}
}

// listAnew ends the attempt that is being made, so that the next one lists.
func (v *verifier) listAnew() {
	v.view.otherHistory.Store(true)
	v.requests.mustList(listDiffers)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.relist != nil {
		v.relist()
	}
}

// awaitWatch waits until the watch is up: nothing could be compared with an index that
// does not follow. It returns false if ctx ends before.
func (v *verifier) awaitWatch(ctx context.Context) bool {
	for !v.view.isWhole() || !v.requests.health.is() {
		if !sleep(ctx, time.Second) {
			return false
		}
	}
	return ctx.Err() == nil
}

// sleep returns false if ctx ends meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// version is a state of an object; empty: the object is not there.
type version struct{ uid, version string }

// difference is what a list said of an object, and what the index had at that time.
type difference struct{ listed, indexed version }

// comparison is the outcome of one.
type comparison struct {
	version  string // of the list
	round    uint32 // of the index
	compared int
	differ   map[string]difference // by event.Object's key
}

// example is one of the objects that differ.
func (c *comparison) example() string {
	for key, d := range c.differ {
		return fmt.Sprintf("%s: the server has %q, and %q was seen", key, d.listed.uid+"@"+d.listed.version, d.indexed.uid+"@"+d.indexed.version)
	}
	return ""
}

// errListed says that a list has come in between, which has compared as much.
var errListed = errors.New("the watch has listed anew")

// compare lists and compares. What differs only because the watch is not there yet does
// not count.
func (v *verifier) compare(ctx context.Context) (comparison, error) {
	defer v.view.endComparison()
	c, err := v.pass(ctx)
	for began := time.Now(); err == nil && len(c.differ) > 0; {
		if !sleep(ctx, time.Second) {
			return c, ctx.Err()
		}
		if !v.view.isOfRound(c.round) {
			return c, errListed
		}
		if v.view.recheck(&c); len(c.differ) == 0 || v.view.reached(c.version) {
			return c, nil
		}
		if !v.requests.health.is() {
			began = time.Now()
		}
		if time.Since(began) < catchUp || !v.view.isQuiet() {
			continue
		}
		// No version says where the watch is. What differs in the same way after so long
		// does differ.
		again, err := v.pass(ctx)
		if err != nil {
			return c, err
		}
		for key, d := range again.differ {
			if c.differ[key] != d {
				delete(again.differ, key)
			}
		}
		return again, nil
	}
	return c, err
}

// pass lists the metadata once, while no other watch of this client does.
func (v *verifier) pass(ctx context.Context) (comparison, error) {
	done, err := v.requests.cluster.verifies(ctx)
	if err != nil {
		return comparison{}, err
	}
	defer done()
	c := comparison{differ: map[string]difference{}, round: v.view.beginPass()}
	for o := (metav1.ListOptions{Limit: pageObjects}); ; {
		began := time.Now()
		page, err := v.requests.metadata(ctx, o)
		if next := continues(err); next != "" {
			o.Continue = next // what it lists now is newer, and each page is compared by itself
			continue
		}
		if err != nil {
			return c, err
		}
		if c.version == "" {
			c.version = page.version
		}
		v.view.look(&c, page)
		if page.next == "" {
			break
		}
		o.Continue = page.next
		if !sleep(ctx, max(10*time.Millisecond, time.Since(began))) {
			return c, ctx.Err()
		}
	}
	v.view.endPass(&c)
	return c, nil
}

// continues is the token with which a list goes on that has taken too long for the server
// to remember its version.
func continues(err error) string {
	var status apierrors.APIStatus
	if err != nil && apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}

// page is a part of a list of metadata.
type page struct {
	version, next string
	objects       []scan.Meta
}

// asMetadata asks for metadata alone. A server that does not know how sends the objects.
const asMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// metadata lists a page of what the watch selects.
func (lw *listWatch) metadata(ctx context.Context, o metav1.ListOptions) (*page, error) {
	body, err := lw.metadataBody(ctx, o)
	if err != nil {
		err = fmt.Errorf("list metadata: %w", err)
		lw.counted(ctx, "list metadata", err)
		return nil, err
	}
	p := &page{}
	list, err := scan.List(body, func(item []byte) error {
		m, err := scan.ReadMeta(item)
		p.objects = append(p.objects, m)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("decode a list of metadata: %w", err)
	}
	p.version, p.next = list.ResourceVersion, list.Continue
	return p, nil
}

// metadataBody is the answer's body, undecoded. Its error is the one that the server sent:
// client-go decodes none of a body that is asked for as it is.
func (lw *listWatch) metadataBody(ctx context.Context, o metav1.ListOptions) ([]byte, error) {
	answer := lw.send(lw.served.Load().plain, o).SetHeader("Accept", asMetadata).Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	return answer.Raw()
}
