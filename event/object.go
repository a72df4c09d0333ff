package event

import (
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"

	"github.com/kbridge-io/kbridge/internal/spill"
)

// Object is one state of one Kubernetes object. It is never changed once it has
// been handed on: index, deltas and events share it.
type Object struct {
	Namespace       string // empty for a cluster-scoped object
	Name            string
	UID             string
	ResourceVersion string
	// Epoch is that of the history in which the version was given, as far as is known: see
	// History. A later one is of a later state, whatever the versions.
	Epoch uint32
	// Body is the whole object after drops and redaction, apiVersion and kind included:
	// as JSON, or as Dictionary packed it. See Unpack.
	Body       []byte
	Dictionary *Dictionary // nil: the body is JSON
	// Aside is where the body is while Body is nil.
	Aside spill.Extent
	key   string // see Key; empty until it has been made
}

// Identify sets the object's namespace and name, and the key that they make, which the
// caller has.
func (o *Object) Identify(key, namespace, name string) {
	o.key, o.Namespace, o.Name = key, namespace, name
}

// Key names the object within its resource: namespace/name, or the name of one that has
// no namespace.
func (o *Object) Key() string {
	switch {
	case o.key != "":
		return o.key
	case o.Namespace == "":
		return o.Name
	default:
		return o.Namespace + "/" + o.Name
	}
}

// Same reports whether two states are the same one: same uid, same
// resourceVersion. Bytes do not count: a redacted Secret with another value has
// equal bytes and another version.
func (o *Object) Same(other *Object) bool {
	return o.UID == other.UID && o.ResourceVersion == other.ResourceVersion
}

// Kept is how long the body is as it is kept, in bytes.
func (o *Object) Kept() int { return len(o.Body) + o.Aside.Len() }

// PutAside returns the object with its body in the file, or as it is where that is not
// to be.
func (o *Object) PutAside(f *spill.File) *Object {
	if f == nil || o.Body == nil {
		return o
	}
	e, ok := f.Put(o.Body)
	if !ok {
		return o
	}
	aside := *o
	aside.Body, aside.Aside = nil, e
	return &aside
}

// Packed returns the body as it is kept: in buf, which it may let grow, where it was put
// aside. An error says that the disk does not give it back.
func (o *Object) Packed(buf []byte) ([]byte, error) {
	if o.Body != nil {
		return o.Body, nil
	}
	return o.Aside.AppendTo(buf[:0])
}

// Size is the length of the object's JSON, in bytes; zero where it can not be read.
func (o *Object) Size() int {
	if o.Dictionary == nil {
		return o.Kept()
	}
	head := o.Body
	if head == nil {
		var room [binary.MaxVarintLen64]byte
		head, _ = o.Aside.Head(len(room)).AppendTo(room[:0]) // Unpack says why not
	}
	n, _ := s2.DecodedLen(head)
	return n
}

var errPacked = errors.New("a body was not packed with that dictionary")

// Unpack appends the object's JSON to dst. An error says that the body is not what Pack
// returned, or can not be read.
func (o *Object) Unpack(dst []byte) ([]byte, error) {
	if o.Body != nil || o.Aside.Len() == 0 {
		return o.unpack(dst, o.Body)
	}
	buf := packBuffers.Get().(*[]byte)
	defer packBuffers.Put(buf)
	packed, err := o.Packed(*buf)
	if err != nil {
		return dst, err
	}
	*buf = packed
	return o.unpack(dst, packed)
}

// JSON is the object's JSON, which the caller does not change; see Unpack.
func (o *Object) JSON() ([]byte, error) {
	if o.Dictionary == nil && o.Body != nil {
		return o.Body, nil
	}
	return o.Unpack(nil)
}

func (o *Object) unpack(dst, packed []byte) ([]byte, error) {
	if o.Dictionary == nil {
		return append(dst, packed...), nil
	}
	n, err := s2.DecodedLen(packed)
	if err != nil {
		return dst, errors.Join(errPacked, err)
	}
	at := len(dst)
	if cap(dst)-at < n {
		dst = append(make([]byte, 0, at+n), dst...)
	}
	room := dst[at : at+n]
	unpacked, err := o.Dictionary.codec.Decode(room, packed)
	if err != nil {
		return dst, errors.Join(errPacked, err)
	}
	if len(unpacked) != n || n > 0 && &unpacked[0] != &room[0] {
		return append(dst, unpacked...), nil
	}
	return dst[:at+n], nil
}
