package file

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// A record is the name of its dictionary, its strings, each behind its length, then the
// packed body, then a checksum of all that, of its key and of the bucket it is in: a disk that returns
// other bytes than it was given, or another page, must not become an event.

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errDamaged = errors.New("a record is damaged")
)

// sealSize is the size in bytes of a record's checksum.
const sealSize = 4

// scope is the checksum of a bucket's name, from which those of its records go on.
type scope uint32

func newScope(bucket []byte, name []byte) scope {
	sum := crc32.Update(0, castagnoli, bucket)
	sum = crc32.Update(sum, castagnoli, []byte{0})
	return scope(crc32.Update(sum, castagnoli, name))
}

func (s scope) sum(key, record []byte) uint32 {
	sum := crc32.Update(uint32(s), castagnoli, key)
	return crc32.Update(sum, castagnoli, record)
}

// seal ends a record with its checksum.
func (s scope) seal(key, record []byte) []byte {
	return binary.LittleEndian.AppendUint32(record, s.sum(key, record))
}

// open checks a sealed record and returns it without its checksum, and that.
func (s scope) open(key, record []byte) ([]byte, uint32, error) {
	if len(record) < sealSize {
		return nil, 0, errDamaged
	}
	body, sum := record[:len(record)-sealSize], sealOf(record)
	if s.sum(key, body) != sum {
		return nil, 0, errDamaged
	}
	return body, sum, nil
}

// sealOf is the checksum at the end of a sealed record.
func sealOf(record []byte) uint32 {
	return binary.LittleEndian.Uint32(record[len(record)-sealSize:])
}

// digest says which records there are: one that is missing, or that is of an earlier
// state, has a checksum that is right for itself.
type digest struct {
	count uint64
	sum   uint64 // of the records' checksums
}

func (d *digest) add(seal uint32) {
	d.count++
	d.sum += uint64(seal)
}

func (d *digest) remove(seal uint32) {
	d.count--
	d.sum -= uint64(seal)
}

const digestSize = 16

func (d digest) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, d.count)
	return binary.LittleEndian.AppendUint64(dst, d.sum)
}

// digestOf reads a digest and returns what follows it.
func digestOf(src []byte) (digest, []byte, error) {
	if len(src) < digestSize {
		return digest{}, nil, errDamaged
	}
	d := digest{count: binary.LittleEndian.Uint64(src), sum: binary.LittleEndian.Uint64(src[8:])}
	return d, src[digestSize:], nil
}

// codec writes and reads objects. A body is packed with the dictionary that it came
// with, which is in the file too, or by itself. One goroutine uses it.
type codec struct {
	dictionaries map[event.DictionaryID]*event.Dictionary // that are in the file
	added        map[string]*event.Dictionary             // by the transaction under way
	buf          []byte
	aside        []byte
}

func newCodec() *codec {
	return &codec{dictionaries: map[event.DictionaryID]*event.Dictionary{}, added: map[string]*event.Dictionary{}}
}

// noDictionary says that a body is packed by itself.
const noDictionary event.DictionaryID = 0

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// fields reads a record.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) string() string { return string(f.bytes()) }

// bytes is the next string, in the record's memory.
func (f *fields) bytes() []byte {
	n, size := binary.Uvarint(f.rest)
	if size <= 0 || n > uint64(len(f.rest)-size) {
		f.bad = true
		return nil
	}
	s := f.rest[size : size+int(n)]
	f.rest = f.rest[size+int(n):]
	return s
}

// dictionaryKey is the key of a dictionary's record, and how objects name it.
func dictionaryKey(id event.DictionaryID) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(id)))
}

// appendObject appends an object without sealing it. An error is of its body, where
// that was put aside.
func (c *codec) appendObject(dst []byte, o *event.Object) ([]byte, error) {
	body, err := o.Packed(c.aside)
	if err != nil {
		return dst, err
	}
	if o.Body == nil {
		c.aside = body
	}
	id := noDictionary
	if o.Dictionary != nil {
		if id = o.Dictionary.ID(); c.dictionaries[id] == nil {
			c.added[dictionaryKey(id)] = o.Dictionary
		}
	} else {
		c.buf = s2.Encode(c.buf[:cap(c.buf)], body)
		body = c.buf
	}
	dst = append(dst, dictionaryKey(id)...)
	for _, s := range []string{o.Namespace, o.Name, o.UID, o.ResourceVersion} {
		dst = appendString(dst, s)
	}
	dst = binary.AppendUvarint(dst, uint64(o.Epoch))
	return append(dst, body...), nil
}

// object reads an object, which is the rest of the record, and unpacks it once: a body
// that can not be is found here and not when it is to be sent.
func (c *codec) object(f *fields) (*event.Object, error) {
	id := f.dictionary()
	o := &event.Object{}
	if identify(o, f); f.bad {
		return nil, errDamaged
	}
	var err error
	if id == noDictionary {
		if o.Body, err = s2.Decode(nil, f.rest); len(o.Body) == 0 {
			o.Body = nil
		}
	} else {
		o.Body = slices.Clone(f.rest)
		if o.Dictionary = c.dictionaries[id]; o.Dictionary == nil {
			return nil, errDamaged
		}
		c.buf, err = o.Unpack(c.buf[:0])
	}
	if err != nil {
		return nil, errors.Join(errDamaged, err)
	}
	return o, nil
}

// identify reads what names the object and its state, into one piece of memory.
func identify(o *event.Object, f *fields) {
	namespace, name, uid, version := f.bytes(), f.bytes(), f.bytes(), f.bytes()
	var room [256]byte
	all := append(room[:0], namespace...)
	if len(namespace) > 0 {
		all = append(all, '/')
	}
	from := len(all)
	all = append(all, name...)
	key := len(all)
	text := string(append(append(all, uid...), version...))
	o.Identify(text[:key], text[:len(namespace)], text[from:key])
	o.UID, o.ResourceVersion = text[key:key+len(uid)], text[key+len(uid):]
	epoch, size := binary.Uvarint(f.rest)
	if size <= 0 || epoch > math.MaxUint32 {
		f.bad = true
		return
	}
	f.rest, o.Epoch = f.rest[size:], uint32(epoch)
}

// dictionary reads the name of an object's dictionary.
func (f *fields) dictionary() event.DictionaryID {
	if len(f.rest) < 8 {
		f.bad = true
		return noDictionary
	}
	id := event.DictionaryID(binary.BigEndian.Uint64(f.rest))
	f.rest = f.rest[8:]
	return id
}

const (
	behindGone = 1 << iota
	behindFirst
	behindNow
	behindGuessed
)

func (c *codec) appendBehind(dst []byte, b *state.Behind) ([]byte, error) {
	var flags byte
	if b.Gone != nil {
		flags |= behindGone
	}
	if b.First {
		flags |= behindFirst
	}
	if b.NowUID != "" {
		flags |= behindNow
	}
	if b.Guessed {
		flags |= behindGuessed
	}
	dst = append(dst, flags)
	dst = appendString(dst, b.UID)
	dst = appendString(dst, b.ResourceVersion)
	if b.NowUID != "" {
		dst = appendString(dst, b.NowUID)
		dst = appendString(dst, b.NowResourceVersion)
	}
	if b.Gone != nil {
		return c.appendObject(dst, b.Gone)
	}
	return dst, nil
}

func (c *codec) behind(record []byte) (state.Behind, error) {
	b, gone, err := readBehind(record)
	if err == nil && gone != nil {
		b.Gone, err = c.object(gone)
	}
	return b, err
}

// readBehind reads a record up to the object that has gone, whose fields follow; nil
// where there is none.
func readBehind(record []byte) (b state.Behind, gone *fields, err error) {
	if len(record) == 0 {
		return b, nil, errDamaged
	}
	flags, f := record[0], &fields{rest: record[1:]}
	b = state.Behind{UID: f.string(), ResourceVersion: f.string(), First: flags&behindFirst != 0, Guessed: flags&behindGuessed != 0}
	if flags&behindNow != 0 {
		b.NowUID, b.NowResourceVersion = f.string(), f.string()
	}
	if f.bad {
		return state.Behind{}, nil, errDamaged
	}
	if flags&behindGone != 0 {
		gone = f
	}
	return b, gone, nil
}
