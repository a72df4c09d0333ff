package tail

import "container/list"

// memory keeps the last state of the objects that were seen, as many as fit into
// its limit; the one that was not heard of for longest goes first. One goroutine
// uses it.
type memory struct {
	limit, size int // bytes
	byKey       map[string]*list.Element
	recent      *list.List // of *state, the most recent one first
}

type state struct {
	key    string
	object []byte
}

// stateOverhead is what a state takes beside its bytes, roughly.
const stateOverhead = 200

func (s *state) size() int { return len(s.key) + len(s.object) + stateOverhead }

func newMemory(limit int) *memory {
	return &memory{limit: limit, byKey: map[string]*list.Element{}, recent: list.New()}
}

// get returns the last state, or nil.
func (m *memory) get(key string) []byte {
	if el := m.byKey[key]; el != nil {
		return el.Value.(*state).object
	}
	return nil
}

// put keeps a state, and forgets others where that takes too much.
func (m *memory) put(key string, object []byte) {
	m.forget(key)
	s := &state{key, object}
	if s.size() > m.limit {
		return
	}
	m.byKey[key] = m.recent.PushFront(s)
	for m.size += s.size(); m.size > m.limit; {
		m.forget(m.recent.Back().Value.(*state).key)
	}
}

func (m *memory) forget(key string) {
	if el := m.byKey[key]; el != nil {
		m.size -= m.recent.Remove(el).(*state).size()
		delete(m.byKey, key)
	}
}
