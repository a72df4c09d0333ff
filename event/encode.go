package event

import (
	"errors"
	"strconv"
	"unicode/utf8"
)

// Format says how an event becomes a message.
type Format uint8

// The formats, as the CloudEvents protocol bindings define them.
const (
	// Structured puts attributes and data into one JSON document.
	Structured Format = iota
	// Binary puts the attributes into headers and the data, untouched, into the body.
	Binary
)

// DataContentType is the media type of an event's data.
const DataContentType = "application/json"

// StructuredContentType is the media type of a structured event.
const StructuredContentType = "application/cloudevents+json"

const specVersion = "1.0"

// timeLayout is RFC 3339 in UTC with microseconds.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// ContentType is the media type of the event's Value.
func (e *Event) ContentType() string {
	if e.Format == Structured {
		return StructuredContentType
	}
	return DataContentType
}

// Encode makes the delta's event in the given format. Of what e was before, the
// TraceParent stays. The body is appended to buf,
// which the caller may use again once the event is done with. The object's JSON is
// unpacked right to where it stands in the message, and never decoded.
//
// An error says that a body can not be read; the event then says what is known of the
// object without it, and is marked as truncated.
func (d *Delta) Encode(e *Event, format Format, buf []byte) error {
	*e = Event{Format: format, TraceParent: e.TraceParent}
	err := d.encode(e, buf)
	if err != nil {
		known := *d
		known.Object, known.Old = d.Resource.Remains(d.Object.Namespace, d.Object.Name, d.Object.UID, d.Object.ResourceVersion), nil
		known.Object.Epoch = d.Object.Epoch
		e.Truncated = true
		err = errors.Join(err, known.encode(e, buf))
	}
	return err
}

func (d *Delta) encode(e *Event, buf []byte) (err error) {
	o := d.Object
	*e = Event{
		Type: d.Type, Resource: d.Resource, Key: d.Key(), ID: d.ID(),
		UID: o.UID, ResourceVersion: o.ResourceVersion, Epoch: o.Epoch,
		Snapshot: d.Snapshot, Inferred: d.Inferred, Truncated: e.Truncated, Time: d.Time, TraceParent: e.TraceParent, Format: e.Format,
	}
	if e.Format == Binary {
		e.Value, err = d.appendData(buf)
		return err
	}
	buf = e.appendHead(buf)
	buf, err = d.appendData(append(buf, `,"data":`...))
	buf = append(buf, '}')
	e.Value = buf
	return err
}

// AppendStructured appends the event as a structured CloudEvents document, whatever
// its format.
func (e *Event) AppendStructured(dst []byte) []byte {
	if e.Format == Structured {
		return append(dst, e.Value...)
	}
	dst = append(e.appendHead(dst), `,"data":`...)
	return append(append(dst, e.Value...), '}')
}

// EncodedSize is an upper estimate of the body's length in bytes, so that a buffer
// need not grow.
func (d *Delta) EncodedSize(format Format) int {
	size := d.Object.Size()
	if d.Resource.Change {
		size += 32
		if d.Old != nil {
			size += d.Old.Size()
		}
	}
	if format == Structured {
		o := d.Object
		size += 384 + len(d.Resource.jsonSource) + len(d.Resource.jsonShared) +
			2*(escapedLen(o.Namespace)+escapedLen(o.Name)+escapedLen(o.UID)+escapedLen(o.ResourceVersion)+escapedLen(d.Snapshot))
	}
	return size
}

// escapedLen is at least the length of s as the inside of a JSON string.
func escapedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			n += len(`\u0000`) - 1
		}
	}
	return n
}

func (d *Delta) appendData(buf []byte) ([]byte, error) {
	if !d.Resource.Change {
		return d.appendObject(buf)
	}
	buf, err := d.appendObject(append(buf, `{"object":`...))
	if err == nil && d.Old != nil {
		buf, err = d.Old.Unpack(append(buf, `,"oldObject":`...))
	}
	return append(buf, '}'), err
}

func (d *Delta) appendObject(buf []byte) ([]byte, error) {
	if d.Plain != nil {
		return append(buf, d.Plain...), nil
	}
	return d.Object.Unpack(buf)
}

// appendHead appends a structured event up to its last attribute, the brace open.
func (e *Event) appendHead(buf []byte) []byte {
	r := e.Resource
	buf = append(buf, `{"specversion":"`+specVersion+`"`...)
	buf = appendMember(buf, "id", e.ID)
	buf = append(buf, r.jsonSource...)
	buf = append(buf, e.Type.cloudEventsType()...)
	if e.Type.IsMarker() {
		buf = append(buf, `","time":"`...)
	} else {
		buf = append(buf, `","subject":"`...)
		if e.Key.Namespace != "" {
			buf = append(appendEscaped(buf, e.Key.Namespace), '/')
		}
		buf = append(appendEscaped(buf, e.Key.Name), `","time":"`...)
	}
	buf = append(e.Time.UTC().AppendFormat(buf, timeLayout), '"')
	buf = append(buf, r.jsonShared...)
	buf = strconv.AppendUint(append(buf, `,"epoch":`...), uint64(e.Epoch), 10)
	if e.Key.Namespace != "" {
		buf = appendMember(buf, "namespace", e.Key.Namespace)
	}
	if !e.Type.IsMarker() {
		buf = appendMember(buf, "name", e.Key.Name)
		buf = appendMember(buf, "uid", e.UID)
		buf = appendMember(buf, "resourceversion", e.ResourceVersion)
	}
	if e.Snapshot != "" {
		buf = appendMember(buf, "snapshot", e.Snapshot)
	}
	if e.Inferred {
		buf = append(buf, `,"inferred":true`...)
	}
	if e.Truncated {
		buf = append(buf, `,"truncated":true`...)
	}
	if e.TraceParent != "" {
		buf = appendMember(buf, "traceparent", e.TraceParent)
	}
	return buf
}

// Attributes yields the CloudEvents attributes of the event in their canonical
// string form, all but datacontenttype, which the bindings carry as the message's
// content type. Names have no prefix: that is the binding's.
func (e *Event) Attributes(yield func(name, value string)) {
	yield("specversion", specVersion)
	yield("id", e.ID)
	yield("source", e.Resource.source)
	yield("type", e.Type.cloudEventsType())
	if !e.Type.IsMarker() {
		yield("subject", e.subject())
	}
	yield("time", e.Time.UTC().Format(timeLayout))
	e.Resource.eachShared(yield)
	yield("epoch", strconv.FormatUint(uint64(e.Epoch), 10))
	if e.Key.Namespace != "" {
		yield("namespace", e.Key.Namespace)
	}
	if !e.Type.IsMarker() {
		yield("name", e.Key.Name)
		yield("uid", e.UID)
		yield("resourceversion", e.ResourceVersion)
	}
	if e.Snapshot != "" {
		yield("snapshot", e.Snapshot)
	}
	if e.Inferred {
		yield("inferred", "true")
	}
	if e.Truncated {
		yield("truncated", "true")
	}
	if e.TraceParent != "" {
		yield("traceparent", e.TraceParent)
	}
}

func (e *Event) subject() string {
	if e.Key.Namespace == "" {
		return e.Key.Name
	}
	return e.Key.Namespace + "/" + e.Key.Name
}

// ID returns the id of the delta's event: the same for the same change, today and
// after a restart. The first epoch needs no mention.
func (d *Delta) ID() string {
	var room [128]byte
	id := append(room[:0], d.Object.UID...)
	if d.Object.Epoch > 0 {
		id = strconv.AppendUint(append(id, ".e"...), uint64(d.Object.Epoch), 10)
	}
	// An object is deleted once; the version at which kbridge learnt of it depends on
	// whether the deletion was seen or inferred. It can leave a selection often.
	if d.Type != Deleted || d.Resource.Selected {
		id = append(append(id, '.'), d.Object.ResourceVersion...)
	}
	switch d.Type {
	case Deleted:
		id = append(id, ".deleted"...)
	case Synced:
		id = append(append(id, '.'), d.Snapshot...)
	}
	return string(id)
}

// appendMember appends `,"name":"value"`; name needs no escaping.
func appendMember(buf []byte, name, value string) []byte {
	buf = append(buf, `,"`...)
	buf = append(buf, name...)
	buf = append(buf, `":"`...)
	return append(appendEscaped(buf, value), '"')
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends s as the inside of a JSON string. Bytes that are no UTF-8
// become U+FFFD, as encoding/json has it.
func appendEscaped(buf []byte, s string) []byte {
	plain := 0 // s[plain:i] needs no escaping and is not appended yet
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				buf = append(append(buf, s[plain:i]...), `\ufffd`...)
				plain = i + 1
			}
			i += size
			continue
		case c == '"' || c == '\\':
			buf = append(append(buf, s[plain:i]...), '\\', c)
			plain = i + 1
		case c < ' ':
			buf = append(append(buf, s[plain:i]...), '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			plain = i + 1
		}
		i++
	}
	return append(buf, s[plain:]...)
}
