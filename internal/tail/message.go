package tail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/segmentio/kafka-go/protocol"
)

// Event is one CloudEvent as it came from the stream, in either format.
type Event struct {
	attributes map[string]string // in their canonical string form
	data       []byte            // JSON
	document   []byte            // the whole of a structured event; nil for a binary one
}

// Attribute returns a CloudEvents attribute, or an empty string.
func (e *Event) Attribute(name string) string { return e.attributes[name] }

const (
	structuredType = "application/cloudevents+json"
	contentType    = "content-type"
	natsPrefix     = "ce-"
	kafkaPrefix    = "ce_"
)

var errNoEvent = errors.New("it is no CloudEvent with JSON data")

// Decode reads the event that a NATS message carries. Headers are read whatever
// their names' case.
func Decode(headers map[string][]string, body []byte) (*Event, error) {
	attributes, mediaType := map[string]string{}, ""
	for name, values := range headers {
		if len(values) == 0 {
			continue
		}
		switch name = strings.ToLower(name); {
		case name == contentType:
			mediaType = values[0]
		case strings.HasPrefix(name, natsPrefix):
			value, err := url.PathUnescape(values[0])
			if err != nil {
				value = values[0] // written by somebody who does not escape
			}
			attributes[name[len(natsPrefix):]] = value
		}
	}
	return decode(mediaType, attributes, body)
}

// decodeRecord reads the event that a record of Kafka carries. Its headers' values
// are as they are.
func decodeRecord(headers []protocol.Header, value []byte) (*Event, error) {
	attributes, mediaType := map[string]string{}, ""
	for _, h := range headers {
		switch name := strings.ToLower(h.Key); {
		case name == contentType:
			mediaType = string(h.Value)
			attributes["datacontenttype"] = mediaType // of a binary event
		case strings.HasPrefix(name, kafkaPrefix):
			attributes[name[len(kafkaPrefix):]] = string(h.Value)
		}
	}
	return decode(mediaType, attributes, value)
}

// decode makes an event of a body, which has all of it if its type says so.
func decode(mediaType string, attributes map[string]string, body []byte) (*Event, error) {
	e := &Event{attributes: attributes, data: body}
	mediaType, _, _ = strings.Cut(mediaType, ";")
	if strings.TrimSpace(mediaType) == structuredType {
		if err := e.readDocument(body); err != nil {
			return nil, err
		}
	} else if !json.Valid(body) {
		return nil, errNoEvent
	}
	if e.attributes["specversion"] == "" || e.attributes["type"] == "" {
		return nil, errNoEvent
	}
	return e, nil
}

func (e *Event) readDocument(body []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return fmt.Errorf("it is no CloudEvent: %w", err)
	}
	e.document, e.data, e.attributes = body, members["data"], make(map[string]string, len(members))
	for name, value := range members {
		if name == "data" {
			continue
		}
		var s string
		if json.Unmarshal(value, &s) != nil {
			s = string(value) // a boolean or a number
		}
		e.attributes[name] = s
	}
	return nil
}

// order is the order of a structured event's members; others follow, sorted.
var order = []string{
	"specversion", "id", "source", "type", "subject", "time", "datacontenttype",
	"cluster", "group", "version", "resource", "kind", "entry", "epoch", "namespace", "name", "uid", "resourceversion", "snapshot", "inferred", "truncated",
}

// flags are the attributes that are true or false, and numbers those that are numbers.
var (
	flags   = []string{"inferred", "truncated"}
	numbers = []string{"epoch"}
)

// isLiteral says that the attribute's value stands in a document without quotes.
func isLiteral(name, value string) bool {
	if slices.Contains(numbers, name) {
		_, err := strconv.ParseUint(value, 10, 32)
		return err == nil
	}
	return slices.Contains(flags, name) && (value == "true" || value == "false")
}

// JSON returns the event as one line of JSON, a structured CloudEvent whatever
// format it came in. What a terminal might take for a command is escaped.
func (e *Event) JSON() ([]byte, error) {
	doc := e.document
	if doc == nil {
		doc = e.structured()
	}
	var line bytes.Buffer
	if err := json.Compact(&line, doc); err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.Attribute("id"), err)
	}
	return escapeJSON(line.Bytes()), nil
}

func (e *Event) structured() []byte {
	names := slices.Clone(order)
	for _, name := range slices.Sorted(maps.Keys(e.attributes)) {
		if !slices.Contains(order, name) {
			names = append(names, name)
		}
	}
	doc := []byte{'{'}
	for _, name := range names {
		value, ok := e.attributes[name]
		if !ok {
			continue
		}
		doc = append(appendString(doc, name), ':')
		if isLiteral(name, value) {
			doc = append(doc, value...)
		} else {
			doc = appendString(doc, value)
		}
		doc = append(doc, ',')
	}
	doc = append(doc, `"data":`...)
	return append(append(doc, e.data...), '}')
}

// appendString appends s as a JSON string. Unlike json.Marshal it leaves <, > and & alone.
func appendString(dst []byte, s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic("BUG: a string that can not be encoded: " + err.Error())
	}
	return append(dst, bytes.TrimRight(b.Bytes(), "\n")...)
}

// escapeJSON escapes in a JSON document what is not ASCII and not printable, which
// can stand in its strings only. Controls of ASCII are escaped in JSON anyway, all but one.
func escapeJSON(doc []byte) []byte {
	if !bytes.ContainsFunc(doc, mustEscape) {
		return doc
	}
	var b bytes.Buffer
	for len(doc) > 0 {
		r, size := utf8.DecodeRune(doc)
		switch {
		case !mustEscape(r):
			b.Write(doc[:size])
		case r > 0xffff:
			hi, lo := 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		doc = doc[size:]
	}
	return b.Bytes()
}

func mustEscape(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }

// states returns the object of the event, and the one before where the event has it.
func (e *Event) states() (object, before []byte) {
	var data struct {
		APIVersion json.RawMessage `json:"apiVersion"`
		Object     json.RawMessage `json:"object"`
		OldObject  json.RawMessage `json:"oldObject"`
	}
	if json.Unmarshal(e.data, &data) != nil {
		return nil, nil
	}
	if data.APIVersion == nil && data.Object != nil {
		return data.Object, data.OldObject
	}
	return e.data, nil
}

// key tells the object from all others, in all clusters and over recreation.
func (e *Event) key() string { return e.Attribute("source") + "/" + e.Attribute("uid") }

// isTruncated says that the object was larger than the broker takes: the event has
// its metadata alone.
func (e *Event) isTruncated() bool { return e.Attribute("truncated") == "true" }

// isSecret says that values in the object are not to be shown.
func (e *Event) isSecret() bool {
	return e.Attribute("kind") == "Secret" && e.Attribute("group") == ""
}

// snapshotPrefix stands before the types of what begins and ends a snapshot.
const snapshotPrefix = "dev.kbridge.snapshot."

// verifiedType is the type of what tells the outcome of a comparison with the server.
const verifiedType = "dev.kbridge.verified"

// marker says which end of a snapshot the event stands at, started or completed, or that
// it is verified. Empty: it is about an object.
func (e *Event) marker() string {
	if name, ok := strings.CutPrefix(e.Attribute("type"), snapshotPrefix); ok {
		return name
	}
	if e.Attribute("type") == verifiedType {
		return "verified"
	}
	return ""
}

// markerData is what a snapshot or a comparison says of itself.
type markerData struct {
	Count           *int   `json:"count"`
	Compared        *int   `json:"compared"`
	Differed        int    `json:"differed"`
	ResourceVersion string `json:"resourceVersion"`
}

func (e *Event) markerData() (d markerData) {
	if json.Unmarshal(e.data, &d) != nil {
		return markerData{} // written by somebody else
	}
	return d
}

// typeName is the type without its prefix: added.
func (e *Event) typeName() string {
	name := strings.TrimPrefix(e.Attribute("type"), "dev.kbridge.")
	return strings.TrimPrefix(name, "object.")
}

// resourceName is the resource as kubectl writes it.
func (e *Event) resourceName() string {
	if group := e.Attribute("group"); group != "" {
		return e.Attribute("resource") + "." + group
	}
	return e.Attribute("resource")
}

// objectName is namespace/name, or the subject of what is no object.
func (e *Event) objectName() string {
	name := e.Attribute("name")
	if name == "" {
		return e.Attribute("subject")
	}
	if ns := e.Attribute("namespace"); ns != "" {
		return ns + "/" + name
	}
	return name
}
