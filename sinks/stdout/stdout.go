// Package stdout owns the way of events onto a stream of bytes, one JSON document
// a line. It has no settings; retries are left to the lanes of package bridge.
//
// Only structured events make sense here: a line of binary format would be an
// object without its event. The configuration refuses that combination.
package stdout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// bufferSize bounds what waits for the writer, in bytes; twice that is held while
// a write is under way. One larger event passes alone.
const bufferSize = 1 << 20

// ErrReaderGone says that nobody reads the output any more. It does not pass: the
// process should end.
var ErrReaderGone = errors.New("the reader of the output is gone")

// Sink writes events to a writer. An event is acknowledged when Write has taken
// all of its line.
//
// There is no linger: a goroutine writes as soon as there is something to write,
// and what comes during a write goes out with the next one. So a single event
// leaves at once, and many share a call.
type Sink struct {
	name string
	w    io.Writer

	ready   chan struct{} // has a token when there is something to write, or closing
	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when write has returned
	gone    chan struct{} // closed when the reader is gone

	mu      sync.Mutex // guards what follows
	filling batch      // what the next write takes
	writing batch      // what the current one has; its bytes are the writer's alone
	room    chan struct{}
	err     error // of the last write
	closed  bool
	torn    bool // the last write ended within a line
}

// batch is some lines and who waits for them.
type batch struct {
	buf  []byte
	ends []end
}

// end is where in the batch an event's line ends.
type end struct {
	offset int
	done   func(error)
}

var _ sinks.Sink = (*Sink)(nil)

// Open starts a sink on the writer, which is not closed with it.
//
// Where w is os.Stdout, the process must handle or ignore SIGPIPE: by default the
// runtime ends it when the reader goes, before ErrReaderGone can be told.
func Open(name string, w io.Writer) *Sink {
	s := &Sink{
		name: name, w: w,
		ready: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
		gone: make(chan struct{}), room: make(chan struct{}, 1),
	}
	go func() {
		defer close(s.ended)
		s.write()
	}()
	return s
}

// Name returns the sink's name in the configuration.
func (s *Sink) Name() string { return s.name }

// Publish adds the event's line to what is written next. It waits while that is
// full.
func (s *Sink) Publish(ctx context.Context, e *event.Event, done func(error)) {
	size := len(e.Value) + 1
	for {
		s.mu.Lock()
		if err := s.refusal(); err != nil {
			s.mu.Unlock()
			done(err)
			return
		}
		b := &s.filling
		if len(b.buf) == 0 || len(b.buf)+size <= bufferSize {
			b.buf = append(appendLine(b.buf, e.Value), '\n')
			b.ends = append(b.ends, end{len(b.buf), done})
			s.mu.Unlock()
			signal(s.ready)
			return
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-s.closing:
		case <-s.gone:
		case <-ctx.Done():
			done(fmt.Errorf("publish: %w", ctx.Err()))
			return
		}
	}
}

// appendLine appends a JSON document without its line feeds, which stand between its
// tokens where a server does not write compactly.
func appendLine(dst, document []byte) []byte {
	if bytes.IndexByte(document, '\n') < 0 {
		return append(dst, document...)
	}
	for line := range bytes.Lines(document) {
		dst = append(dst, bytes.TrimRight(line, "\r\n")...)
	}
	return dst
}

// refusal says why no event is taken. The caller holds mu.
func (s *Sink) refusal() error {
	switch {
	case s.closed:
		return sinks.ErrClosed
	case errors.Is(s.err, ErrReaderGone):
		return s.err
	}
	return nil
}

// Err returns the error of the last write, nil if it had none.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Gone is closed when nobody reads the output any more, and Err wraps ErrReaderGone.
func (s *Sink) Gone() <-chan struct{} { return s.gone }

// Close writes what is there, within ctx. A writer that does not take it by then
// is left alone: its events get sinks.ErrClosed, though they may still be written.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	signal(s.ready)
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
	}
	if w, ok := s.w.(interface{ SetWriteDeadline(time.Time) error }); ok && w.SetWriteDeadline(time.Unix(1, 0)) == nil {
		select { // a pipe's write gives up
		case <-s.ended:
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	s.mu.Lock()
	ends := slices.Concat(s.writing.ends, s.filling.ends)
	s.writing.ends, s.filling = nil, batch{}
	s.mu.Unlock()
	for _, e := range ends {
		e.done(sinks.ErrClosed)
	}
	return fmt.Errorf("close sink %s: %w", s.name, ctx.Err())
}

// write is the goroutine that writes. Two batches take turns, so that none is made
// anew: one is filled while the other is written.
func (s *Sink) write() {
	for range s.ready {
		s.mu.Lock()
		s.filling, s.writing = batch{s.writing.buf[:0], s.writing.ends[:0]}, s.filling
		buf, torn, closed := s.writing.buf, s.torn, s.closed
		s.mu.Unlock()
		signal(s.room)

		if len(buf) > 0 {
			n, err := s.writeAll(buf, torn)
			s.finish(n, err)
		}
		if closed {
			return // nothing was added after closed was set
		}
	}
}

// writeAll returns how much of buf was written. After a torn line it first ends
// that one.
func (s *Sink) writeAll(buf []byte, torn bool) (int, error) {
	if torn {
		if _, err := s.w.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
		s.mu.Lock()
		s.torn = false
		s.mu.Unlock()
	}
	n, err := s.w.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	return n, err
}

// finish ends the events of the batch that was written up to n.
func (s *Sink) finish(n int, err error) {
	if err != nil {
		err = fmt.Errorf("write event: %w", err)
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
			err = fmt.Errorf("%w: %w", ErrReaderGone, err)
		}
	}
	s.mu.Lock()
	ends := s.writing.ends
	s.writing.ends = ends[:0] // ours now: Close must not end them too
	whole := 0                // events whose line was written
	for whole < len(ends) && ends[whole].offset <= n {
		whole++
	}
	if err != nil && n > 0 {
		s.torn = whole == 0 || ends[whole-1].offset < n
	}
	news := errors.Is(err, ErrReaderGone) && !errors.Is(s.err, ErrReaderGone)
	s.err = err
	s.mu.Unlock()
	if news {
		close(s.gone)
	}
	for i, e := range ends {
		if i < whole {
			e.done(nil)
		} else {
			e.done(err)
		}
		ends[i].done = nil
	}
	if cap(s.writing.buf) > 2*bufferSize {
		s.writing.buf = nil // of one huge event
	}
}

// signal puts a token into a channel of one, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
