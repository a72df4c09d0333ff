package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// DeadLetters keeps the events that a sink refused for good, one JSON document a
// line in a file. What is there is never overwritten: at its limit the file has to
// be moved away, and until then the refused events wait in the lane.
type DeadLetters struct {
	path string
	max  int64

	mu  sync.Mutex
	err error // of the last write, nil once one succeeds
}

// maxDeadLetters is the size in bytes at which a dead letter file takes no more.
const maxDeadLetters = 1 << 30

// OpenDeadLetters prepares the file at path and its folder, so that a place that
// can not be written is known at the start.
func OpenDeadLetters(path string) (*DeadLetters, error) {
	d := &DeadLetters{path: path, max: maxDeadLetters}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("dead letters: %w (set deadLetter.file to a place that can be written)", err)
	}
	f, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w (set deadLetter.file to a place that can be written)", err)
	}
	return d, f.Close()
}

// Objects can hold what not everybody may read.
const deadLetterMode fs.FileMode = 0o600

// open opens the file for each write: it may have been moved away in between.
func (d *DeadLetters) open() (*os.File, error) {
	return os.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, deadLetterMode)
}

// deadLetter is one line of the file.
type deadLetter struct {
	Time   time.Time       `json:"time"`
	Sink   string          `json:"sink"`
	Reason string          `json:"reason"`
	Event  json.RawMessage `json:"event"` // a structured CloudEvent
}

// Write stores the event and returns when it is on the disk.
func (d *DeadLetters) Write(sink string, e *event.Event, reason error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = d.write(sink, e, reason)
	return d.err
}

func (d *DeadLetters) write(sink string, e *event.Event, reason error) (err error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // the event stays as it was
	letter := deadLetter{Time: time.Now().UTC(), Sink: sink, Reason: reason.Error(), Event: e.AppendStructured(nil)}
	if err := encoder.Encode(letter); err != nil { // with a line feed behind it
		return fmt.Errorf("encode a dead letter: %w", err)
	}
	line := encoded.Bytes()
	f, err := d.open()
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	size := info.Size()
	if size+int64(len(line)) > d.max && size > 0 {
		return fmt.Errorf("dead letters: %s is full (%d of %d bytes): move it away", d.path, size, d.max)
	}
	if size > 0 {
		// A process that was killed may have left a part of a line.
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return fmt.Errorf("dead letters: %w", err)
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.Write(line); err != nil {
		// A part of a line must not spoil the next one.
		return errors.Join(fmt.Errorf("dead letters: %w", err), f.Truncate(size))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	return nil
}

// Err is what keeps dead letters from being written, or nil.
func (d *DeadLetters) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// bury writes the lane's dead letters until ctx ends. One that can not be written
// is tried again for ever: its object's later events and the position wait for it.
func (l *Lane) bury(ctx context.Context) {
	for {
		var e *entry
		select {
		case e = <-l.dead:
		case <-ctx.Done():
			return
		}
		for attempts := 1; ; attempts++ {
			err := l.opts.DeadLetters.Write(l.Name(), &e.event, e.reason)
			if err == nil {
				break
			}
			l.metrics.deadLetterErrors.Inc()
			if attempts == 1 {
				l.log.Error("a dead letter can not be written, trying again", "id", e.event.ID, "reason", e.reason, "err", err)
			}
			select {
			case <-time.After(backoff(attempts)):
			case <-ctx.Done():
				return
			}
		}
		e.port.metrics.deadLetters.Inc()
		l.log.Warn("the sink refused an event for good: it is in the dead letters",
			"id", e.event.ID, "resource", e.event.Resource.Name(), "namespace", e.event.Key.Namespace, "name", e.event.Key.Name, "reason", e.reason)
		l.mu.Lock()
		l.settle(e)
		l.mu.Unlock()
	}
}
