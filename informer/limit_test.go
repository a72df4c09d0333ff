package informer

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kbridge-io/kbridge/internal/scriptedapi"
)

// endless is a stream whose first frame does not end.
type endless struct {
	begin string
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.begin)
	e.begin = e.begin[n:]
	for i := n; i < len(p); i++ {
		p[i] = 'x'
	}
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error { return nil }

func TestAFrameWithoutAnEndIsReadUpToTheLimit(t *testing.T) {
	for what, begin := range map[string]string{
		"first on the stream":  `{"type":"ADDED","object":{"data":"`,
		"behind others":        `{"type":"ADDED"}` + "\n" + `{"type":"ADDED"}` + "\n" + `{"type":"ADDED","object":{"data":"`,
		"not one line a frame": "{\n\"type\":\"ADDED\"}\n{\"type\":\"ADDED\",\n\"object\":{\"data\":\"",
	} {
		told := 0
		stream := &endless{begin: begin}
		reader := framer{max: 1 << 20, failed: func(err *tooLargeError) error { told++; return err }}.NewFrameReader(stream)
		buffer := make([]byte, 64)
		var err error
		for err == nil {
			_, err = reader.Read(buffer)
		}
		var large *tooLargeError
		if !errors.As(err, &large) || told != 1 {
			t.Errorf("%s: %v, told %d times", what, err, told)
		}
		if _, again := reader.Read(buffer); !errors.Is(again, err) || told != 1 {
			t.Errorf("%s: a second read gives %v, told %d times", what, again, told)
		}
		// Its buffer doubles.
		if stream.read > 3<<20 {
			t.Errorf("%s: %d bytes were read of it, where a frame may have %d", what, stream.read, 1<<20)
		}
	}
}

func TestAFrameThatIsAsLargeAsItMayBeIsTaken(t *testing.T) {
	frame := `{"data":"` + strings.Repeat("x", 1<<20)
	frame = frame[:1<<20-2] + `"}`
	for _, end := range []string{"\n", ""} {
		stream := []byte(frame + end + frame + end)
		max := 1<<20 + len(end)
		reader := framer{max: max, failed: func(err *tooLargeError) error { return err }}.NewFrameReader(io.NopCloser(bytes.NewReader(stream)))
		for range 2 {
			if n, err := reader.Read(make([]byte, 2<<20)); err != nil || n < 1<<20 {
				t.Errorf("a frame of %d bytes, ending with %q: %d, %v", len(frame), end, n, err)
			}
		}
	}
}

func TestWhatALargeFrameTookIsGivenBack(t *testing.T) {
	large, small := `{"data":"`+strings.Repeat("x", 8<<20)+"\"}\n", "{\"small\":1}\n"
	r := framer{max: DefaultMaxObject}.NewFrameReader(&chunks{[]byte(small + large + strings.Repeat(small, 10_000)), 8 << 10}).(*frameReader)
	read := func() string {
		t.Helper()
		var frame []byte
		p := make([]byte, 1<<20)
		for {
			n, err := r.Read(p)
			frame = append(frame, p[:n]...)
			if errors.Is(err, io.ErrShortBuffer) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			return string(frame)
		}
	}
	for i, want := range []string{small, large} {
		if got := read(); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("frame %d has %d bytes, want %d", i, len(got), len(want))
		}
	}
	if cap(r.buf) < 8<<20 {
		t.Fatalf("the large frame took %d bytes", cap(r.buf))
	}
	for range 5000 {
		if got := read(); strings.TrimSpace(got) != strings.TrimSpace(small) {
			t.Fatalf("a frame is %q", got)
		}
	}
	if cap(r.buf) > maxKept {
		t.Errorf("%d bytes are kept for frames of %d", cap(r.buf), len(small))
	}
}

func TestAFrameThatIsTooLargeIsCountedAndTheWatchBeginsAnew(t *testing.T) {
	bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { setup(api); twoObjects(api) }, func(b *bench) {
			b.recorder.take()
			known := b.stop()
			b.client.MaxObject = 64 << 10
			b.start(known, nil)
			b.rest()
			b.recorder.take()
			b.api.SendRaw(configMaps, []byte(`{"type":"ADDED","object":{"data":{"x":"`+strings.Repeat("x", 100<<10)))
			b.rest()
			if n := testutil.ToFloat64(b.metrics.tooLarge.WithLabelValues("configmaps", "configmaps")); n != 1 {
				t.Errorf("%v are counted, want 1", n)
			}
			if n := testutil.ToFloat64(b.metrics.errors.WithLabelValues("configmaps", "configmaps")); n == 0 {
				t.Error("no error is counted")
			}
			if last := b.informer.Status().LastError; last == nil || !strings.Contains(last.Text, "kubernetes.maxObject") {
				t.Errorf("the last error does not name the limit: %+v", last)
			}
			b.api.Create(configMaps, configMap("default", "c", nil))
			b.rest()
			b.expect("added default/c")
		})
	})
}

func TestAnObjectThatIsTooLargeInAListFailsItUntilItIsSmaller(t *testing.T) {
	for _, on := range []bool{true, false} {
		inBubble(t, selection(configMaps), func(api *scriptedapi.Server) { api.SetWatchList(on); twoObjects(api) }, func(b *bench) {
			b.recorder.take()
			b.stop()
			b.client.MaxObject = 64 << 10
			b.api.Create(configMaps, configMap("default", "large", map[string]any{"x": strings.Repeat("x", 100<<10)}))
			b.start(nil, nil)
			b.rest()
			if n := testutil.ToFloat64(b.metrics.tooLarge.WithLabelValues("configmaps", "configmaps")); n == 0 || b.informer.Err() == nil {
				t.Errorf("watchList=%t: %v are counted, Err = %v", on, n, b.informer.Err())
			}
			b.expectSet()
			b.api.Update(configMaps, "default", "large", func(o map[string]any) { o["data"] = map[string]any{} })
			b.rest()
			b.expectSet("added default/a", "added default/b", "added default/large")
			if err := b.informer.Err(); err != nil {
				t.Errorf("watchList=%t: %v", on, err)
			}
		})
	}
}

func TestAnErrorsBodyIsReadUpToALimitAndItsCodeIsKept(t *testing.T) {
	body := &endless{begin: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`}
	over := answers{roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden, Body: body, Header: http.Header{"Content-Type": {"application/json"}}}, nil
	})}
	api := scriptedapi.New()
	defer api.Close()
	config := api.Config()
	config.Transport, config.Dial, config.Proxy = over, nil, nil
	client, err := NewClient(config, 1000, 1000, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.ClusterUID(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("the error is %v", err)
	}
	if body.read > 2*maxError {
		t.Errorf("%d bytes were read of an error", body.read)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
