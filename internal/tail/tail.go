// Package tail owns reading back what kbridge published to JetStream or Kafka: it
// follows streams and topics across lost connections, says what was lost, and prints
// each event for people or as JSON. How a connection is made is the sink's
// (sinks/nats, sinks/kafka); where to connect is the caller's.
package tail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"
)

// Source is a sink that can be read: JetStream or Kafka.
type Source interface {
	// open returns what reads it for r.
	open(r *reader) source
}

// source reads one sink. One goroutine uses it.
type source interface {
	// session is one connection's life: it connects, finds what to read and hands on
	// events until something ends it, also the end of ctx. The next session goes on
	// behind the last event that was handed on.
	session(ctx context.Context) error
	// hopeless tells the causes that do not go away by waiting, at a first attempt.
	hopeless(err error) bool
}

// Options say what to read and who takes it.
type Options struct {
	// Source is what to read.
	Source Source
	// Filter selects subjects or topics, as the source has it; empty is all events.
	Filter string
	// Match picks events, all of which are read; nil picks each. See Match.
	Match func(*Event) bool
	// All reads from the beginning. Else Since is where to begin; if it is
	// zero too, only what is published from now on is read.
	All   bool
	Since time.Time
	// Count ends the reading after so many events; 0 does not.
	Count int
	// Event takes each event, one after the other. Its error ends the reading.
	Event func(*Event) error
	// Note takes what the user should know: one line each time, not for every attempt.
	Note func(text string)
}

const (
	requestTimeout = 5 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 2 * time.Second
)

// errEnough ends the reading after Count events.
var errEnough = errors.New("enough")

// Run reads until ctx ends, Count is reached, or something is wrong that waiting
// does not mend. Of these only the last is an error.
func Run(ctx context.Context, o Options) error {
	r := &reader{Options: o, began: time.Now()}
	s := o.Source.open(r)
	pause := firstPause
	for {
		reached := r.sessions
		err := s.session(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, errEnough):
			return nil
		case isFinal(err) || r.sessions == 0 && (isHopeless(err) || s.hopeless(err)):
			return err
		}
		r.waiting(err)
		if r.sessions > reached {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

// finalError ends the reading although the connection is well.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func isFinal(err error) bool {
	var final finalError
	return errors.Is(err, errEnough) || errors.As(err, &final)
}

// reader is what the sources share. One goroutine uses it.
type reader struct {
	Options
	began    time.Time
	sessions int    // how often there was something to read
	waited   bool   // there was nothing at first
	noted    string // the last cause of waiting that was told; empty while reading
	strange  bool   // told of a message that is no event
	read     int    // events handed on
}

// waiting tells why nothing is read. A cause that repeats is told once.
func (r *reader) waiting(err error) {
	r.waited = true
	text := err.Error()
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		// The local port differs each time.
		text = strings.ReplaceAll(text, op.Error(), op.Op+": "+op.Err.Error())
	}
	if text != r.noted {
		r.noted = text
		r.Note("waiting: " + text)
	}
}

// found tells what is being read: at first, and after every wait.
func (r *reader) found(what string) {
	r.sessions++
	text := "reading again " + what
	if r.sessions == 1 {
		text = "reading " + what
		if !r.All && r.Since.IsZero() {
			text += ", new events only"
		}
	}
	r.noted = ""
	r.Note(text)
}

// hand hands on an event that is picked.
func (r *reader) hand(e *Event) error {
	if r.Match != nil && !r.Match(e) {
		return nil
	}
	if err := r.Event(e); err != nil {
		return finalError{err}
	}
	if r.read++; r.read == r.Count {
		return errEnough
	}
	return nil
}

// passOver tells of the first message that is no event.
func (r *reader) passOver(message string, err error) {
	if !r.strange {
		r.strange = true
		r.Note(fmt.Sprintf("%s is passed over, and others like it: %v", message, err))
	}
}

// isHopeless tells the causes that do not go away by waiting, whatever is read.
func isHopeless(err error) bool {
	var file *fs.PathError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	return errors.As(err, &file) || errors.As(err, &certificate) || errors.As(err, &authority)
}
