package bridge

import (
	"context"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/tracing"
)

// hasShare says that less than half of the window is in use, and not much of it by what
// would stand before a live change in the queue.
func (l *Lane) hasShare() bool {
	return !l.closing && l.shared < maxShared && l.bytes < l.opts.MaxBytes/2 && l.events < max(1, l.opts.MaxEvents/2)
}

// maxShared is how many events of snapshots, and of what the sink is behind on, may be
// under way: enough for a broker that answers after 50 ms to get 10,000 a second, and so
// few that a live change waits no longer than that.
const maxShared = 512

// fits says that hasShare, and that so many bytes more are no more than the window: what is
// larger by itself passes alone.
func (l *Lane) fits(size int64) bool {
	return l.hasShare() && (l.bytes == 0 || l.bytes+size <= l.opts.MaxBytes)
}

// share is what an event of the object's state takes of the window at most, in bytes.
func (p *Port) share(o *event.Object) int64 {
	d := event.Delta{Resource: p.resource, Object: o}
	if p.snapshot != nil {
		d.Snapshot = p.snapshot.id
	}
	return int64(bufferSize(d.EncodedSize(p.lane.opts.Format)+tracing.Size)) + entryOverhead
}

// awaitShare waits until a snapshot may use that much of the window, and its marker has
// arrived.
func (l *Lane) awaitShare(ctx context.Context, s *snapshot, share int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.room.Broadcast()
	})
	defer stop()
	l.walkers++
	defer func() { l.walkers-- }()
	for (!s.began || l.behindCount > 0 || !l.fits(share)) && ctx.Err() == nil {
		l.room.Wait()
	}
	return ctx.Err()
}
