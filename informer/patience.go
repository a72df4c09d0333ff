package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// errSilent is wrapped by the error of a request that was ended because nothing came.
var errSilent = errors.New("the server is silent")

const (
	// answerWithin is how long a request other than a watch may wait for its answer, or for
	// more of it. An API server gives up on one after a minute by default.
	answerWithin = 75 * time.Second
	// watchWithin is for how long a watch may outlive the time that it was asked for, while
	// nothing comes on it.
	watchWithin = 30 * time.Second
)

// patient ends requests on which nothing comes any more: a server that hangs, or a
// middlebox that has forgotten the connection, answers the pings of HTTP/2 or needs none.
type patient struct{ http.RoundTripper }

// WrappedRoundTripper lets client-go find what is inside.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }

// observed is what of a request its sender learns beside the answer.
type observed struct {
	heard  *atomic.Int64 // when something came last, in nanoseconds
	silent func()        // called when the request is ended for its silence
	failed error         // what the round trip failed with, which client-go may hide
}

type observedKey struct{}

// observe has the requests of the context observed.
func observe(ctx context.Context, o *observed) context.Context {
	return context.WithValue(ctx, observedKey{}, o)
}

// RoundTrip implements http.RoundTripper.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	sender, _ := r.Context().Value(observedKey{}).(*observed)
	if sender == nil {
		sender = &observed{}
	}
	ctx, end := context.WithCancelCause(r.Context())
	b := &heardBody{sender: sender, ctx: ctx, end: end, within: answerWithin}
	first := answerWithin
	if isWatch(r) {
		b.within = watchWithin
		first = watchTimeout(r) + watchWithin
	}
	b.waits.Store(time.Now().UnixNano())
	b.timer = time.AfterFunc(first, b.look)
	response, err := p.RoundTripper.RoundTrip(r.WithContext(ctx))
	b.waits.Store(0)
	if err != nil {
		b.closed.Store(true)
		b.timer.Stop()
		sender.failed = b.because(err)
		end(nil)
		return nil, sender.failed
	}
	b.hear()
	b.ReadCloser = response.Body
	response.Body = b
	return response, nil
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// watchTimeout is for how long a watch was asked for.
func watchTimeout(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		return time.Hour // the server decides; no API server takes longer by default
	}
	return time.Duration(seconds) * time.Second
}

// heardBody is a body whose reads are looked after.
type heardBody struct {
	io.ReadCloser
	sender *observed
	ctx    context.Context
	end    context.CancelCauseFunc
	within time.Duration
	waits  atomic.Int64 // since when a read waits, in nanoseconds; 0: none does
	closed atomic.Bool
	timer  *time.Timer
}

// look ends the request where a read waits for too long. One that nobody makes, as the
// reader has no room, is no silence of the server's.
func (b *heardBody) look() {
	if b.closed.Load() {
		return
	}
	since := b.waits.Load()
	left := b.within
	if since != 0 {
		left -= time.Since(time.Unix(0, since))
	}
	if left > 0 {
		b.timer.Reset(left)
		return
	}
	if b.sender.silent != nil {
		b.sender.silent()
	}
	b.end(fmt.Errorf("%w: nothing has come for %s", errSilent, time.Since(time.Unix(0, since)).Round(time.Second)))
}

// because is the error, or the silence for which the request was ended.
func (b *heardBody) because(err error) error {
	if cause := context.Cause(b.ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

func (b *heardBody) hear() {
	if b.sender.heard != nil {
		b.sender.heard.Store(time.Now().UnixNano())
	}
}

// Read implements io.Reader.
func (b *heardBody) Read(p []byte) (int, error) {
	b.waits.Store(time.Now().UnixNano())
	n, err := b.ReadCloser.Read(p)
	b.waits.Store(0)
	if n > 0 {
		b.hear()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.because(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *heardBody) Close() error {
	b.closed.Store(true)
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}
