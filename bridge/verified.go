package bridge

import (
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// verification is the outcome of a comparison, until all that was handed over before it
// is dealt with: what is known here is of no use to a sink that has not got it.
type verification struct {
	marker event.Marker
	// reached says that the sink was behind on nothing, when it had entered entries.
	reached bool
	entered uint64
}

// Verified implements informer.Handler. Of two that wait for a sink it gets the later one.
func (f *Feed) Verified(id string, compared, differed int, resourceVersion string) {
	for _, p := range f.ports {
		p.lane.mu.Lock()
		p.verified = &verification{marker: event.Marker{
			Type: event.Verified, Resource: p.resource, Namespace: p.namespace, Verification: id,
			Compared: compared, Differed: differed, ResourceVersion: resourceVersion,
		}}
		p.tellVerified()
		p.lane.mu.Unlock()
	}
}

// tellVerified sends the outcome of a comparison that waits, if it may. The lane's lock is
// held.
func (p *Port) tellVerified() {
	v := p.verified
	if v == nil {
		return
	}
	if !v.reached && len(p.behind) == 0 {
		v.reached, v.entered = true, p.entered
	}
	if !v.reached || p.advanced < v.entered {
		return
	}
	p.verified = nil
	v.marker.Time = time.Now()
	var m message
	v.marker.Encode(&m.event, p.lane.opts.Format)
	p.putMarker(m)
}
