package scriptedapi

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// paceBytes is how much of an answer other than a watch goes out between two pauses of Fault.Pace.
const paceBytes = 1024

// body writes the body of an answer, as slowly and as far as the request's fault says. One handler uses it.
type body struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	ctx   context.Context // ends with the connection
	fault Fault

	sent   int // bytes of the body
	frames int
}

// json writes a whole answer.
func (b *body) json(data []byte) {
	b.w.Header().Set("Content-Type", "application/json")
	data = append(bytes.Clone(data), '\n')
	if b.fault.Pace == 0 {
		_ = b.write(data) // a client that has gone sees no error
		return
	}
	for len(data) > 0 {
		n := min(len(data), paceBytes)
		if !b.sleep(b.fault.Pace) || b.write(data[:n]) != nil || b.flush.Flush() != nil {
			return
		}
		data = data[n:]
	}
}

// frame writes and flushes one frame of a watch; false ends the watch.
func (b *body) frame(f frame) bool {
	if f.last || !b.sleep(b.fault.Pace) {
		return false
	}
	b.frames++
	if f.cut || b.frames == b.fault.CutInFrame {
		_ = b.write(f.data[:len(f.data)/2])
		b.abort()
	}
	return b.write(f.data) == nil && b.flush.Flush() == nil
}

func (b *body) write(data []byte) error {
	if limit := b.fault.CutAfter; limit > 0 && b.sent+len(data) >= limit {
		_, _ = b.w.Write(data[:limit-b.sent])
		b.abort()
	}
	n, err := b.w.Write(data)
	b.sent += n
	return err
}

// abort closes the connection behind what is written, without the end that HTTP gives a body.
func (b *body) abort() {
	_ = b.flush.Flush()
	panic(http.ErrAbortHandler)
}

// sleep returns false where the connection ended before the pause did.
func (b *body) sleep(d time.Duration) bool { return sleep(b.ctx, d) }

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
