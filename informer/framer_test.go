package informer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"

	"github.com/kbridge-io/kbridge/informer/scan"
)

// chunks is a stream that arrives in pieces of a given size.
type chunks struct {
	data []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.data[:min(c.size, len(c.data))])
	c.data = c.data[n:]
	return n, nil
}

func (c *chunks) Close() error { return nil }

// readFrames reads all frames of a stream through a caller's buffer of a given size.
func readFrames(r io.ReadCloser, buffer int) ([]string, error) {
	reader := framer{max: DefaultMaxObject}.NewFrameReader(r)
	var frames []string
	for {
		var frame []byte
		for {
			p := make([]byte, buffer)
			n, err := reader.Read(p)
			frame = append(frame, p[:n]...)
			if errors.Is(err, io.ErrShortBuffer) {
				continue
			}
			if err != nil {
				return frames, err
			}
			break
		}
		frames = append(frames, strings.TrimSpace(string(frame)))
	}
}

func TestFramesAreTheDocumentsHoweverTheyAreSeparatedAndArrive(t *testing.T) {
	documents := []string{`{"a":"}\n{\\"}`, `{"b":{"c":[1,2,{"d":"\""}]}}`, "{\n \"e\": {\n  \"f\": 1\n }\n}", `{}`, `{"g":"` + strings.Repeat("x", 5000) + `"}`}
	for _, separator := range []string{"\n", "\r\n", "", " ", "\n\n", "\n  \n"} {
		for _, size := range []int{1, 2, 7, 100, 1 << 20} {
			for _, first := range []int{0, 2} { // a stream that begins on one line, and one that does not
				order := append(append([]string{}, documents[first:]...), documents[:first]...)
				if first == 0 && strings.Contains(separator, "\n") {
					order = append(order[:2:2], order[3:]...) // a line a document, as it began
				}
				stream := strings.Join(order, separator) + separator
				got, err := readFrames(&chunks{[]byte(stream), size}, 64)
				if !errors.Is(err, io.EOF) {
					t.Fatalf("separator %q, pieces of %d: %v", separator, size, err)
				}
				if fmt.Sprint(got) != fmt.Sprint(order) {
					t.Errorf("separator %q, pieces of %d:\n got %q\nwant %q", separator, size, got, order)
				}
			}
		}
	}
}

func TestAStreamThatEndsInsideAFrameEndsUnexpectedly(t *testing.T) {
	for _, stream := range []string{`{"a":`, "{}\n{\"a\":1", "{}\n{}\n{"} {
		if _, err := readFrames(&chunks{[]byte(stream), 3}, 64); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v, want unexpected EOF", stream, err)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n{\"b\":2}\n"), 3)
	f.Add([]byte("{\n}\n{}{} {}"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if size < 1 || size > 1<<20 {
			return
		}
		// Whatever comes, reading ends, and for documents a line each encoding/json agrees.
		got, err := readFrames(&chunks{bytes.Clone(stream), size}, 64)
		if err == nil {
			t.Fatal("no end")
		}
		lines := strings.Split(strings.TrimSuffix(string(stream), "\n"), "\n")
		for _, line := range lines {
			if !json.Valid([]byte(line)) || !strings.HasPrefix(line, "{") {
				return
			}
		}
		if !bytes.HasSuffix(stream, []byte("\n")) {
			return
		}
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", lines) {
			t.Errorf("frames %q, want %q", got, lines)
		}
	})
}

// pod is about what a small one looks like, managedFields and all.
func pod(managed int) []byte {
	fields := strings.Repeat(`"f:key":{".":{},"f:name":{}},`, managed)
	return []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1","namespace":"shop","uid":"6a04db51-f519-4deb-b29b-288aa52db18d","resourceVersion":"1042","managedFields":[{"manager":"kubelet","fieldsV1":{` +
		fields + `"f:x":{}}}]},"spec":{"containers":[{"name":"c","image":"registry.example/app:1"}]},"status":{"phase":"Running","message":"` + strings.Repeat("m", 2000) + `"}}`)
}

// decodeStream decodes a stream as client-go's watch does.
func decodeStream(tb testing.TB, stream []byte) (decode func() (*object, error)) {
	tb.Helper()
	t := target{Version: "v1", Resource: "pods", Kind: "Pod"}
	rules, err := scan.New(scan.Options{APIVersion: "v1", Kind: "Pod", Drop: [][]string{{"metadata", "managedFields"}}})
	if err != nil {
		tb.Fatal(err)
	}
	negotiated, err := newCodec(t, rules, &packer{}, DefaultMaxObject, nil, observer{initial: &atomic.Bool{}})
	if err != nil {
		tb.Fatal(err)
	}
	info := negotiated.SupportedMediaTypes()[0]
	frames := streaming.NewDecoder(info.StreamSerializer.NewFrameReader(io.NopCloser(bytes.NewReader(stream))), info.StreamSerializer.Serializer)
	return func() (*object, error) {
		var got metav1.WatchEvent
		if _, _, err := frames.Decode(nil, &got); err != nil {
			return nil, err
		}
		o, err := runtime.Decode(info.Serializer, got.Object.Raw)
		if err != nil {
			return nil, err
		}
		o.(*object).release() // it has been handed over
		return o.(*object), nil
	}
}

func watchStream(events int) []byte {
	var b bytes.Buffer
	for range events {
		b.WriteString(`{"type":"MODIFIED","object":`)
		b.Write(pod(80))
		b.WriteString("}\n")
	}
	return b.Bytes()
}

func TestDecodingAWatchEventTakesFewAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector pools forget on purpose")
	}
	const events = 1000
	decode := decodeStream(t, watchStream(events+1))
	got := testing.AllocsPerRun(events, func() {
		if _, err := decode(); err != nil {
			t.Fatal(err)
		}
	})
	// The WatchEvent, the object, its bytes, its metadata.
	if got > 4 {
		t.Errorf("%v allocations an event, want at most 4", got)
	}
}

func BenchmarkDecodeWatchEvent(b *testing.B) {
	stream := watchStream(1000)
	b.SetBytes(int64(len(stream) / 1000))
	b.ReportAllocs()
	decode := decodeStream(b, stream)
	for i := 0; b.Loop(); i++ {
		if i%1000 == 0 {
			decode = decodeStream(b, stream)
		}
		if _, err := decode(); err != nil {
			b.Fatal(err)
		}
	}
}
