package nats

import (
	"context"
	"fmt"
	"sync"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// headerRoom is left for a letter's headers, in bytes.
const headerRoom = 4096

// DeadLetters publishes dead letters to a subject that some stream stores. It has a
// connection of its own, made for the first letter: there should be few.
type DeadLetters struct {
	cfg     config.NATS
	subject string
	conn    *client.Conn // nil: there is none
	end     func()       // ends conn at once

	mu  sync.Mutex
	err error
}

var _ sinks.DeadLetters = (*DeadLetters)(nil)

// Target is where they are: the subject.
func (d *DeadLetters) Target() string { return d.subject }

// OpenDeadLetters prepares dead letters for the subject, with the sink's servers and
// credentials. It contacts nothing.
func OpenDeadLetters(cfg config.NATS, subject string) *DeadLetters {
	return &DeadLetters{cfg: cfg, subject: subject}
}

// Write publishes one letter and waits for a stream's acknowledgement.
func (d *DeadLetters) Write(ctx context.Context, sink string, e *event.Event, reason error) error {
	err := d.write(ctx, sink, e, reason)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	return err
}

func (d *DeadLetters) write(ctx context.Context, sink string, e *event.Event, reason error) error {
	if err := d.connect(ctx); err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	letter, err := d.encode(sink, e, reason)
	if err != nil {
		return err
	}
	js, err := JetStream(d.conn, d.cfg)
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	m := client.NewMsg(d.subject)
	m.Data = letter
	m.Header.Set(client.MsgIdHdr, "dead/"+sink+"/"+e.DedupID())
	ctx, cancel := context.WithTimeout(ctx, d.cfg.AckTimeout)
	defer cancel()
	if _, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0)); err != nil {
		d.Close() // the next attempt begins anew
		return fmt.Errorf("dead letters: publish to %s: %w", d.subject, err)
	}
	return nil
}

// connect makes a connection unless there is one. It outlives the letter that it is
// made for, whose context bounds how long that takes.
func (d *DeadLetters) connect(ctx context.Context) error {
	if d.conn != nil && !d.conn.IsClosed() {
		return nil
	}
	d.Close()
	life, end := context.WithCancel(context.Background())
	inTime := context.AfterFunc(ctx, end)
	conn, err := Dial(life, d.cfg)
	if !inTime() {
		end()
		if err == nil {
			conn.Close()
		}
		return context.Cause(ctx)
	}
	if err != nil {
		end()
		return err
	}
	d.conn, d.end = conn, end
	return nil
}

// encode makes the letter. What was too large for the sink's stream is too large for
// this one: its metadata is what can be kept here, or that alone which names the object.
func (d *DeadLetters) encode(sink string, e *event.Event, reason error) ([]byte, error) {
	limit := maxPayload(d.conn, d.cfg) - headerRoom
	letter, err := sinks.EncodeDeadLetter(sink, e, reason)
	if err != nil || int64(len(letter)) <= limit {
		return letter, err
	}
	short := *e
	if !e.Truncated {
		if err := short.Truncate(); err != nil {
			return nil, err
		}
		if letter, err = sinks.EncodeDeadLetter(sink, &short, reason); err != nil || int64(len(letter)) <= limit {
			return letter, err
		}
	}
	data := e.Resource.Remains(e.Key.Namespace, e.Key.Name, e.UID, e.ResourceVersion).Body
	if e.Resource.Change {
		data = append(append([]byte(`{"object":`), data...), '}')
	}
	short.Format, short.Value, short.Truncated = event.Binary, data, true
	return sinks.EncodeDeadLetter(sink, &short, reason)
}

// Err implements sinks.DeadLetters.
func (d *DeadLetters) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Close ends the connection. No Write may be running.
func (d *DeadLetters) Close() {
	if d.conn == nil {
		return
	}
	d.end() // so that nothing waits for a server that does not read
	d.conn.Close()
	d.conn = nil
}
