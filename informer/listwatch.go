package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Reasons for a list, as kbridge_lists_total has them. Nothing else leads to one: a watch
// that fails for any other reason goes on from where it was, however long that takes.
const (
	listStart   = "start"
	listExpired = "expired"
	listBehind  = "behind"
	listDiffers = "differs"
	listFailed  = "failed" // the list before failed
	// The server has no versions with which a watch could go on.
	listUnversioned = "unversioned"
	listMoved       = "moved" // the server serves another version of the resource
)

var listReasons = []string{listStart, listExpired, listBehind, listDiffers, listFailed, listUnversioned, listMoved}

// listWatch sends the requests of one Reflector. It is what knows why a list
// became necessary: a 410 inside a stream calls no handler of the Reflector's.
type listWatch struct {
	served                       atomic.Pointer[clients]
	cluster                      *Client
	namespace                    string
	labelSelector, fieldSelector string
	lists                        map[string]prometheus.Counter // by reason
	silent                       prometheus.Counter
	tally                        *tally
	note                         func(error) // told of what failed
	log                          *slog.Logger
	// view is where the lists go. While it is to resume, a list is answered with the
	// version that it knows, without asking the server.
	view *view
	// reason is why the next list will be, a string. The Reflector's goroutine, its
	// pager's and the stream decoder's write it.
	reason atomic.Value
	// initial says that the watch's initial events are coming; see observer.
	initial atomic.Bool
	// began is when the last watch began that the server accepted, and lasts for how long
	// it was to last. The Reflector's goroutine owns them.
	began  time.Time
	lasts  time.Duration
	health *health // of the watch
	doubt  *doubt
	// endless says that the server begins watches with what is there, and does not say where
	// that ends.
	endless atomic.Bool
	// unmarked is how many such watches in a row have ended before it was said. It and fresh
	// are the Reflector's goroutine's.
	unmarked int
	fresh    bool // a list has been asked for since the last watch
}

// clients ask for a resource as the server serves it.
type clients struct {
	target
	watched rest.Interface
	plain   rest.Interface // of which nothing is observed
}

var _ cache.ListerWatcherWithContext = (*listWatch)(nil)

// List implements cache.ListerWatcher, which the Reflector's constructor asks for.
func (lw *listWatch) List(o metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (lw *listWatch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), o)
}

// onStatus sees each error the server sends, those inside a stream too.
func (lw *listWatch) onStatus(s *metav1.Status) {
	if s.Code == http.StatusGone {
		lw.mustList(listExpired)
		return
	}
	lw.log.Debug("the server sent an error", "code", s.Code, "reason", s.Reason, "message", s.Message)
	if s.Status == metav1.StatusFailure {
		lw.health.failed(apierrors.FromObject(s)) // client-go tries again, and tells nobody why
	}
}

// mustList says that the watch can not go on from where it was, and why.
func (lw *listWatch) mustList(reason string) {
	lw.reason.Store(reason)
	lw.view.lost.Store(true)
}

// onUnreadable sees each document that could not be decoded. In a stream it ends the
// watch, and the next one begins before the document.
func (lw *listWatch) onUnreadable(err error) {
	lw.note(err)
	lw.health.failed(err)
}

// ListWithContext gets one page of a list.
func (lw *listWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if lw.view.resume != "" {
		list := &objectList{}
		list.ResourceVersion = lw.view.resume
		return list, nil
	}
	if o.Continue == "" {
		if err := lw.cluster.sameCluster(ctx); err != nil {
			return nil, lw.failed(ctx, "list", err)
		}
		lw.countList(lw.beginList(&o))
	}
	obj, err := lw.list(ctx, o)
	if err != nil {
		return nil, lw.failed(ctx, "list", err)
	}
	return obj, nil
}

// WatchWithContext starts a watch: one that begins with the initial events, which
// is a list by another name, or one that goes on from a version.
func (lw *listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	if o.SendInitialEvents == nil || !*o.SendInitialEvents {
		return lw.goOn(ctx, o)
	}
	switch {
	case lw.view.resume != "":
		return nil, errResume
	case lw.endless.Load():
		return nil, errEndless
	}
	if err := lw.cluster.sameCluster(ctx); err != nil {
		return nil, lw.failed(ctx, "watch", err)
	}
	// client-go lets no watch wait for its turn, and these are lists.
	if err := lw.cluster.limit.Wait(ctx); err != nil {
		return nil, err
	}
	reason := lw.beginList(&o)
	lw.initial.Store(true)
	w, err := lw.open(ctx, o)
	if err != nil {
		// The Reflector tries again, or with a list where the server can not do it: the
		// reason is still the same, unless the error is one.
		lw.reason.CompareAndSwap(listFailed, reason)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			lw.counted(ctx, "watch", err) // it does not know the option
			return nil, err
		}
		return nil, lw.failed(ctx, "watch", err)
	}
	lw.countList(reason)
	lw.accepted(&o)
	lw.fresh = false
	if lw.unmarked++; lw.unmarked >= mostUnmarked {
		lw.isEndless()
	}
	context.AfterFunc(ctx, w.Stop) // see attempt
	lw.awaitMark(w)
	return w, nil
}

const (
	// markWithin is how long a watch that begins with what is there may be silent before it
	// has said where that ends.
	markWithin = 15 * time.Second
	// mostUnmarked is how many such watches may end before that: connections break, too.
	mostUnmarked = 3
)

// awaitMark ends a watch on which nothing comes any more, and neither the mark for which
// client-go waits: the servers of some aggregated APIs take the option and do not know it.
func (lw *listWatch) awaitMark(w watch.Interface) {
	heard := lw.health.heard.Load()
	time.AfterFunc(markWithin, func() {
		switch {
		case !lw.initial.Load(): // it has come, or the watch is over
		case lw.health.heard.Load() != heard:
			lw.awaitMark(w)
		default:
			lw.isEndless()
			w.Stop()
		}
	})
}

// isEndless has what is there listed from now on.
func (lw *listWatch) isEndless() {
	if lw.endless.CompareAndSwap(false, true) {
		lw.log.Warn("the server does not say where the objects end with which a watch begins: they are listed from now on")
	}
}

// errEndless makes the Reflector list, as it does where a server refuses such a watch.
var errEndless = errors.New("the server does not say where its first objects end")

// errResume makes the Reflector fall back from a watch with initial events to a list,
// for this once: the list is where a resumption begins.
var errResume = errors.New("resuming from a stored version")

// goOn goes on watching from a version.
func (lw *listWatch) goOn(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !lw.initial.Swap(false) {
		lw.unmarked = 0
	}
	lw.health.ended(nil)
	if o.ResourceVersion == "" && !lw.fresh {
		// What was deleted since the last watch is told by a list alone.
		lw.mustList(listUnversioned)
		return nil, apierrors.NewResourceExpired("the server gives lists no version with which a watch could go on")
	}
	lw.fresh = false
	lw.lookAtEnd()
	if err := lw.probe(ctx, o.ResourceVersion); err != nil {
		return nil, lw.failed(ctx, "watch", err)
	}
	w, err := lw.open(ctx, o)
	if err != nil {
		return nil, lw.failed(ctx, "watch", err)
	}
	lw.accepted(&o)
	return w, nil
}

// open asks for a watch.
func (lw *listWatch) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	seen := &observed{heard: &lw.health.heard, silent: lw.onSilence}
	w, err := lw.request(o).Watch(observe(ctx, seen))
	if err == nil && seen.failed != nil {
		// client-go answers with an empty watch where a connection breaks or times out.
		w.Stop()
		return nil, seen.failed
	}
	return w, err
}

// onSilence sees each watch that is ended because nothing comes on it any more.
func (lw *listWatch) onSilence() {
	lw.silent.Inc()
	lw.doubt.raise(true)
}

// accepted notes that the server has accepted a watch.
func (lw *listWatch) accepted(o *metav1.ListOptions) {
	lw.health.accepted()
	lw.began, lw.lasts = time.Now(), 0
	if o.TimeoutSeconds != nil {
		lw.lasts = time.Duration(*o.TimeoutSeconds) * time.Second
	}
}

// How much before and after the time for which it was asked a watch may end. The server
// counts from when it has the request, so that here none ends before; an end may be long on
// its way.
const (
	endsEarly = 500 * time.Millisecond
	endsLate  = 5 * time.Second
)

// lookAtEnd raises a doubt where the last watch has not ended as it was to: the server was
// restarted, or this process was paused.
func (lw *listWatch) lookAtEnd() {
	if lw.began.IsZero() {
		return
	}
	if lasted := time.Since(lw.began); lasted < lw.lasts-endsEarly || lasted > lw.lasts+endsLate {
		lw.doubt.raise(false)
	}
	lw.began = time.Time{}
}

// beginList returns why a list begins, and sees to its version: a list is compared
// with the index, so it must not be older than what the index knows. Version 0
// allows any age; the empty one is the newest there is.
func (lw *listWatch) beginList(o *metav1.ListOptions) (reason string) {
	reason = lw.reason.Swap(listFailed).(string)
	lw.fresh = true
	if o.ResourceVersion == "0" || reason == listBehind || reason == listDiffers {
		o.ResourceVersion = ""
		if o.SendInitialEvents == nil {
			o.ResourceVersionMatch = ""
		}
	}
	return reason
}

func (lw *listWatch) countList(reason string) {
	lw.lists[reason].Inc()
	lw.tally.listed(reason)
}

// probe fails as expired where the server is older than version: an etcd restored
// from a backup. A watch from a version of the future neither fails nor delivers.
func (lw *listWatch) probe(ctx context.Context, version string) error {
	if version == "" || version == "0" {
		return nil
	}
	if err := lw.cluster.sameCluster(ctx); err != nil {
		return err
	}
	obj, err := lw.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("compare versions before the watch: %w", err)
	}
	list := obj.(*objectList)
	for _, o := range list.Items {
		o.Aside.Release() // nobody asked for it
	}
	newest := list.ResourceVersion
	if lw.view.resumes {
		lw.view.resumes = false
		lw.view.handler.Resumes(newest)
	}
	if c, err := resourceversion.CompareResourceVersion(version, newest); err != nil || c <= 0 {
		return nil // err: opaque versions, which nothing can be said of
	}
	lw.log.Warn("the server is older than what was seen of it, perhaps restored from a backup: listing anew",
		"seen", version, "server", newest)
	lw.mustList(listBehind)
	lw.view.otherHistory.Store(true)
	return apierrors.NewResourceExpired(fmt.Sprintf("version %s is ahead of the server's %s", version, newest))
}

func (lw *listWatch) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	obj, err := lw.request(o).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	if _, ok := obj.(*objectList); !ok {
		return nil, fmt.Errorf("the server answered a list with %T", obj)
	}
	return obj, nil
}

func (lw *listWatch) request(o metav1.ListOptions) *rest.Request {
	return lw.send(lw.served.Load().watched, o)
}

func (lw *listWatch) send(client rest.Interface, o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = lw.labelSelector, lw.fieldSelector
	// client-go's own retries wait for as long as a server says, ten times, and tell nobody.
	return client.Get().
		MaxRetries(0).
		NamespaceIfScoped(lw.namespace, lw.namespace != "").
		Resource(lw.served.Load().Resource).
		VersionedParams(&o, metav1.ParameterCodec)
}

// failed notes an error on its way to the Reflector, which keeps its type. Where the server
// says how long to wait before it is asked again, it waits.
func (lw *listWatch) failed(ctx context.Context, verb string, err error) error {
	if lw.counted(ctx, verb, err); ctx.Err() != nil || isExpired(err) {
		return err // where a history has expired a list follows
	}
	lw.health.failed(err)
	if seconds, says := apierrors.SuggestsClientDelay(err); says {
		sleep(ctx, min(time.Duration(seconds)*time.Second, time.Duration(pauseLimit)))
	}
	return err
}

// counted counts a request that failed.
func (lw *listWatch) counted(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	if !isAnswer(err) {
		lw.doubt.raise(true)
		lw.cluster.unanswered()
	}
	lw.note(err)
	lw.log.Debug("request failed", "verb", verb, "err", err)
}

// isExpired says that the server has forgotten the version that was asked for.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// isAnswer says that an error is what an API server has answered, and not a sign that
// there was none.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return status.Status().Code/100 == 4 && !apierrors.IsUnexpectedServerError(err)
}
