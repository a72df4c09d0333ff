package status

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a document that a test changes.
type source struct {
	mu  sync.Mutex
	doc Status
}

func (s *source) read() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := s.doc
	doc.Time = time.Now()
	doc.Resources, doc.Sinks, doc.Problems = slices.Clone(doc.Resources), slices.Clone(doc.Sinks), slices.Clone(doc.Problems)
	if doc.State != nil {
		state := *doc.State
		doc.State = &state
	}
	return doc
}

func (s *source) set(change func(doc *Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.doc)
}

// sampling runs a sampler in virtual time. A test's times lie between two samples.
func sampling(t *testing.T, do func(s *source, sampler *Sampler)) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{doc: Status{Resources: make([]Resource, 2), Sinks: []Sink{{Name: "audit"}}, State: &State{}}}
		sampler := NewSampler(s.read)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go sampler.Run(ctx)
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		do(s, sampler)
	})
}

func TestRatesAreOfTheLastTenSeconds(t *testing.T) {
	sampling(t, func(s *source, sampler *Sampler) {
		rates := func() string {
			doc := sampler.Status()
			return fmt.Sprintf("%.1f %.1f %.1f", doc.Resources[0].ChangesPerSecond, doc.Resources[1].ChangesPerSecond, doc.Sinks[0].EventsPerSecond)
		}
		s.set(func(doc *Status) { doc.Resources[1].Changes, doc.Sinks[0].Events = 10, 20 })
		if got := rates(); got != "0.0 10.0 20.0" { // of a second, though less has passed
			t.Errorf("half a second after the start they are %s", got)
		}
		time.Sleep(4500 * time.Millisecond)
		if got := rates(); got != "0.0 2.0 4.0" {
			t.Errorf("5 seconds after the start they are %s", got)
		}
		time.Sleep(4900 * time.Millisecond)
		if got := rates(); got != "0.0 1.0 2.0" {
			t.Errorf("10 seconds after the start they are %s", got)
		}
		time.Sleep(1600 * time.Millisecond)
		if got := rates(); got != "0.0 0.0 0.0" {
			t.Errorf("11 seconds after the start they are %s", got)
		}
		for range 100 {
			s.set(func(doc *Status) { doc.Resources[0].Changes += 3 })
			time.Sleep(time.Second)
		}
		// The last increases were ten, of which the first is ten seconds and a half ago.
		if got := rates(); got != "2.9 0.0 0.0" {
			t.Errorf("after 100 seconds of three a second they are %s", got)
		}
		sampler.mu.Lock()
		defer sampler.mu.Unlock()
		if n := len(sampler.samples); n > 12 {
			t.Errorf("%d samples are kept", n)
		}
	})
}

func TestAProblemSaysSinceWhenItIsThere(t *testing.T) {
	sampling(t, func(s *source, sampler *Sampler) {
		began := time.Now().Add(-500 * time.Millisecond)
		since := func(i int) time.Duration { return sampler.Status().Problems[i].Since.Sub(began) }
		refused := Problem{About: "sink audit", Reason: "undelivered", Text: "port 1"}
		s.set(func(doc *Status) { doc.Problems = []Problem{refused} })
		time.Sleep(time.Minute)
		if got := since(0); got != time.Second {
			t.Errorf("it is there since %s, want the next sample, 1s", got)
		}
		refused.Text = "port 2" // it is the same all the same
		s.set(func(doc *Status) { doc.Problems = []Problem{{About: "state", Reason: "unwritable"}, refused} })
		if first, second := since(0), since(1); first != time.Minute+500*time.Millisecond || second != time.Second {
			t.Errorf("they are there since %s and %s", first, second)
		}
		s.set(func(doc *Status) { doc.Problems = nil })
		time.Sleep(time.Second)
		s.set(func(doc *Status) { doc.Problems = []Problem{refused} })
		if got := since(0); got != time.Minute+1500*time.Millisecond {
			t.Errorf("when it comes again it is there since %s", got)
		}
	})
}

func TestAnErrorThatIsOverIsTheLastOne(t *testing.T) {
	sampling(t, func(s *source, sampler *Sampler) {
		last := func() string {
			doc := sampler.Status()
			text := ""
			for _, e := range []*Error{doc.Sinks[0].LastError, doc.State.LastError} {
				if e != nil {
					text += e.Text
				}
				text += "; "
			}
			return text
		}
		if got := last(); got != "; ; " {
			t.Errorf("before any it is %q", got)
		}
		s.set(func(doc *Status) { doc.Sinks[0].Error, doc.State.Error = "refused", "disk full" })
		time.Sleep(2 * time.Second)
		s.set(func(doc *Status) { doc.Sinks[0].Error, doc.State.Error = "", "" })
		time.Sleep(time.Minute)
		if got := last(); got != "refused; disk full; " {
			t.Errorf("when they are over they are %q", got)
		}
		s.set(func(doc *Status) { doc.Sinks[0].LastError = &Error{time.Now().Add(-2 * time.Minute), "older"} })
		if got := last(); got != "refused; disk full; " {
			t.Errorf("beside an older one they are %q", got)
		}
		s.set(func(doc *Status) { doc.Sinks[0].LastError = &Error{time.Now(), "a later one of an event"} })
		if got := last(); got != "a later one of an event; disk full; " {
			t.Errorf("beside a later one they are %q", got)
		}
	})
}

func TestATailHasWhatCameSinceItWasFollowed(t *testing.T) {
	var none *Tail
	tail := &Tail{}
	if none.Followed() || tail.Followed() {
		t.Error("what nobody follows is followed")
	}
	named := func(n int) Event { return Event{Name: fmt.Sprint(n)} }
	tail.Add(named(0))
	f, other := tail.Follow(), tail.Follow()
	if !tail.Followed() {
		t.Error("it is not followed")
	}
	read := func(f *Follower) (names string, lost uint64) {
		events, lost := f.Events()
		for _, e := range events {
			names += e.Name + " "
		}
		return names, lost
	}
	if names, lost := read(f); names != "" || lost != 0 {
		t.Errorf("at first there are %s, and %d are lost", names, lost)
	}
	tail.Add(named(1))
	tail.Add(named(2))
	if names, lost := read(f); names != "1 2 " || lost != 0 {
		t.Errorf("then there are %s, and %d are lost", names, lost)
	}
	for i := range tailEvents + 5 {
		tail.Add(named(100 + i))
	}
	events, lost := f.Events()
	if len(events) != tailEvents || lost != 5 || events[0].Name != "105" || events[len(events)-1].Name != fmt.Sprint(100+tailEvents+4) {
		t.Errorf("of more than it keeps %d are there, from %s on, and %d are lost", len(events), events[0].Name, lost)
	}
	if events, lost := other.Events(); len(events) != tailEvents || lost != 7 {
		t.Errorf("another follower has %d, and %d are lost", len(events), lost)
	}
	f.Close()
	other.Close()
	if tail.Followed() {
		t.Error("it is followed when all have ended")
	}
}

func TestNobodyWaitsForATailAndNothingIsToldTwice(t *testing.T) {
	const writers, each = 4, 20_000
	tail := &Tail{}
	f := tail.Follow()
	defer f.Close()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				tail.Add(Event{Name: fmt.Sprintf("%d/%d", w, i)})
			}
		})
	}
	ended := make(chan struct{})
	go func() { writing.Wait(); close(ended) }()
	told, total := map[string]bool{}, uint64(0)
	read := func() {
		events, lost := f.Events()
		total += lost + uint64(len(events))
		for _, e := range events {
			if told[e.Name] {
				t.Fatalf("%s is told twice", e.Name)
			}
			told[e.Name] = true
		}
	}
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		read()
	}
	if total != writers*each {
		t.Errorf("%d events are told or lost, of %d", total, writers*each)
	}
}

func TestAProblemsLineSaysWhatItIsAbout(t *testing.T) {
	for want, p := range map[string]Problem{"starting": {Text: "starting"}, "sink audit: refused": {About: "sink audit", Text: "refused"}} {
		if got := p.String(); got != want {
			t.Errorf("the line is %q, want %q", got, want)
		}
	}
}
