package informer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer/scan"
)

// codec decodes what the server says of one resource: objects and lists as raw
// bytes passed once through the scan, watch frames without a copy, errors as the
// *metav1.Status that client-go recognises. It keeps no state between calls.
type codec struct {
	target   target
	rules    *scan.Rules
	observer observer
}

// observer learns of what client-go would not tell: errors inside a stream.
type observer struct {
	status     func(*metav1.Status) // an error that the server sent, in a body or in a stream
	unreadable func(error)          // a document that could not be decoded
}

func newCodec(t target, rules *scan.Rules, o observer) (runtime.NegotiatedSerializer, error) {
	if rules == nil {
		var err error
		if rules, err = scan.New(scan.Options{APIVersion: t.groupVersion().String(), Kind: t.Kind}); err != nil {
			return nil, err
		}
	}
	c := &codec{target: t, rules: rules, observer: o}
	return runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{
		MediaType:        runtime.ContentTypeJSON,
		MediaTypeType:    "application",
		MediaTypeSubType: "json",
		EncodesAsText:    true,
		Serializer:       c,
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true,
			Serializer:    frameSerializer{c},
			Framer:        framer{},
		},
	}), nil
}

var errReadOnly = errors.New("BUG: the informer's codec only decodes")

func (c *codec) Encode(runtime.Object, io.Writer) error { return errReadOnly }
func (c *codec) Identifier() runtime.Identifier         { return "kbridge" }

// Decode implements runtime.Decoder for response bodies and for the objects of
// watch frames. data is not retained.
func (c *codec) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
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
	err = fmt.Errorf("decode %s: %w", c.target.Resource, err)
	if c.observer.unreadable != nil {
		c.observer.unreadable(err)
	}
	return err
}

func (c *codec) decodeObject(data []byte) (*object, error) {
	var meta scan.Meta
	kept, err := c.rules.Object(nil, data, &meta) // sized exactly
	if err != nil {
		return nil, err
	}
	return &object{
		ObjectMeta: &noMeta, initialEventsEnd: meta.InitialEventsEnd,
		Object: event.Object{
			Namespace: meta.Namespace, Name: meta.Name,
			UID: meta.UID, ResourceVersion: meta.ResourceVersion, JSON: kept,
		},
	}, nil
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
	if err != nil {
		return nil, err
	}
	list.ResourceVersion, list.Continue = meta.ResourceVersion, meta.Continue
	list.RemainingItemCount = meta.RemainingItemCount
	return list, nil
}

// frameSerializer decodes a watch frame up to its object, which it leaves raw.
type frameSerializer struct{ codec *codec }

func (frameSerializer) Encode(runtime.Object, io.Writer) error { return errReadOnly }
func (frameSerializer) Identifier() runtime.Identifier         { return "kbridge-frame" }

// Decode fills the WatchEvent it is given, as client-go's watch decoder wants it.
// The raw object points into data: client-go decodes it, which copies, before it
// reads the next frame into the same buffer.
func (frames frameSerializer) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	got, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("BUG: a watch frame decoded into %T", into)
	}
	var err error
	got.Type, got.Object.Raw, err = scan.WatchEvent(data)
	if err != nil {
		return nil, nil, frames.codec.errorf(err)
	}
	return got, nil, nil
}
