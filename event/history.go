package event

import "sync/atomic"

// History is the history of a cluster as its API server tells it. It ends where etcd is
// restored from a backup, or where another cluster takes the place of this one: what comes
// then is another one, which gives versions anew to other states. The epoch is the number of those that have ended, as far as kbridge has
// noticed; each object says in which one it was read, and it is a part of the events' ids,
// so that no two states have one id. All resources of a process share one. The nil History is the first one, and does not end.
type History struct{ epoch atomic.Uint32 }

// Epoch is the current epoch.
func (h *History) Epoch() uint32 {
	if h == nil {
		return 0
	}
	return h.epoch.Load()
}

// Continue makes epoch the current one: an earlier run had come so far.
func (h *History) Continue(epoch uint32) { h.epoch.Store(epoch) }

// End begins the next epoch, unless one has begun since seen was the current one, and
// returns the current one. Many watches notice one restored backup.
func (h *History) End(seen uint32) uint32 {
	if h.epoch.CompareAndSwap(seen, seen+1) {
		return seen + 1
	}
	return h.epoch.Load()
}
