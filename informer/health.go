package informer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reason is why a watch does not go on, in a word, as kbridge_watches_down has it.
type Reason string

// The reasons. Each is mended in a place of its own.
const (
	Forbidden    Reason = "forbidden"    // 403: no role allows it
	Unauthorized Reason = "unauthorized" // 401: the server does not know the credentials
	NotServed    Reason = "notServed"    // 404: the server has no such resource or version (any more)
	Untrusted    Reason = "untrusted"    // the server's certificate is of no authority that is known
	Unreachable  Reason = "unreachable"  // no connection, or one that broke
	Overloaded   Reason = "overloaded"   // 429, 503 and 504
	Silent       Reason = "silent"       // a connection on which no answer comes
	Unreadable   Reason = "unreadable"   // what the server sends can not be decoded
	Failed       Reason = "failed"       // anything else
)

// Reasons are all there are.
var Reasons = []Reason{Forbidden, Unauthorized, NotServed, Untrusted, Unreachable, Overloaded, Silent, Unreadable, Failed}

// errUnreadable is wrapped by the errors of documents that can not be decoded.
var errUnreadable = errors.New("the server sent what can not be read")

// ReasonOf tells the reason from an error of a request to the API server.
func ReasonOf(err error) Reason {
	var netErr net.Error
	switch {
	case apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsUnauthorized(err):
		return Unauthorized
	case apierrors.IsNotFound(err), errors.Is(err, ErrNotServed):
		return NotServed
	case isUntrusted(err):
		return Untrusted
	case errors.Is(err, errSilent):
		return Silent
	case errors.Is(err, errUnreadable):
		return Unreadable
	case apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return Overloaded
	case errors.As(err, &netErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Unreachable
	}
	return Failed
}

// isUntrusted says that no TLS connection was made because of the server's certificate.
func isUntrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	return errors.As(err, &verification) || errors.As(err, &authority)
}

// WatchError is what Err returns of watches that do not go on.
type WatchError struct {
	Cause     error
	Since     time.Time
	Namespace string // of the one that is down for longest; empty: it is of all
	Others    int    // watches of the same entry that are down too
}

func (e *WatchError) Error() string {
	where := ""
	if e.Namespace != "" {
		where = " in namespace " + e.Namespace
		if e.Others > 0 {
			where = fmt.Sprintf("%s and %d more", where, e.Others)
		}
	}
	return fmt.Sprintf("cannot watch%s: %v, since %s", where, e.Cause, e.Since.Format(time.RFC3339))
}

func (e *WatchError) Unwrap() error { return e.Cause }

const (
	// overdue is for how long a watch that has been up may be down before it is a fault:
	// most go on at once.
	overdue = 30 * time.Second
	// loggedAfter is for how long it may be down before the log says so.
	loggedAfter = 10 * time.Second
	// settles is how long a watch has to last after a failure, unless something comes on it,
	// until it is up again: one that fails in the same way each time is not.
	settles = 5 * time.Second
)

var errUnanswered = fmt.Errorf("%w: a list or a watch was asked for, and is awaited", errSilent)

// health is whether a watch goes on, since when not, and what keeps it from that. Its
// list, its requests and the Reflector write it, each from its goroutine; any may read it.
type health struct {
	onLive func() // called once, when the watch has begun for the first time; it must not call back

	// clear says that there is nothing that a frame could prove.
	clear atomic.Bool
	heard atomic.Int64 // when the server was heard last, in nanoseconds

	mu      sync.Mutex
	begun   bool      // the first list was handed over, or the watch resumes
	live    bool      // it has begun, and has been up
	busy    bool      // a list is being handed over
	open    time.Time // when the server accepted the current watch; zero: there is none
	down    time.Time // since when it does not go on; zero: it does
	err     error     // what failed last since then; nil: nothing has
	told    Reason    // what the log has been told; empty: nothing
	toldAt  time.Time // since when it was down then
	toldErr error
}

func newHealth() *health { return &health{down: time.Now().UTC(), onLive: func() {}} }

// begins notes that the first list was handed over, or that the index of an earlier run
// stands for it.
func (h *health) begins() {
	h.update(func(time.Time) {
		h.begun = true
	})
}

// accepted notes that the server has accepted a watch.
func (h *health) accepted() {
	h.update(func(now time.Time) {
		h.open = now
		if h.err == nil {
			h.down = time.Time{}
		}
	})
}

// progress notes that something came on the watch and was handed over: it is up.
func (h *health) progress() {
	if h.clear.Load() {
		return // on the path of each event
	}
	h.update(func(time.Time) {
		if !h.open.IsZero() {
			h.down, h.err = time.Time{}, nil
		}
	})
}

// failed notes why a list or a watch failed.
func (h *health) failed(err error) {
	h.update(func(now time.Time) {
		h.end(now)
		h.err = err
	})
}

// ended notes that the watch has ended, as each does, and why where that is known and
// nothing else is.
func (h *health) ended(err error) {
	h.update(func(now time.Time) {
		if h.end(now); h.err == nil {
			h.err = err
		}
	})
}

func (h *health) end(now time.Time) {
	h.settle(now)
	h.open = time.Time{}
	if h.down.IsZero() {
		h.down = now
	}
}

// handsOver notes whether a list is being handed over, which takes as long as its sinks do.
func (h *health) handsOver(busy bool) {
	h.update(func(now time.Time) {
		h.busy = busy
		if !busy && !h.down.IsZero() && (h.err == nil || !h.live) {
			h.down, h.err = now, nil // the watch is awaited since now, and not since the list began
		}
	})
}

// settle takes a watch that has lasted for up. The lock is held.
func (h *health) settle(now time.Time) {
	if !h.open.IsZero() && !h.down.IsZero() && now.Sub(h.open) >= settles {
		h.down, h.err = time.Time{}, nil
	}
	h.clear.Store(h.down.IsZero())
	if !h.live && h.begun && h.down.IsZero() {
		h.live = true
		h.onLive()
	}
}

// update changes what is noted.
func (h *health) update(change func(now time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now().UTC()
	change(now)
	h.settle(now)
}

// is says that the watch goes on.
func (h *health) is() bool { return h.downSince().IsZero() }

// downSince is zero while it is up.
func (h *health) downSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle(time.Now())
	return h.down
}

// hasBegun says that the first list was handed over, or that the watch resumes.
func (h *health) hasBegun() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun
}

// isLive says that it has begun and has been up.
func (h *health) isLive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle(time.Now())
	return h.live
}

// problem is why the watch does not go on, and since when: at once where it has never been
// up, and else when it is overdue. Nil: it does, or it is on its way.
func (h *health) problem(now time.Time) (since time.Time, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle(now)
	switch {
	case h.down.IsZero(), h.live && now.Sub(h.down) < overdue:
		return time.Time{}, nil
	case h.err != nil:
		return h.down, h.err
	case h.busy, !h.open.IsZero(), now.Sub(h.down) < overdue:
		return time.Time{}, nil
	}
	return h.down, errUnanswered
}

// reason is why it is down now, or empty.
func (h *health) reason() Reason {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settle(time.Now()); h.down.IsZero() || h.err == nil {
		return ""
	}
	return ReasonOf(h.err)
}

// tell logs once why the watch does not go on, again where that changes, and once that it
// does. It is called now and then, so that a restart of the server makes no lines.
func (h *health) tell(now time.Time, log *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settle(now)
	switch {
	case h.down.IsZero() && h.told != "":
		log.Info("watching again", "after", now.Sub(h.toldAt).Round(time.Second), "was", h.toldErr)
		h.told = ""
	case h.down.IsZero(), h.err == nil, h.live && now.Sub(h.down) < loggedAfter, !h.open.IsZero(): // it may be up again
	case ReasonOf(h.err) != h.told:
		if h.told == "" {
			h.toldAt = h.down
		}
		h.told, h.toldErr = ReasonOf(h.err), h.err
		log.Warn("cannot watch, trying again", "reason", h.told, "since", h.down, "err", h.err)
	}
}

// oversee logs what of the watches does not go on, until ctx ends.
func oversee(ctx context.Context, watches []*watching) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			for _, w := range watches {
				w.requests.health.tell(now, w.log)
			}
		case <-ctx.Done():
			return
		}
	}
}

// watchError is the error of the watches that do not go on, or nil.
func watchError(watches []*watching, now time.Time) error {
	var worst *WatchError
	down := 0
	for _, w := range watches {
		since, cause := w.requests.health.problem(now)
		if cause == nil {
			continue
		}
		if down++; worst == nil || since.Before(worst.Since) {
			worst = &WatchError{Cause: cause, Since: since, Namespace: w.requests.namespace}
		}
	}
	if worst != nil {
		worst.Others = down - 1
		return worst
	}
	if slices.ContainsFunc(watches, func(w *watching) bool { return !w.requests.health.isLive() }) {
		return ErrNotListed
	}
	return nil
}
