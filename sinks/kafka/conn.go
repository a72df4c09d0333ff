package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks/credentials"
)

const (
	// connectTimeout bounds the TCP connection, handshakeTimeout all that follows
	// before the first request of ours: TLS, versions and SASL with its token.
	connectTimeout   = 5 * time.Second
	handshakeTimeout = 10 * time.Second
	// idleDoubt is how long a connection has to be idle for its end to be no failure:
	// brokers close such ones (connections.max.idle.ms), and so do firewalls.
	idleDoubt = 500 * time.Millisecond
)

// dialer makes connections as the configuration says. It is safe for concurrent use.
type dialer struct {
	cfg      config.Kafka
	clientID string
	login    sasl.Mechanism // nil: none
	worked   atomic.Bool    // a connection was made with these settings
}

func newDialer(cfg config.Kafka, clientID string) *dialer {
	d := &dialer{cfg: cfg, clientID: clientID}
	if cfg.SASL != nil {
		d.login = newLogin(cfg.SASL)
	}
	return d
}

// conn is one connection to a broker, ready for requests. One goroutine uses it.
type conn struct {
	address string
	raw     net.Conn
	offered map[protocol.ApiKey]int16 // the version of each request that both sides know
	kafka   *protocol.Conn
	end     func() bool
	expires time.Time // the broker ends the session then; zero: never
	used    time.Time // when it was made, or its last answer came
}

// dial connects and logs in. Files of certificates and secrets are read for each
// connection, so that what they hold can change. The connection ends with ctx.
func (d *dialer) dial(ctx context.Context, address string) (*conn, error) {
	raw, err := d.open(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &conn{address: address, raw: raw, kafka: protocol.NewConn(&firstBytes{Conn: raw}, d.clientID)}
	c.end = context.AfterFunc(ctx, func() { raw.Close() })
	if err := c.shakeHands(ctx, d); err != nil {
		c.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	c.used = time.Now()
	return c, nil
}

// open makes the TCP connection, with TLS where it is configured.
func (d *dialer) open(ctx context.Context, address string) (net.Conn, error) {
	var secure *tls.Config
	if d.cfg.TLS != nil {
		var err error
		if secure, err = credentials.TLS(d.cfg.TLS); err != nil {
			return nil, err
		}
	}
	raw, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "tcp", address)
	if err != nil || secure == nil {
		return raw, err
	}
	if secure.ServerName == "" {
		secure.ServerName, _, _ = net.SplitHostPort(address)
	}
	conn := tls.Client(raw, secure)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("TLS handshake: %w", d.hint(err, handshakeHint(err)))
	}
	return conn, nil
}

// shakeHands agrees on versions and logs in. A request that is never answered ends
// with the deadline, as do the exchanges of SASL.
func (c *conn) shakeHands(ctx context.Context, d *dialer) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = c.raw.SetDeadline(deadline)
	m, err := c.kafka.RoundTrip(&apiversions.Request{})
	if err != nil {
		return fmt.Errorf("ask for versions: %w", d.hint(err, versionsHint(err, d.cfg.TLS != nil)))
	}
	answer := m.(*apiversions.Response)
	if err := brokerError(answer.ErrorCode, ""); err != nil {
		return fmt.Errorf("ask for versions: %w", err)
	}
	versions := make(map[protocol.ApiKey]int16, len(answer.ApiKeys))
	for _, k := range answer.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	c.kafka.SetVersions(versions)
	c.offered = versions
	if d.login != nil {
		if err := c.logIn(ctx, d); err != nil {
			return fmt.Errorf("log in with %s: %w", d.login.Name(), err)
		}
	}
	return c.raw.SetDeadline(time.Time{})
}

func (c *conn) logIn(ctx context.Context, d *dialer) error {
	login := d.login
	host, portText, err := net.SplitHostPort(c.address)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return fmt.Errorf("port %s: %w", portText, err)
	}
	m, err := c.kafka.RoundTrip(&saslhandshake.Request{Mechanism: login.Name()})
	if err != nil {
		return d.hint(err, closedHint(err, "perhaps the listener takes no SASL"))
	}
	handshake := m.(*saslhandshake.Response)
	switch client.Error(handshake.ErrorCode) {
	case client.UnsupportedSASLMechanism:
		return fmt.Errorf("the broker does not know the mechanism, it takes %s: %w",
			strings.Join(handshake.Mechanisms, ", "), brokerError(handshake.ErrorCode, ""))
	case client.IllegalSASLState:
		return fmt.Errorf("the listener takes no SASL: %w", brokerError(handshake.ErrorCode, ""))
	}
	if err := brokerError(handshake.ErrorCode, ""); err != nil {
		return err
	}
	session, response, err := login.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: port}))
	if err != nil {
		return err
	}
	for done := false; !done; {
		m, err := c.kafka.RoundTrip(&saslauthenticate.Request{AuthBytes: response})
		if err != nil {
			// Brokers from before 1.0 say no more when they refuse somebody.
			return d.hint(err, closedHint(err, "perhaps the login was refused"))
		}
		answer := m.(*saslauthenticate.Response)
		if err := brokerError(answer.ErrorCode, answer.ErrorMessage); err != nil {
			return err
		}
		if answer.SessionLifetimeMs > 0 {
			// The broker cuts a connection that is used for longer without a new login.
			c.expires = time.Now().Add(time.Duration(answer.SessionLifetimeMs) * time.Millisecond * 4 / 5)
		}
		if done, response, err = session.Next(ctx, answer.AuthBytes); err != nil {
			return err
		}
	}
	return nil
}

// offers says that the broker knows a kind of request.
func (c *conn) offers(key protocol.ApiKey) bool {
	_, ok := c.offered[key]
	return ok
}

// expired says that a new connection should be made before the next request.
func (c *conn) expired(now time.Time) bool { return !c.expires.IsZero() && now.After(c.expires) }

// ask sends a request and waits for its answer. After an error the connection is of
// no use. An idleError says that it had ended while nobody used it.
func (c *conn) ask(req protocol.Message, timeout time.Duration) (protocol.Message, error) {
	idle := time.Since(c.used) >= idleDoubt
	if idle && c.ended() {
		return nil, &idleError{err: io.EOF}
	}
	_ = c.raw.SetDeadline(time.Now().Add(timeout)) // fails where the request does
	m, err := c.kafka.RoundTrip(req)
	switch {
	case err == nil:
		c.used = time.Now()
		return m, nil
	case idle && closedByPeer(err):
		return nil, &idleError{err: err, sent: true}
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return nil, &timeoutError{after: timeout}
	}
	return nil, err
}

// idleError is the end of a connection that was idle, which another one makes good.
type idleError struct {
	err  error
	sent bool // the request had been sent: it may have been read before the end
}

func (e *idleError) Error() string { return "closed while it was idle: " + e.err.Error() }
func (e *idleError) Unwrap() error { return e.err }

func endedIdle(err error) bool {
	var idle *idleError
	return errors.As(err, &idle)
}

func (c *conn) close() {
	c.end()
	c.raw.Close()
}

// timeoutError is a request without an answer.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.after) }
func (e *timeoutError) Timeout() bool { return true }

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// firstBytes looks at what the other side says first: a listener of another kind
// says something that the decoder would take for the length of a huge message.
type firstBytes struct {
	net.Conn
	seen atomic.Bool
}

func (f *firstBytes) Read(p []byte) (int, error) {
	const size = 4 // of a message's length
	if f.seen.Load() || len(p) < size {
		return f.Conn.Read(p)
	}
	f.seen.Store(true)
	n, err := io.ReadFull(f.Conn, p[:size])
	if n == size {
		switch length := binary.BigEndian.Uint32(p); {
		case (p[0] == 0x15 || p[0] == 0x16) && p[1] == 0x03: // an alert or a handshake
			return 0, errSpeaksTLS
		case string(p[:size]) == "HTTP":
			return 0, errSpeaksHTTP
		case length > 1<<20:
			return 0, errNoKafka
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

var (
	errSpeaksTLS  = errors.New("the listener speaks TLS, and the configuration has no tls")
	errSpeaksHTTP = errors.New("an HTTP server listens there, not Kafka")
	errNoKafka    = errors.New("what listens there does not speak Kafka")
)

// hint adds what an error that says little probably means, unless the settings were
// good before.
func (d *dialer) hint(err error, hint string) error {
	if hint == "" || d.worked.Load() {
		return err
	}
	return fmt.Errorf("%w (%s)", err, hint)
}

func closedHint(err error, hint string) string {
	if closedByPeer(err) {
		return hint
	}
	return ""
}

func handshakeHint(err error) string {
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header):
		return "perhaps the listener has no TLS"
	case closedByPeer(err):
		return "perhaps the listener has no TLS, or wants a client certificate"
	}
	return ""
}

func versionsHint(err error, secure bool) string {
	if !secure {
		return closedHint(err, "perhaps the listener wants TLS")
	}
	// With TLS 1.3 the server looks at our certificate after our handshake has ended.
	return closedHint(err, "perhaps the listener wants another client certificate")
}
