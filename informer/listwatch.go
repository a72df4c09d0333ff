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
)

var listReasons = []string{listStart, listExpired, listBehind, listDiffers, listFailed}

// listWatch sends the requests of one Reflector. It is what knows why a list
// became necessary: a 410 inside a stream calls no handler of the Reflector's.
type listWatch struct {
	client                       rest.Interface
	plain                        rest.Interface // of which nothing is observed
	cluster                      *Client
	target                       target
	namespace                    string
	labelSelector, fieldSelector string
	lists                        map[string]prometheus.Counter // by reason
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
	began time.Time
	lasts time.Duration
	up    *uptime // a watch goes on
	doubt *doubt
	// refused is what is not allowed, nil once a watch is. A watch that may list and not
	// watch begins like any other, and then sees no change.
	refused atomic.Pointer[error]
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
	lw.log.Warn("the server sent what can not be read, asking again", "err", err)
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
	if lw.view.resume != "" {
		return nil, errResume
	}
	if err := lw.cluster.sameCluster(ctx); err != nil {
		return nil, lw.failed(ctx, "watch", err)
	}
	reason := lw.beginList(&o)
	lw.initial.Store(true)
	w, err := lw.request(o).Watch(ctx)
	if err != nil {
		// The Reflector tries again, or with a list where the server can not do it: the
		// reason is still the same, unless the error is one.
		lw.reason.CompareAndSwap(listFailed, reason)
		return nil, lw.failed(ctx, "watch", err)
	}
	lw.countList(reason)
	lw.accepted(&o)
	context.AfterFunc(ctx, w.Stop) // see attempt
	return w, nil
}

// errResume makes the Reflector fall back from a watch with initial events to a list,
// for this once: the list is where a resumption begins.
var errResume = errors.New("resuming from a stored version")

// goOn goes on watching from a version.
func (lw *listWatch) goOn(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	lw.initial.Store(false)
	lw.up.set(false)
	lw.lookAtEnd()
	if err := lw.probe(ctx, o.ResourceVersion); err != nil {
		return nil, lw.failed(ctx, "watch", err)
	}
	w, err := lw.request(o).Watch(ctx)
	if err != nil {
		return nil, lw.failed(ctx, "watch", err)
	}
	lw.accepted(&o)
	return w, nil
}

// accepted notes that the server has accepted a watch.
func (lw *listWatch) accepted(o *metav1.ListOptions) {
	lw.up.set(true)
	lw.refused.Store(nil)
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

func (lw *listWatch) request(o metav1.ListOptions) *rest.Request { return lw.send(lw.client, o) }

func (lw *listWatch) send(client rest.Interface, o metav1.ListOptions) *rest.Request {
	o.LabelSelector, o.FieldSelector = lw.labelSelector, lw.fieldSelector
	return client.Get().
		NamespaceIfScoped(lw.namespace, lw.namespace != "").
		Resource(lw.target.Resource).
		VersionedParams(&o, metav1.ParameterCodec)
}

// failed counts an error on its way to the Reflector, which keeps its type.
func (lw *listWatch) failed(ctx context.Context, verb string, err error) error {
	if apierrors.IsForbidden(err) {
		lw.refused.Store(&err)
	}
	if ctx.Err() == nil {
		if !isAnswer(err) {
			lw.doubt.raise(true)
		}
		lw.note(err)
		lw.log.Debug("request failed", "verb", verb, "err", err)
	}
	return err
}

// isAnswer says that an error is what an API server has answered, and not a sign that
// there was none.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	return status.Status().Code/100 == 4 && !apierrors.IsUnexpectedServerError(err)
}
