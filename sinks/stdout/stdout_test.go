package stdout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
	"github.com/kbridge-io/kbridge/sinks/stdout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file is a writer that can be read back at any time, and told to fail.
type file struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	fail func(p []byte) (int, error) // nil: it does not
}

func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		n, err := f.fail(p)
		f.buf.Write(p[:n])
		return n, err
	}
	return f.buf.Write(p)
}

func (f *file) set(fail func(p []byte) (int, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *file) lines() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines [][]byte
	for line := range bytes.Lines(bytes.Clone(f.buf.Bytes())) {
		lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
	}
	return lines
}

func TestContract(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Harness {
		var f file
		return sinktest.Harness{Open: func() sinks.Sink { return stdout.Open("out", &f) }, Stored: f.lines}
	})
}

func newEvent(name string, size int) *event.Event {
	e := new(event.Event)
	sinktest.Pod(name, 1, size).Encode(e, event.Structured, nil)
	return e
}

// publish publishes one event and returns what done got.
func publish(t *testing.T, s *stdout.Sink, name string) error {
	t.Helper()
	ended := make(chan error, 1)
	s.Publish(t.Context(), newEvent(name, 300), func(err error) { ended <- err })
	select {
	case err := <-ended:
		return err
	case <-time.After(30 * time.Second):
		t.Fatal("done was not called")
		return nil
	}
}

func closeSink(t *testing.T, s *stdout.Sink) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close returned %v", err)
	}
}

func TestAfterATornWriteTheNextEventStartsALineOfItsOwn(t *testing.T) {
	var f file
	s := stdout.Open("out", &f)
	defer closeSink(t, s)
	f.set(func([]byte) (int, error) { return 7, syscall.ENOSPC })
	if err := publish(t, s, "a"); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, sinks.ErrPermanent) {
		t.Fatalf("done got %v, want a retryable ENOSPC", err)
	}
	if s.Err() == nil {
		t.Error("Err is nil after a write that failed")
	}
	f.set(nil)
	if err := publish(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	if s.Err() != nil {
		t.Errorf("Err is %v after a write that worked", s.Err())
	}
	lines := f.lines()
	if len(lines) != 2 || !json.Valid(lines[1]) {
		t.Errorf("lines are %q", lines)
	}
}

func TestOfAWriteThatEndsInTheMiddleTheWholeLinesAreAcknowledged(t *testing.T) {
	var f file
	first := newEvent("a", 300)
	begun, goOn := make(chan struct{}), make(chan struct{})
	f.fail = func(p []byte) (int, error) {
		f.fail = func(p []byte) (int, error) { return len(first.Value) + 11, syscall.ENOSPC }
		close(begun)
		<-goOn
		return len(p), nil
	}
	s := stdout.Open("out", &f)
	defer func() { f.set(nil); closeSink(t, s) }()
	var mu sync.Mutex
	var got []error
	var all sync.WaitGroup
	done := func(err error) { mu.Lock(); got = append(got, err); mu.Unlock(); all.Done() }
	all.Add(3)
	s.Publish(t.Context(), newEvent("warm-up", 300), done)
	<-begun // the two others share the next write
	s.Publish(t.Context(), first, done)
	s.Publish(t.Context(), newEvent("b", 300), done)
	close(goOn)
	all.Wait()
	if got[0] != nil || got[1] != nil || !errors.Is(got[2], syscall.ENOSPC) {
		t.Errorf("done got %v, want nil, nil and ENOSPC", got)
	}
}

func TestAReaderThatGoesEndsTheSink(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	s := stdout.Open("out", w)
	defer closeSink(t, s)
	if err := publish(t, s, "a"); !errors.Is(err, stdout.ErrReaderGone) {
		t.Errorf("done got %v, want ErrReaderGone", err)
	}
	<-s.Gone()
	if err := publish(t, s, "b"); !errors.Is(err, stdout.ErrReaderGone) {
		t.Errorf("done got %v for a later event, want ErrReaderGone", err)
	}
	if !errors.Is(s.Err(), stdout.ErrReaderGone) {
		t.Errorf("Err is %v", s.Err())
	}
}

func TestASlowReaderHoldsPublishAndCloseOnlyAsLongAsTheirContexts(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	s := stdout.Open("out", w)
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil {
		all.Add(1)
		s.Publish(ctx, newEvent("a", 64<<10), func(error) { all.Done() })
	}
	began := time.Now()
	s.Close(ctx)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v after its context had ended", took)
	}
	all.Wait()
}

func TestAnEventThatEndsWhileCloseGivesUpEndsOnce(t *testing.T) {
	var f file
	f.fail = func(p []byte) (int, error) { return len(p), nil }
	s := stdout.Open("out", &f)
	inDone, closed := make(chan struct{}), make(chan struct{})
	s.Publish(t.Context(), newEvent("a", 300), func(error) {
		close(inDone)
		<-closed
	})
	<-inDone
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(ctx) // would close inDone again
	close(closed)
}

func TestAnEventIsWrittenWithoutAnotherOneComing(t *testing.T) {
	r, w := io.Pipe()
	s := stdout.Open("out", w)
	defer closeSink(t, s)
	s.Publish(t.Context(), newEvent("a", 300), func(error) {})
	if _, err := r.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	r.Close()
}

func BenchmarkDevNull(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	s := stdout.Open("out", null)
	e := newEvent("a", 4096)
	var all sync.WaitGroup
	done := func(error) { all.Done() }
	b.ReportAllocs()
	b.SetBytes(int64(len(e.Value)))
	for b.Loop() {
		all.Add(1)
		s.Publish(b.Context(), e, done)
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	s.Close(context.Background())
}

func TestADocumentOverSeveralLinesIsPrintedOnOne(t *testing.T) {
	var out bytes.Buffer
	s := stdout.Open("out", &out)
	acknowledged := make(chan error, 1)
	s.Publish(t.Context(), &event.Event{Value: []byte("{\n  \"a\": \"b c\",\r\n  \"d\": [1,\n2]\n}")}, func(err error) { acknowledged <- err })
	if err := <-acknowledged; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), `{  "a": "b c",  "d": [1,2]}`+"\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
