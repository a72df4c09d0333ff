package informer

import "sync"

// turn is a lock that may be held for long: while a broker is away, or a server does
// not answer. Who waits for it waits in a way that virtual time counts as waiting. The
// zero turn is free.
type turn struct {
	mu    sync.Mutex
	free  sync.Cond
	taken bool
}

var _ sync.Locker = (*turn)(nil)

// Lock waits until the turn is free, and takes it.
func (t *turn) Lock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free.L = &t.mu
	for t.taken {
		t.free.Wait()
	}
	t.taken = true
}

// Unlock gives it to the next one.
func (t *turn) Unlock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
	t.free.Signal()
}
