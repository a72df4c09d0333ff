package informer

import (
	"sync"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/spill"
)

// packer packs the bodies of one watch with a dictionary made of its first objects,
// and tries a newer one now and then: kinds change, and the first objects may not be
// like the others. Until it has seen enough it leaves bodies as they are.
//
// A dictionary is made of bodies, and is stored. So it has none but those of the watch
// that uses it, as that watch's rules leave them: what is forgotten with a watch, or by
// other rules, is then in no dictionary that stays.
type packer struct {
	narrowed narrowed // namespaces whose objects are left out: see keep

	mu         sync.Mutex
	dictionary *event.Dictionary
	packs      int // since the last trial ended
	pause      int // packs until the next trial
	samples    []byte
	count      int               // of samples
	candidate  *event.Dictionary // under trial
	trial      trial
}

// trial compares a candidate with the dictionary in use.
type trial struct{ bodies, now, then int } // how many, and what they take in bytes

const (
	minSamples  = 32       // of small objects, for a first dictionary
	maxSample   = 16 << 10 // bytes of one object
	sampleEvery = 8        // bodies, for a second dictionary
	trialBodies = 128
	firstTrial  = 512     // packs from the first dictionary on
	latestTrial = 1 << 20 // from one trial to the next at most
)

// pack returns the body in the form in which it is kept: packed with the dictionary, or
// as it is where that is nil. It is in buf, which it lets grow where it is too small.
func (p *packer) pack(buf, body []byte) ([]byte, *event.Dictionary) {
	p.mu.Lock()
	d := p.dictionary
	p.mu.Unlock()
	smaller := false
	if d != nil {
		buf, smaller = d.PackInto(buf, body)
	}
	if !smaller {
		buf, d = append(buf[:0], body...), nil
	}
	p.learn(body, len(buf))
	return buf, d
}

// keep gives the object its body, packed: in the file, where it may be long until it is
// asked for, or in memory where that is nil. An object that is left out gets none: its
// body is to be neither in the file nor in a dictionary.
func (p *packer) keep(o *event.Object, body []byte, aside *spill.File) {
	if p.narrowed.leavesOut(o.Namespace) {
		return
	}
	buf := scanned.Get().(*[]byte)
	defer putScanned(buf)
	*buf, o.Dictionary = p.pack(*buf, body)
	if aside != nil {
		var ok bool
		if o.Aside, ok = aside.Put(*buf); ok {
			return
		}
	}
	o.Body = append(make([]byte, 0, len(*buf)), *buf...)
}

// adopt makes a dictionary of an earlier run the one in use.
func (p *packer) adopt(d *event.Dictionary) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dictionary == nil {
		p.dictionary, p.pause, p.samples, p.count = d, firstTrial, nil, 0
	}
}

// learn takes a body into account that takes size bytes as it is kept.
func (p *packer) learn(body []byte, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packs++
	switch {
	case p.candidate != nil:
		p.try(body, size)
	case p.dictionary == nil || p.packs > p.pause && p.packs%sampleEvery == 0:
		p.sample(body)
	}
}

// sample adds the body to the samples, and makes a dictionary of them when they are
// enough.
func (p *packer) sample(body []byte) {
	p.samples = append(p.samples, body[:min(len(body), maxSample)]...)
	p.count++
	if len(p.samples) < event.MaxDictionary && (p.dictionary != nil || p.count < minSamples) {
		return
	}
	d := event.NewDictionary(p.samples)
	p.samples, p.count = nil, 0
	if p.dictionary == nil {
		p.dictionary, p.packs, p.pause = d, 0, firstTrial
		return
	}
	p.candidate, p.trial = d, trial{}
}

// try compares the candidate with the dictionary in use, and takes it if it is better
// by a twentieth.
func (p *packer) try(body []byte, size int) {
	then := len(body)
	if packed := p.candidate.Pack(body); packed != nil {
		then = len(packed)
	}
	p.trial.bodies++
	p.trial.now += size
	p.trial.then += then
	if p.trial.bodies < trialBodies {
		return
	}
	if p.trial.then < p.trial.now-p.trial.now/20 {
		p.dictionary = p.candidate
	}
	p.candidate, p.packs = nil, 0
	p.pause = min(8*p.pause, latestTrial)
}
