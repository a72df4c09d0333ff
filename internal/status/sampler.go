package status

import (
	"context"
	"sync"
	"time"
)

const (
	sampleEvery = time.Second
	// rateOver is the time that rates are of.
	rateOver = 10 * time.Second
)

// Sampler looks at the document once a second, and so knows what one look does not tell:
// rates, since when something is wrong, and errors that are over.
type Sampler struct {
	read func() Status

	mu      sync.Mutex
	samples []sample // oldest first
	since   map[problemID]time.Time
	errors  map[string]Error // the last one by sink; the empty name is the state
}

// sample is what was counted at a time, in the document's order.
type sample struct {
	at              time.Time
	changes, events []uint64
}

type problemID struct{ about, reason string }

// NewSampler makes a sampler of what read returns: the document as it is now, always
// with the same resources and sinks in the same order. It must not block.
func NewSampler(read func() Status) *Sampler {
	return &Sampler{read: read, since: map[problemID]time.Time{}, errors: map[string]Error{}}
}

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		s.sample()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Sampler) sample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := s.status()
	next := sample{at: doc.Time}
	for i := range doc.Resources {
		next.changes = append(next.changes, doc.Resources[i].Changes)
	}
	for i := range doc.Sinks {
		next.events = append(next.events, doc.Sinks[i].Events)
	}
	for len(s.samples) > 1 && doc.Time.Sub(s.samples[1].at) >= rateOver {
		s.samples = s.samples[1:] // the first one is as old as rates look back, or older
	}
	s.samples = append(s.samples, next)
}

// Status is the document as it is now.
func (s *Sampler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status()
}

// status is Status with the lock held.
func (s *Sampler) status() Status {
	doc := s.read()
	s.rates(&doc)
	s.date(&doc)
	for i := range doc.Sinks {
		sink := &doc.Sinks[i]
		sink.LastError = s.lastError(sink.Name, doc.Time, sink.Error, sink.LastError)
	}
	if doc.State != nil {
		doc.State.LastError = s.lastError("", doc.Time, doc.State.Error, nil)
	}
	return doc
}

// rates compares with the oldest sample. The lock is held.
func (s *Sampler) rates(doc *Status) {
	if len(s.samples) == 0 {
		return
	}
	then := s.samples[0]
	// Shortly after the start little is known: a rate is of a second at least.
	seconds := max(sampleEvery, doc.Time.Sub(then.at)).Seconds()
	for i := range doc.Resources {
		doc.Resources[i].ChangesPerSecond = float64(doc.Resources[i].Changes-then.changes[i]) / seconds
	}
	for i := range doc.Sinks {
		doc.Sinks[i].EventsPerSecond = float64(doc.Sinks[i].Events-then.events[i]) / seconds
	}
}

// date says since when the problems are there, and forgets those that are over. The lock
// is held.
func (s *Sampler) date(doc *Status) {
	now := map[problemID]time.Time{}
	for i := range doc.Problems {
		p := &doc.Problems[i]
		id := problemID{p.About, p.Reason}
		if since, known := s.since[id]; known {
			now[id] = since
		} else {
			now[id] = doc.Time
		}
		p.Since = now[id]
	}
	s.since = now
}

// lastError is the later one of an error that is being met, or was, and of another one.
// The lock is held.
func (s *Sampler) lastError(of string, now time.Time, met string, other *Error) *Error {
	if met != "" {
		s.errors[of] = Error{now, met}
	}
	last, known := s.errors[of]
	if !known || other != nil && other.Time.After(last.Time) {
		return other
	}
	return &last
}
