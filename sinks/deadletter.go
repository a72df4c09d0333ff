package sinks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// DeadLetters keeps the events that a sink refused for good. One goroutine uses it.
type DeadLetters interface {
	// Write keeps the event, with why it was refused, and returns when it is kept for
	// good: on a disk, or acknowledged by a broker. It returns early, with an error, when
	// ctx ends; whether the event is kept is then not known.
	Write(ctx context.Context, sink string, e *event.Event, reason error) error
	// Err is the error of the last Write, nil if it had none. Any goroutine may call it.
	Err() error
}

// EncodeDeadLetter returns a dead letter as one line of JSON, the line feed included.
func EncodeDeadLetter(sink string, e *event.Event, reason error) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false) // the event stays as it was
	if err := encoder.Encode(struct {
		Time   time.Time       `json:"time"`
		Sink   string          `json:"sink"`
		Reason string          `json:"reason"`
		Event  json.RawMessage `json:"event"` // structured
	}{time.Now().UTC(), sink, reason.Error(), e.AppendStructured(nil)}); err != nil {
		return nil, fmt.Errorf("encode a dead letter: %w", err)
	}
	return line.Bytes(), nil
}
