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
	conn    *client.Conn

	mu  sync.Mutex
	err error
}

var _ sinks.DeadLetters = (*DeadLetters)(nil)

// OpenDeadLetters prepares dead letters for the subject, with the sink's servers and
// credentials. It contacts nothing.
func OpenDeadLetters(cfg config.NATS, subject string) *DeadLetters {
	return &DeadLetters{cfg: cfg, subject: subject}
}

// Write publishes one letter and waits for a stream's acknowledgement.
func (d *DeadLetters) Write(sink string, e *event.Event, reason error) error {
	err := d.write(sink, e, reason)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	return err
}

func (d *DeadLetters) write(sink string, e *event.Event, reason error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.AckTimeout)
	defer cancel()
	if d.conn == nil || d.conn.IsClosed() {
		// The connection outlives this letter; it has no other owner than d.
		conn, err := Dial(context.Background(), d.cfg)
		if err != nil {
			return fmt.Errorf("dead letters: %w", err)
		}
		d.conn = conn
	}
	letter, err := sinks.EncodeDeadLetter(sink, e, reason)
	if err != nil {
		return err
	}
	if int64(len(letter)) > d.conn.MaxPayload()-headerRoom && !e.Truncated {
		// What was too large for the stream is too large for this one: its metadata is
		// what can be kept here.
		short := *e
		if err := short.Truncate(); err != nil {
			return err
		}
		if letter, err = sinks.EncodeDeadLetter(sink, &short, reason); err != nil {
			return err
		}
	}
	js, err := jetstream.New(d.conn)
	if err != nil {
		return fmt.Errorf("dead letters: %w", err)
	}
	m := client.NewMsg(d.subject)
	m.Data = letter
	m.Header.Set(client.MsgIdHdr, "dead/"+sink+"/"+e.DedupID())
	if _, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0)); err != nil {
		d.conn.Close() // the next attempt begins anew
		return fmt.Errorf("dead letters: publish to %s: %w", d.subject, err)
	}
	return nil
}

// Err implements sinks.DeadLetters.
func (d *DeadLetters) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Close ends the connection.
func (d *DeadLetters) Close() {
	if d.conn != nil {
		d.conn.Close()
	}
}
