package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"
	client "github.com/segmentio/kafka-go"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
)

// Batches are encoded here and handed to the client library as bytes: it has no
// producer id, and makes several copies and a few allocations for each record. The
// format is Kafka's record batch, version 2.

const (
	batchHead       = 61 // bytes of a batch before its records
	lengthPrefix    = 4  // bytes in a request before a batch
	attributePrefix = "ce_"
	contentType     = "content-type"
	// recordOverhead bounds what a record has beside key, value and headers.
	recordOverhead = 64
	// binaryHeaders is about what the headers of binary format take.
	binaryHeaders = 640
)

// estimate is about how many bytes the event takes in a batch.
func estimate(e *event.Event, key []byte, tombstone bool) int {
	n := len(e.Value) + len(key) + recordOverhead
	if e.Format == event.Binary {
		n += binaryHeaders
	}
	if tombstone {
		n += len(key) + recordOverhead
	}
	return n
}

// encoder makes batches. It belongs to one goroutine, and its buffers are used again.
type encoder struct {
	compression config.Compression
	zstd        *zstd.Encoder
	records     []byte
	headers     []byte
	out         []byte
	writer      appender
}

func newEncoder(c config.Compression) (*encoder, error) {
	w := &encoder{compression: c}
	if c == config.CompressionZstd {
		var err error
		if w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(1<<20), zstd.WithZeroFrames(true)); err != nil {
			return nil, fmt.Errorf("prepare zstd: %w", err)
		}
	}
	return w, nil
}

// reset forgets the batches, and buffers that one of them made uncommonly large.
func (w *encoder) reset() {
	const most = 8 << 20
	if cap(w.records) > most {
		w.records = nil
	}
	if cap(w.out) > most {
		w.out = nil
	}
	w.out = w.out[:0]
}

// add encodes the batch behind those before it.
func (w *encoder) add(b *batch) error {
	w.records = w.records[:0]
	first := b.items[0].timestamp()
	last := first
	b.count, b.owners = 0, b.owners[:0]
	for _, it := range b.items {
		at := it.timestamp()
		last = max(last, at)
		w.record(it.key, it.event, at-first, int64(b.count))
		b.own(it)
		if it.tombstone {
			w.tombstone(it.key, at-first, int64(b.count))
			b.own(it)
		}
	}
	b.plain = batchHead + len(w.records)
	return w.finish(b, first, last)
}

// drop forgets the batch that was added last.
func (w *encoder) drop(b *batch) { w.out = w.out[:b.start] }

// record appends one event. Its length stands before it, so that the headers, which
// are few bytes, are made first.
func (w *encoder) record(key []byte, e *event.Event, at, offset int64) {
	w.headers = w.headers[:0]
	count := int64(1)
	w.header("", contentType, e.ContentType())
	if e.Format == event.Binary {
		e.Attributes(func(name, value string) {
			w.header(attributePrefix, name, value)
			count++
		})
	}
	w.head(key, len(e.Value), at, offset, varintLen(count)+len(w.headers))
	w.records = append(binary.AppendVarint(w.records, int64(len(e.Value))), e.Value...)
	w.records = append(binary.AppendVarint(w.records, count), w.headers...)
}

// tombstone appends a record that says that the key is to be forgotten.
func (w *encoder) tombstone(key []byte, at, offset int64) {
	w.head(key, -1, at, offset, varintLen(0))
	w.records = binary.AppendVarint(w.records, -1)
	w.records = binary.AppendVarint(w.records, 0)
}

// head appends a record up to its key; value is the value's length, or -1 for none.
func (w *encoder) head(key []byte, value int, at, offset int64, headers int) {
	length := 1 + varintLen(at) + varintLen(offset) + varintLen(int64(len(key))) + len(key) +
		varintLen(int64(value)) + max(value, 0) + headers
	w.records = binary.AppendVarint(w.records, int64(length))
	w.records = append(w.records, 0) // attributes
	w.records = binary.AppendVarint(w.records, at)
	w.records = binary.AppendVarint(w.records, offset)
	w.records = append(binary.AppendVarint(w.records, int64(len(key))), key...)
}

func (w *encoder) header(prefix, name, value string) {
	w.headers = binary.AppendVarint(w.headers, int64(len(prefix)+len(name)))
	w.headers = append(append(w.headers, prefix...), name...)
	w.headers = append(binary.AppendVarint(w.headers, int64(len(value))), value...)
}

// varintLen is the length of a zigzag varint.
func varintLen(n int64) int {
	length := 1
	for u := uint64(n)<<1 ^ uint64(n>>63); u >= 0x80; u >>= 7 {
		length++
	}
	return length
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// finish puts the batch's head and its compressed records behind the other batches.
func (w *encoder) finish(b *batch, first, last int64) error {
	b.start = len(w.out)
	head := b.start + lengthPrefix
	w.out = append(w.out, make([]byte, lengthPrefix+batchHead)...)
	codec := w.codec()
	switch {
	case codec == 0:
		w.out = append(w.out, w.records...)
	case w.zstd != nil:
		w.out = w.zstd.EncodeAll(w.records, w.out)
	default:
		w.writer.to = w.out
		z := codec.Codec().NewWriter(&w.writer)
		_, err := z.Write(w.records)
		if closeErr := z.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("compress with %s: %w", w.compression, err)
		}
		w.out = w.writer.to
	}
	b.end = len(w.out)
	w.setHead(b, w.out[head:], codec, first, last)
	return nil
}

// setHead fills in what stands before a batch's records.
func (w *encoder) setHead(b *batch, head []byte, codec client.Compression, first, last int64) {
	be := binary.BigEndian
	be.PutUint32(w.out[b.start:], uint32(len(head)))
	be.PutUint32(head[8:], uint32(len(head)-12)) // bytes after this field
	be.PutUint32(head[12:], ^uint32(0))          // leader's epoch: the broker sets it
	head[16] = 2                                 // format
	be.PutUint16(head[21:], uint16(codec))
	be.PutUint32(head[23:], uint32(b.count-1)) // last offset
	be.PutUint64(head[27:], uint64(first))
	be.PutUint64(head[35:], uint64(last))
	be.PutUint64(head[43:], uint64(b.producer))
	be.PutUint16(head[51:], uint16(b.epoch))
	be.PutUint32(head[53:], uint32(b.sequence))
	be.PutUint32(head[57:], uint32(b.count))
	be.PutUint32(head[17:], crc32.Checksum(head[21:], castagnoli))
}

func (w *encoder) codec() client.Compression {
	switch w.compression {
	case config.CompressionGzip:
		return client.Gzip
	case config.CompressionSnappy:
		return client.Snappy
	case config.CompressionLZ4:
		return client.Lz4
	case config.CompressionZstd:
		return client.Zstd
	default:
		return 0
	}
}

// bytesOf is the encoded batch. It is valid until reset.
func (w *encoder) bytesOf(b *batch) *bytes.Reader { return bytes.NewReader(w.out[b.start:b.end]) }

// appender is a slice as a writer.
type appender struct{ to []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.to = append(a.to, p...)
	return len(p), nil
}
