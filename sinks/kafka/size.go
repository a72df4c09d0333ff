package kafka

import (
	"fmt"
	"strings"

	"github.com/kbridge-io/kbridge/config"
)

// A broker holds a batch against the topic's max.message.bytes as it gets it, which is
// compressed, and once more if it stores it otherwise (compression.type).

// Values of a topic's compression.type.
const (
	storedAsSent  = "producer"
	storedPlainly = "uncompressed"
)

// tooLarge says why the topic does not take the batch, as far as its settings are
// known.
func (s *Sink) tooLarge(b *batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := b.partition.topic
	size := b.size()
	if t.storedAs == storedPlainly {
		size = b.plain
	}
	if t.limit == 0 || size <= t.limit {
		return nil
	}
	return s.sizeError(b, nil)
}

// sizeError is the error of a batch that is too large. The mutex is held.
func (s *Sink) sizeError(b *batch, r *refusal) error {
	t := b.partition.topic
	return &sizeError{plain: b.plain, size: b.size(), codec: s.cfg.Compression, limit: t.limit, storedAs: t.storedAs, refusal: r}
}

// sizeError says what a broker's refusal leaves out: the size and the limit.
type sizeError struct {
	plain, size int // before and after compression
	codec       config.Compression
	limit       int    // 0: not known
	storedAs    string // the topic's compression.type; empty: not known
	refusal     *refusal
}

func (e *sizeError) Error() string {
	var b strings.Builder
	if e.refusal != nil {
		b.WriteString(strings.TrimSuffix(e.refusal.Error(), ".") + ": ")
	}
	fmt.Fprintf(&b, "%d bytes", e.plain)
	if e.codec != config.CompressionNone {
		fmt.Fprintf(&b, " (%d compressed with %s)", e.size, e.codec)
	}
	b.WriteString(" are too large for the topic: its max.message.bytes is ")
	switch {
	case e.limit == 0:
		b.WriteString("not known")
	case e.refusal != nil && e.size <= e.limit && (e.storedAs == "" || e.storedAs == storedAsSent || e.storedAs == string(e.codec)):
		fmt.Fprintf(&b, "less than the %d that it was when it was last read", e.limit)
	default:
		fmt.Fprintf(&b, "%d", e.limit)
	}
	if e.storedAs != "" && e.storedAs != storedAsSent {
		b.WriteString(", its compression.type " + e.storedAs)
	}
	return b.String()
}

func (e *sizeError) Unwrap() error {
	if e.refusal == nil {
		return nil
	}
	return e.refusal
}
