package main

import (
	"context"
	"io"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
)

// source is a stream of changes.
type source interface {
	// write writes all of them; flush hands on what was written.
	write(ctx context.Context, w io.Writer, flush func() error) (bytes int64, err error)
}

// chunk is how much goes into one write of a burst, in bytes: large enough that the
// server's HTTP library costs little.
const chunk = 256 << 10

// burst is changes whose frames are made, as bytes in chunks of whole frames.
type burst struct{ chunks [][]byte }

// newBurst makes the frames. The caller holds the server's mu. The objects have their
// new versions from now on, and the bench sends the burst before anybody lists again.
func newBurst(s *server, c control.Changes) *burst {
	b := &burst{}
	over := c.Objects
	if over <= 0 || over > len(s.versions) {
		over = len(s.versions)
	}
	var current []byte
	for k := range c.Count {
		if cap(current)-len(current) < chunk/8 { // a frame is never so large
			if len(current) > 0 {
				b.chunks = append(b.chunks, current)
			}
			current = make([]byte, 0, chunk)
		}
		i := next(k, over)
		s.newest++
		s.versions[i].Store(s.newest)
		current = s.kind.AppendFrame(current, "MODIFIED", objects.State{Index: i, Version: s.newest})
	}
	b.chunks = append(b.chunks, current)
	return b
}

func (b *burst) write(_ context.Context, w io.Writer, flush func() error) (bytes int64, err error) {
	for _, c := range b.chunks {
		n, err := w.Write(c)
		bytes += int64(n)
		if err != nil {
			return bytes, err
		}
	}
	return bytes, flush()
}

// pace is changes at a rate. One that is late is sent at once.
type pace struct {
	server *server
	paced  control.Paced
}

func (p *pace) write(ctx context.Context, w io.Writer, flush func() error) (bytes int64, err error) {
	var frame []byte
	began := time.Now()
	for k := range p.paced.Count {
		due := began.Add(time.Duration(k) * time.Second / time.Duration(p.paced.PerSecond))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return bytes, ctx.Err()
			}
		}
		frame = p.frame(frame[:0], k)
		n, err := w.Write(frame)
		bytes += int64(n)
		if err == nil {
			err = flush()
		}
		if err != nil {
			return bytes, err
		}
	}
	return bytes, nil
}

// frame makes the frame of change k, with the time in it.
func (p *pace) frame(dst []byte, k int) []byte {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	over := p.paced.Objects
	if over <= 0 || over > len(s.versions) {
		over = len(s.versions)
	}
	i := next(k, over)
	s.newest++
	s.versions[i].Store(s.newest)
	return s.kind.AppendFrame(dst, "MODIFIED", objects.State{Index: i, Version: s.newest, Sent: time.Now().UnixNano()})
}
