package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

const (
	headerMsgID       = jetstream.MsgIDHeader
	headerStream      = jetstream.ExpectedStreamHeader
	headerContentType = "content-type" // in lower case: the CloudEvents SDKs compare it as it stands
	attributePrefix   = "ce-"
)

// maxSubject is how long a subject may be, in bytes. A server cuts the connection of a
// client whose protocol line (subject, reply and sizes) is longer than its
// max_control_line, which is 4096 unless it is told otherwise, and with the connection all
// that is under way. What is left is for our reply and for a consumer's, which gets the
// subject in a line too: that has the names of stream and consumer in it.
const maxSubject = 4096 - 512

// message is one client message, filled again for each event: the client copies
// what it sends. It belongs to one goroutine.
type message struct {
	msg     client.Msg
	id      []string // the values of the headers, of one element each
	content []string
	// attributes are the headers of binary format by attribute name.
	attributes map[string]*attribute
	binary     bool
	scratch    []byte
}

type attribute struct {
	header string
	value  [1]string
}

func newMessage(stream string) *message {
	m := &message{id: make([]string, 1), content: make([]string, 1), attributes: make(map[string]*attribute)}
	m.msg.Header = client.Header{
		headerMsgID: m.id,
		// Should the subject be another stream's, nothing is stored there.
		headerStream:      {stream},
		headerContentType: m.content,
	}
	return m
}

// fill makes the event's message. It has no reply subject yet.
func (m *message) fill(subject *event.Template, e *event.Event) {
	m.scratch = subject.Append(m.scratch[:0], e)
	m.msg.Subject = string(m.scratch)
	m.msg.Data = e.Value
	m.id[0] = e.DedupID()
	m.content[0] = e.ContentType()
	if m.binary {
		for _, a := range m.attributes {
			m.msg.Header[a.header] = nil // not sent, unless it is set again
		}
	}
	if m.binary = e.Format == event.Binary; m.binary {
		// The binding has this attribute under the prefix; the content type beside
		// it is what the SDKs write and what other readers look for.
		m.set("datacontenttype", event.DataContentType)
		e.Attributes(m.set)
	}
}

func (m *message) set(name, value string) {
	a := m.attributes[name]
	if a == nil {
		a = &attribute{header: attributePrefix + name}
		m.attributes[name] = a
	}
	a.value[0] = headerValue(value)
	m.msg.Header[a.header] = a.value[:]
}

// unsendable says why no server takes a message with this subject, or nil.
func (m *message) unsendable() error {
	if n := len(m.msg.Subject); n > maxSubject {
		return sinks.Permanent(fmt.Errorf("subject %.60s… has %d bytes, of which a server's protocol line takes %d", m.msg.Subject, n, maxSubject))
	}
	return nil
}

func (m *message) setReply(inbox string, n uint64) {
	m.scratch = strconv.AppendUint(append(m.scratch[:0], inbox...), n, 36)
	m.msg.Reply = string(m.scratch)
}

// headerSize is the length of the headers as they are sent.
func (m *message) headerSize() int {
	n := len("NATS/1.0\r\n\r\n")
	for key, values := range m.msg.Header {
		for _, v := range values {
			n += len(key) + len(": ") + len(v) + len("\r\n")
		}
	}
	return n
}

// headerValue percent-encodes what the CloudEvents binding does not let stand in
// a header: all but printable ASCII, and space, double quote and percent.
func headerValue(s string) string {
	for i := range len(s) {
		if mustEscape(s[i]) {
			return escapeValue(s)
		}
	}
	return s
}

func mustEscape(c byte) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }

func escapeValue(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; mustEscape(c) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

var (
	errNoStream    = errors.New("no stream listens on the subject")
	errWrongStream = errors.New("stored by another stream")
)

// JetStream's codes of refusals that no retry of the same message can mend.
const (
	codeMessageTooLarge = 10054 // larger than the stream's max_msg_size
	codeHeaderTooLarge  = 10097
	codeWrongStream     = 10060 // the subject belongs to another stream
)

// parseAck returns nil if the message was stored by the stream.
func parseAck(m *client.Msg, stream string, prefix []byte) error {
	if ackedPlainly(m.Data, prefix) {
		return nil
	}
	if len(m.Data) == 0 {
		if m.Header.Get("Status") == "503" {
			return errNoStream
		}
		return fmt.Errorf("empty acknowledgement with status %q", m.Header.Get("Status"))
	}
	var ack struct {
		Stream string              `json:"stream"`
		Seq    uint64              `json:"seq"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("read acknowledgement: %w", err)
	}
	switch {
	case ack.Error != nil:
		switch ack.Error.ErrorCode {
		case codeMessageTooLarge, codeHeaderTooLarge:
			return sinks.TooLarge(fmt.Errorf("stream %s: %s", stream, ack.Error.Description))
		case codeWrongStream:
			return fmt.Errorf("%w: the subject is not one of stream %s: %s", errNoStream, stream, ack.Error.Description)
		}
		return fmt.Errorf("stream %s: %s (code %d)", stream, ack.Error.Description, ack.Error.ErrorCode)
	case ack.Stream != stream:
		return fmt.Errorf("%w: %q, expected %q", errWrongStream, ack.Stream, stream)
	case ack.Seq == 0:
		return errors.New("acknowledgement without a sequence")
	}
	return nil
}

// ackedPlainly recognises the usual acknowledgement, {"stream":"NAME","seq":17},
// without decoding it.
func ackedPlainly(data, prefix []byte) bool {
	seq, ok := bytes.CutPrefix(data, prefix)
	if !ok {
		return false
	}
	seq, ok = bytes.CutSuffix(seq, []byte("}"))
	if !ok || len(seq) == 0 || seq[0] == '0' {
		return false
	}
	for _, c := range seq {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
