package event

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/s2"
)

// DictionaryID names a dictionary by what is in it.
type DictionaryID uint64

// MaxDictionary is how much of its samples a dictionary has at most, in bytes.
const MaxDictionary = s2.MaxDictSize

// Dictionary packs the bodies of objects that are alike: what a body shares with it
// takes no room. Many goroutines may use one.
//
// It is S2 with samples put before each body. Zstandard with a trained dictionary packs
// 7 % smaller, and takes five times as long: see docs/PERFORMANCE.md.
type Dictionary struct {
	id    DictionaryID
	bytes []byte
	codec *s2.Dict
}

// NewDictionary makes a dictionary of samples, of which the last MaxDictionary bytes
// count. It keeps them. It returns nil where they are too short to be of use.
func NewDictionary(samples []byte) *Dictionary {
	codec := s2.MakeDict(samples, nil)
	if codec == nil {
		return nil
	}
	samples = samples[max(0, len(samples)-MaxDictionary):]
	sum := sha256.Sum256(samples)
	return &Dictionary{id: DictionaryID(binary.BigEndian.Uint64(sum[:])), bytes: samples, codec: codec}
}

// ID is the same for the same samples.
func (d *Dictionary) ID() DictionaryID { return d.id }

// Bytes are the samples.
func (d *Dictionary) Bytes() []byte { return d.bytes }

var packBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Pack returns the body packed, in a slice of its own size, or nil where that would not
// be smaller.
func (d *Dictionary) Pack(body []byte) []byte {
	buf := packBuffers.Get().(*[]byte)
	defer packBuffers.Put(buf)
	packed, ok := d.PackInto(*buf, body)
	*buf = packed
	if !ok {
		return nil
	}
	return append(make([]byte, 0, len(packed)), packed...)
}

// PackInto packs the body into buf, which it may let grow, and returns false where that
// would not be smaller. What is in buf does not count.
func (d *Dictionary) PackInto(buf, body []byte) (packed []byte, smaller bool) {
	if n := s2.MaxEncodedLen(len(body)); cap(buf) < n {
		buf = make([]byte, n)
	}
	packed = d.codec.Encode(buf[:cap(buf)], body)
	return packed, len(packed) < len(body)
}
