package event

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
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
	if n := s2.MaxEncodedLen(len(body)); cap(*buf) < n {
		*buf = make([]byte, n)
	}
	packed := d.codec.Encode((*buf)[:cap(*buf)], body)
	if len(packed) >= len(body) {
		return nil
	}
	return append(make([]byte, 0, len(packed)), packed...)
}

var errPacked = errors.New("a body was not packed with that dictionary")

// Size is the length of the object's JSON, in bytes.
func (o *Object) Size() int {
	if o.Dictionary == nil {
		return len(o.Body)
	}
	n, err := s2.DecodedLen(o.Body)
	if err != nil {
		return 0 // Unpack says so
	}
	return n
}

// Unpack appends the object's JSON to dst. An error says that Body is not what Pack
// returned.
func (o *Object) Unpack(dst []byte) ([]byte, error) {
	if o.Dictionary == nil {
		return append(dst, o.Body...), nil
	}
	n, err := s2.DecodedLen(o.Body)
	if err != nil {
		return dst, errors.Join(errPacked, err)
	}
	at := len(dst)
	if cap(dst)-at < n {
		dst = append(make([]byte, 0, at+n), dst...)
	}
	room := dst[at : at+n]
	unpacked, err := o.Dictionary.codec.Decode(room, o.Body)
	if err != nil {
		return dst, errors.Join(errPacked, err)
	}
	if len(unpacked) != n || n > 0 && &unpacked[0] != &room[0] {
		return append(dst, unpacked...), nil
	}
	return dst[:at+n], nil
}

// AppendJSON appends the object's JSON to dst.
func (o *Object) AppendJSON(dst []byte) []byte {
	dst, err := o.Unpack(dst)
	if err != nil {
		panic("BUG: " + err.Error()) // what comes from a disk was unpacked once
	}
	return dst
}

// JSON is the object's JSON, which the caller does not change.
func (o *Object) JSON() []byte {
	if o.Dictionary == nil {
		return o.Body
	}
	return o.AppendJSON(nil)
}
