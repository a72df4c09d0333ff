package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/owned"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/sinks"
)

// DeadLetterFile keeps the events that a sink refused for good, one JSON document a
// line in a file. What is there is never overwritten: at its limit the file has to
// be moved away, and until then the refused events wait in the lane.
type DeadLetterFile struct {
	path string
	max  int64

	mu  sync.Mutex
	err error // of the last write, nil once one succeeds
}

var _ sinks.DeadLetters = (*DeadLetterFile)(nil)

// maxDeadLetters is the size in bytes at which a dead letter file takes no more.
const maxDeadLetters = 1 << 30

// OpenDeadLetters prepares the file at path and its folder, so that a place that
// can not be written is known at the start.
func OpenDeadLetters(path string) (*DeadLetterFile, error) {
	d := &DeadLetterFile{path: path, max: maxDeadLetters}
	if err := owned.Dir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("dead letters: %w (set deadLetter.file to a place that can be written)", err)
	}
	f, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("dead letters: %w (set deadLetter.file to a place that can be written)", err)
	}
	return d, f.Close()
}

// CheckDeadLetters fails where OpenDeadLetters would, or where the file takes no more, and
// makes nothing.
func CheckDeadLetters(path string) error {
	if _, err := owned.CheckDir(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := owned.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() >= maxDeadLetters {
		err = fmt.Errorf("%s is full (%d bytes): move it away", path, info.Size())
	}
	return err
}

// Objects can hold what not everybody may read.
const deadLetterMode fs.FileMode = 0o600

// open opens the file for each write: it may have been moved away in between.
func (d *DeadLetterFile) open() (*os.File, error) {
	return owned.OpenFile(d.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, deadLetterMode)
}

// Write stores the event and returns when it is on the disk. It begins nothing after
// ctx has ended; a disk that hangs holds it up all the same.
func (d *DeadLetterFile) Write(ctx context.Context, sink string, e *event.Event, reason error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("dead letters: %w", context.Cause(ctx))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = d.write(sink, e, reason)
	return d.err
}

func (d *DeadLetterFile) write(sink string, e *event.Event, reason error) (err error) {
	line, err := sinks.EncodeDeadLetter(sink, e, reason)
	if err != nil {
		return err
	}
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

// Target is where they are: the file.
func (d *DeadLetterFile) Target() string { return d.path }

// Err is what keeps dead letters from being written, or nil.
func (d *DeadLetterFile) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// giveUp lets an entry be a dead letter. The lock is held.
func (l *Lane) giveUp(e *entry, reason error) {
	e.reason = reason
	l.dead = append(l.dead, e)
	select {
	case l.refused <- struct{}{}:
	default: // it has not taken the last one yet
	}
}

// withhold makes the last marker of a snapshot a dead letter where the first one is, and
// says whether it has: a consumer that sweeps at the end of a snapshot must know since
// when it has had no event of an object.
func (l *Lane) withhold(e *entry) bool {
	if e.event.Type != event.SnapshotCompleted {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	why, is := l.unannounced[e.snapshot]
	if is {
		delete(l.unannounced, e.snapshot)
		l.giveUp(e, fmt.Errorf("the marker that its snapshot began is a dead letter: %w", why))
	}
	return is
}

// nextDead takes out the oldest event that is to be a dead letter, or returns nil.
func (l *Lane) nextDead() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dead) == 0 {
		return nil
	}
	e := l.dead[0]
	l.dead[0] = nil
	l.dead = l.dead[1:]
	return e
}

// bury writes the lane's dead letters until ctx ends. One that can not be written
// is tried again for ever: its object's later events and the position wait for it.
func (l *Lane) bury(ctx context.Context) {
	for ctx.Err() == nil {
		e := l.nextDead()
		if e == nil {
			select {
			case <-l.refused:
			case <-ctx.Done():
			}
			continue
		}
		if !l.write(ctx, e) {
			return
		}
		l.buried(e)
	}
}

// write writes one dead letter, and returns false when ctx ended before it was written.
func (l *Lane) write(ctx context.Context, e *entry) bool {
	for attempts := 1; ; attempts++ {
		err := l.opts.DeadLetters.Write(ctx, l.Name(), &e.event, e.reason)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		l.metrics.deadLetterErrors.Inc()
		if attempts == 1 {
			l.log.Error("a dead letter can not be written, trying again", "id", e.event.ID, "reason", e.reason, "err", err)
		}
		select {
		case <-time.After(backoff(attempts)):
		case <-ctx.Done():
			return false
		}
	}
}

// buried counts and names an event that is in the dead letters, and lets go what waited
// for it.
func (l *Lane) buried(e *entry) {
	text, count := "the sink refused an event for good: it is in the dead letters", e.port.metrics.refused[e.event.Type]
	var poison *poisonError
	isPoison := errors.As(e.reason, &poison)
	if isPoison {
		text, count = "an event failed again and again while others passed: it is in the dead letters", e.port.metrics.poison[e.event.Type]
	}
	count.Inc()
	now := time.Now()
	l.tell(e, now, status.DeadLetter, e.reason.Error())
	e.span.DeadLetter(e.reason)
	l.log.Warn(text, "id", e.event.ID, "resource", e.event.Resource.Name(), "namespace", e.event.Key.Namespace, "name", e.event.Key.Name, "reason", e.reason)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.deadLetters++
	l.tally.lastDead = now.UTC()
	if isPoison && e.next != nil {
		// It has waited for as long: it has to fail once more, or the object's events would
		// come faster than they are given up.
		e.next.suspect = e.suspect
		e.next.suspect.acknowledged = l.acknowledged
	}
	if e.event.Type == event.SnapshotStarted {
		l.unannounced[e.snapshot] = e.reason
	}
	l.settle(e, false)
}
