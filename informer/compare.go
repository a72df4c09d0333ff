package informer

import (
	"github.com/kbridge-io/kbridge/event"
)

// isOfAnotherHistory says that a list can not be of the history that the index is of. The
// index is all that was there at its version, so of an object that has not changed since
// it has the same state; and no object goes back. Versions that do not compare prove
// nothing. The turn is held.
func (v *view) isOfAnotherHistory(list []any) bool {
	for _, obj := range list {
		o := obj.(*object)
		if v.narrowed.leavesOut(o.Object.Namespace) {
			continue
		}
		known := v.index[o.Key()].Object
		if known != nil && known.Same(&o.Object) {
			continue
		}
		if known != nil && known.UID == o.Object.UID && isBefore(o.Object.ResourceVersion, known.ResourceVersion) {
			return true
		}
		if c, ok := event.CompareVersions(o.Object.ResourceVersion, v.at); ok && c <= 0 {
			return true
		}
	}
	return false
}

// isBefore says that version a is known to be before b.
func isBefore(a, b string) bool {
	c, ok := event.CompareVersions(a, b)
	return ok && c < 0
}

// reached says that the watch has come to that version.
func (v *view) reached(resourceVersion string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	c, ok := event.CompareVersions(v.at, resourceVersion)
	return ok && c >= 0
}

// isWhole says that the index is what was there at some version.
func (v *view) isWhole() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at != ""
}

// isQuiet says that nothing has come for a while. It waits while a delta waits for room.
func (v *view) isQuiet() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now().Sub(v.changed) > quiet
}

// proven says that the index is of the server's current history.
func (v *view) proven() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epoch, v.outrun = v.resource.History.Epoch(), false
}

// beginPass begins a comparison with a list that is made after this, and returns the
// number of the list that the index is of.
func (v *view) beginPass() (round uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pass++
	v.removed = map[string]struct{}{}
	return v.round
}

// endComparison forgets what was removed.
func (v *view) endComparison() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.removed = nil
}

// isOfRound says that no list has come since the one of that number.
func (v *view) isOfRound(round uint32) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.round == round
}

// look compares a page with the index.
func (v *view) look(c *comparison, p *page) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range p.objects {
		if v.narrowed.leavesOut(m.Namespace) {
			continue
		}
		c.compared++
		if _, removed := v.removed[m.UID]; removed {
			continue // since the list
		}
		is, known := v.index[m.Key]
		if known {
			is.pass = v.pass
			v.index[m.Key] = is
		}
		listed := version{m.UID, m.ResourceVersion}
		if had := versionOf(is.Object); had != listed && !isBefore(p.version, had.version) {
			c.differ[m.Key] = difference{listed, had}
		}
	}
}

// endPass finds what the index has and the list had not.
func (v *view) endPass(c *comparison) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, is := range v.index {
		if had := versionOf(is.Object); is.pass != v.pass && !isBefore(c.version, had.version) {
			c.differ[key] = difference{indexed: had}
		}
	}
}

// recheck takes out what has changed since.
func (v *view) recheck(c *comparison) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, d := range c.differ {
		if _, removed := v.removed[d.listed.uid]; removed || versionOf(v.index[key].Object) != d.indexed {
			delete(c.differ, key)
		}
	}
}

func versionOf(o *event.Object) version {
	if o == nil {
		return version{}
	}
	return version{o.UID, o.ResourceVersion}
}
