package informer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/informer/scan"
	"github.com/kbridge-io/kbridge/internal/spill"
)

// codec decodes what the server says of one resource: objects and lists as raw
// bytes passed once through the scan, watch frames without a copy, errors as the
// *metav1.Status that client-go recognises. It keeps no state between calls.
type codec struct {
	target   target
	rules    *scan.Rules
	packer   *packer
	max      int         // bytes of an object, or of a frame
	aside    *spill.File // where bodies go that are not handed over at once; nil: to the heap
	observer observer
	handover handover
}

// observer learns of what client-go would not tell: errors inside a stream.
type observer struct {
	status     func(*metav1.Status) // an error that the server sent, in a body or in a stream
	unreadable func(error)          // a document that could not be decoded
	tooLarge   func()               // one that could not because of its size
	// initial says that the initial events of a watch list are coming, which client-go
	// gathers. The codec ends it. Nil: all are.
	initial *atomic.Bool
}

func newCodec(t target, rules *scan.Rules, p *packer, most int, aside *spill.File, o observer) (runtime.NegotiatedSerializer, error) {
	if rules == nil {
		var err error
		if rules, err = scan.New(scan.Options{APIVersion: t.groupVersion().String(), Kind: t.Kind}); err != nil {
			return nil, err
		}
	}
	c := &codec{target: t, rules: rules, packer: p, max: most, aside: aside, observer: o}
	return runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{
		MediaType:        runtime.ContentTypeJSON,
		MediaTypeType:    "application",
		MediaTypeSubType: "json",
		EncodesAsText:    true,
		Serializer:       c,
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true,
			Serializer:    frameSerializer{c},
			Framer:        framer{max: most, failed: c.frameTooLarge},
		},
	}), nil
}

var errReadOnly = errors.New("BUG: the informer's codec only decodes")

func (c *codec) Encode(runtime.Object, io.Writer) error { return errReadOnly }
func (c *codec) Identifier() runtime.Identifier         { return "kbridge" }

// Decode implements runtime.Decoder for response bodies and for the objects of
// watch frames. data is not retained.
func (c *codec) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if o := c.handover.take(data); o != nil {
		return o, nil, nil
	}
	apiVersion, kind, err := scan.Header(data)
	if err != nil {
		return nil, nil, c.errorf(err)
	}
	switch {
	case string(apiVersion) == "v1" && string(kind) == "Status":
		status := &metav1.Status{}
		if err := json.Unmarshal(data, status); err != nil {
			return nil, nil, fmt.Errorf("decode a Status: %w", err)
		}
		if c.observer.status != nil {
			c.observer.status(status)
		}
		return status, nil, nil
	case string(kind) == c.target.Kind:
		o, err := c.decodeObject(data)
		if err != nil {
			return nil, nil, c.errorf(err)
		}
		return o, nil, nil
	default:
		list, err := c.decodeList(data)
		if err != nil {
			return nil, nil, c.errorf(err)
		}
		return list, nil, nil
	}
}

// errorf reports a document that could not be decoded. The scan's errors hold
// nothing of it.
func (c *codec) errorf(err error) error {
	err = fmt.Errorf("%w: decode %s: %w", errUnreadable, c.target.Resource, err)
	if c.observer.unreadable != nil {
		c.observer.unreadable(err)
	}
	return err
}

func (c *codec) frameTooLarge(err *tooLargeError) error {
	c.countLarge()
	return c.errorf(err)
}

func (c *codec) countLarge() {
	if c.observer.tooLarge != nil {
		c.observer.tooLarge()
	}
}

// scanned are buffers for what the scan leaves of an object, until it is packed.
var scanned = sync.Pool{New: func() any { return new([]byte) }}

// maxScanned is the size of a buffer in bytes up to which it is used again.
const maxScanned = 256 << 10

func (c *codec) decodeObject(data []byte) (*object, error) {
	if len(data) > c.max {
		c.countLarge()
		return nil, &tooLargeError{"an object", c.max}
	}
	buf := scanned.Get().(*[]byte)
	defer putScanned(buf)
	var meta scan.Meta
	kept, err := c.rules.Object((*buf)[:0], data, &meta)
	if err != nil {
		return nil, err
	}
	*buf = kept
	o := c.newObject(&meta)
	switch {
	case o.Object.Name == "":
		return nil, errors.New("an object has no name")
	case o.Object.UID == "":
		return nil, fmt.Errorf("the object %s has no uid: an object that is deleted and made anew could not be told from one that changes", o.Object.Key())
	case o.Object.ResourceVersion == "":
		if o.Object.ResourceVersion, err = contentVersion(kept); err != nil {
			return nil, err
		}
	}
	c.packer.keep(&o.Object, kept, c.aside)
	return o, nil
}

// putScanned gives a buffer back.
func putScanned(buf *[]byte) {
	if cap(*buf) <= maxScanned {
		scanned.Put(buf)
	}
}

// release gives back the buffer of an object that has been handed over.
func (o *object) release() {
	if o.plain != nil {
		putScanned(o.plain)
		o.plain = nil
	}
}

// newObject returns an object without its body.
func (c *codec) newObject(meta *scan.Meta) *object {
	o := &object{ObjectMeta: &noMeta}
	if meta.InitialEventsEnd {
		o.ObjectMeta = &initialEventsEnd
	}
	o.Object.Identify(meta.Key, meta.Namespace, meta.Name)
	o.Object.UID, o.Object.ResourceVersion = meta.UID, meta.ResourceVersion
	return o
}

func (c *codec) decodeList(data []byte) (*objectList, error) {
	list := &objectList{}
	meta, err := scan.List(data, func(item []byte) error {
		o, err := c.decodeObject(item)
		if err == nil {
			list.Items = append(list.Items, o)
		}
		return err
	})
	if err == nil && !meta.Items && !strings.HasSuffix(meta.Kind, "List") {
		// It would be taken for an empty one, and all that is known for deleted.
		err = fmt.Errorf("a list was expected, and a document of kind %q without items came", meta.Kind)
	}
	if err != nil {
		return nil, err
	}
	list.ResourceVersion, list.Continue = meta.ResourceVersion, meta.Continue
	list.RemainingItemCount = meta.RemainingItemCount
	return list, nil
}

// frameSerializer decodes watch frames.
type frameSerializer struct{ codec *codec }

func (frameSerializer) Encode(runtime.Object, io.Writer) error { return errReadOnly }
func (frameSerializer) Identifier() runtime.Identifier         { return "kbridge-frame" }

// Decode fills the WatchEvent it is given, as client-go's watch decoder wants it, and
// decodes its object in the same pass: the raw object that client-go decodes next is the
// frame's first byte, by which the codec finds what is ready. An error's, and one of an
// unexpected kind, points into data, which client-go decodes before it reads the next
// frame into the same buffer.
func (frames frameSerializer) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	got, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("BUG: a watch frame decoded into %T", into)
	}
	c := frames.codec
	if o := c.decodeFrame(data, &got.Type); o != nil {
		got.Object.Raw = data[:1]
		c.handover.put(got.Object.Raw, o)
		return got, nil, nil
	}
	var err error
	got.Type, got.Object.Raw, err = scan.WatchEvent(data)
	if err != nil {
		return nil, nil, c.errorf(err)
	}
	switch got.Type {
	case scan.Added, scan.Modified, scan.Deleted: // of another kind, or without a version
		o, err := c.decodeObject(got.Object.Raw)
		if err != nil {
			return nil, nil, c.errorf(err)
		}
		got.Object.Raw = got.Object.Raw[:1]
		c.handover.put(got.Object.Raw, o)
	case scan.Bookmark: // without a version, or of another kind
		meta, err := scan.ReadMeta(got.Object.Raw)
		if err != nil {
			return nil, nil, c.errorf(err)
		}
		c.endInitial(&meta)
		got.Object.Raw = got.Object.Raw[:1]
		c.handover.put(got.Object.Raw, c.newObject(&meta))
	}
	return got, nil, nil
}

// decodeFrame decodes a frame in one pass, and returns nil where it is not of an object
// of the resource, nor a bookmark.
func (c *codec) decodeFrame(frame []byte, frameType *string) *object {
	buf := scanned.Get().(*[]byte)
	var meta scan.Meta
	var kept []byte
	var err error
	if *frameType, kept, err = c.rules.WatchEvent((*buf)[:0], frame, &meta); err != nil || !c.expects(*frameType, &meta) {
		putScanned(buf)
		return nil
	}
	*buf = kept
	o := c.newObject(&meta)
	if *frameType == scan.Bookmark {
		c.endInitial(&meta)
		putScanned(buf)
		return o
	}
	if c.isLive() {
		o.plain = buf // it is packed by who takes it, while the next frame is read
		return o
	}
	c.packer.keep(&o.Object, kept, c.aside)
	putScanned(buf)
	return o
}

// isLive says that an object of a frame is handed over next, and not gathered with
// thousands of others.
func (c *codec) isLive() bool { return c.observer.initial != nil && !c.observer.initial.Load() }

func (c *codec) endInitial(bookmark *scan.Meta) {
	if bookmark.InitialEventsEnd && c.observer.initial != nil {
		c.observer.initial.Store(false)
	}
}

// expects says that such a frame is one of an object of the resource, or a bookmark.
func (c *codec) expects(frameType string, meta *scan.Meta) bool {
	switch frameType {
	case scan.Added, scan.Modified, scan.Deleted:
		return meta.Kind == c.target.Kind && meta.Name != "" && meta.UID != "" && meta.ResourceVersion != ""
	case scan.Bookmark:
		return meta.Kind == c.target.Kind && meta.ResourceVersion != ""
	}
	return false
}

// handover holds objects from where their frames are split to where client-go asks for
// them, next in the same goroutine, by where the raw object stands in memory.
type handover struct {
	mu    sync.Mutex
	ready map[*byte]*object
}

func (h *handover) put(raw []byte, o *object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == nil {
		h.ready = map[*byte]*object{}
	}
	h.ready[&raw[0]] = o
}

// take returns the object that was put with raw, once, or nil.
func (h *handover) take(raw []byte) *object {
	if len(raw) != 1 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.ready[&raw[0]]
	delete(h.ready, &raw[0])
	return o
}
