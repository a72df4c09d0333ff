package informer

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kbridge-io/kbridge/informer/scan"
)

// framer cuts a watch stream into frames, one JSON document each. The API server
// writes a document a line, without a line feed inside; where a server does not
// (aggregated ones may), the document's end is found by its brackets.
type framer struct {
	max    int                        // bytes of a frame
	failed func(*tooLargeError) error // told of one that has more; what it returns ends the stream
}

var _ runtime.Framer = framer{}

func (f framer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &frameReader{framer: f, source: r}
}

func (framer) NewFrameWriter(io.Writer) io.Writer { panic("BUG: " + errReadOnly.Error()) }

// readSize is how much is asked of the stream at once, in bytes.
const readSize = 32 << 10

// maxKept is the size of a buffer in bytes up to which it is kept for the next frames.
const maxKept = 1 << 20

// frameReader is read by one goroutine, client-go's stream decoder.
type frameReader struct {
	framer
	source  io.ReadCloser
	buf     []byte // what was read; buf[at:] has not been handed out
	at      int
	pending []byte // the rest of a frame that was longer than the caller's buffer
	ends    scan.Framer
	lines   bool  // the stream has shown itself to be one document a line
	err     error // of a frame that is too large, after which nothing is read
}

// Read hands out one frame, as client-go's stream decoder asks for it: a frame
// that does not fit into p comes in parts, all but the last with io.ErrShortBuffer.
func (r *frameReader) Read(p []byte) (int, error) {
	if len(r.pending) == 0 {
		frame, err := r.next()
		if err != nil {
			return 0, err
		}
		r.pending = frame
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	if len(r.pending) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}

func (r *frameReader) Close() error { return r.source.Close() }

// next returns the next document, which stays valid until the next call.
func (r *frameReader) next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	for searched := 0; ; { // bytes of the frame known to hold no line feed
		unread := r.buf[r.at:]
		var end int
		if r.lines {
			end = bytes.IndexByte(unread[searched:], '\n')
			if end >= 0 {
				end += searched + 1
			}
		} else {
			end = r.ends.End(unread)
		}
		if end > r.max || end < 0 && len(unread) > r.max {
			r.buf, r.at = nil, 0
			r.err = r.failed(&tooLargeError{"a watch frame", r.max})
			return nil, r.err
		}
		if end >= 0 {
			r.at += end
			if len(bytes.TrimSpace(unread[:end])) == 0 {
				searched = 0
				continue // an empty line
			}
			if !r.lines {
				// One document without a line feed inside and with one behind it: so are all.
				r.lines = end < len(unread) && unread[end] == '\n' && bytes.IndexByte(bytes.TrimLeft(unread[:end], "\r\n"), '\n') < 0
			}
			return unread[:end], nil
		}
		searched = len(unread)
		if err := r.fill(); err != nil {
			if errors.Is(err, io.EOF) && len(bytes.TrimSpace(r.buf[r.at:])) > 0 {
				return nil, io.ErrUnexpectedEOF // cut in the middle of a frame
			}
			return nil, err
		}
	}
}

// fill reads more behind what is there, making room for it.
func (r *frameReader) fill() error {
	if rest := r.buf[r.at:]; cap(r.buf) > maxKept && len(rest) <= maxKept/2 {
		// Large frames are few: what they took is not kept.
		r.buf = append(make([]byte, 0, len(rest)+readSize), rest...)
		r.at = 0
	} else if r.at > 0 {
		r.buf = r.buf[:copy(r.buf, rest)]
		r.at = 0
	}
	r.buf = slices.Grow(r.buf, readSize)
	n, err := r.source.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil // an error comes again with the next read
	}
	return err
}
