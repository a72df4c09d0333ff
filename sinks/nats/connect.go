package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks/credentials"
)

// connectTimeout bounds one attempt at one address, handshakes included.
const connectTimeout = 5 * time.Second

// A connection that says nothing for three of these is given up.
const pingInterval = 10 * time.Second

// server is where a NATS server listens. Its String has no user and no password.
type server struct{ *url.URL }

func (s server) String() string {
	u := *s.URL
	u.User = nil
	return u.String()
}

func parseURLs(list []string) ([]server, error) {
	if len(list) == 0 {
		return nil, errors.New("none is given")
	}
	urls := make([]server, len(list))
	for i, s := range list {
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil {
			// The parser's error repeats the URL, and with it a password.
			return nil, fmt.Errorf("the %s is no URL", ordinal(i+1))
		}
		urls[i] = server{u}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return nil, fmt.Errorf("%s: expected nats://, tls://, ws:// or wss://", urls[i])
		}
		if u.Hostname() == "" {
			return nil, fmt.Errorf("%s: no host", urls[i])
		}
	}
	return urls, nil
}

func ordinal(n int) string {
	switch n {
	case 1:
		return "first"
	case 2:
		return "second"
	case 3:
		return "third"
	}
	return fmt.Sprintf("%dth", n)
}

// connect tries each known server once, in random order.
func (s *Sink) connect(ctx context.Context) (*session, error) {
	ses, err := tryEach(ctx, s.servers(), func(srv server) (*session, error) {
		ses, err := s.dial(ctx, srv)
		if err != nil && ctx.Err() == nil {
			s.count(&s.stats.Failures.Connect)
		}
		return ses, err
	})
	if err != nil {
		return nil, err
	}
	s.learn(ses)
	return ses, nil
}

// tryEach returns what connecting to one of the servers gave, tried in random order, or
// the causes why none could be connected to.
func tryEach[T any](ctx context.Context, servers []server, connect func(server) (T, error)) (made T, causes error) {
	for _, i := range rand.Perm(len(servers)) {
		made, err := connect(servers[i])
		if err == nil {
			return made, nil
		}
		err = fmt.Errorf("connect to %s: %w", servers[i], plain(err))
		if causes == nil {
			causes = err
		} else {
			causes = fmt.Errorf("%w; %w", causes, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return made, causes
}

// dial makes one attempt. Files are read for each, so that what they hold can change.
func (s *Sink) dial(ctx context.Context, srv server) (*session, error) {
	ses := &session{
		sink: s, server: srv,
		closed: make(chan struct{}), gone: make(chan struct{}), suspect: make(chan struct{}, 1),
		queue: make(chan item, windowEvents), pending: make(map[uint64]pending),
	}
	options, err := s.credentials(srv)
	if err != nil {
		return nil, err
	}
	d := &dialer{ctx: ctx}
	options = append(options,
		client.Name("kbridge/"+s.name),
		client.NoReconnect(),
		client.Timeout(connectTimeout),
		client.SetCustomDialer(d),
		client.PingInterval(pingInterval),
		client.MaxPingsOutstanding(2),
		client.FlusherTimeout(s.cfg.AckTimeout),
		client.ClosedHandler(func(*client.Conn) { close(ses.closed) }),
		client.ErrorHandler(func(_ *client.Conn, _ *client.Subscription, err error) { ses.onError(err) }),
	)
	nc, err := client.Connect(srv.URL.String(), options...)
	if err != nil {
		d.close()
		if errors.Is(err, client.ErrNoServers) && d.failure() != nil {
			return nil, d.failure() // what the library's error stands for
		}
		return nil, err
	}
	ses.nc, ses.raw, ses.limit = nc, d, int64(s.cfg.MaxPayload)
	ses.inbox = nc.NewInbox() + "."
	return ses, nil
}

// maxPayload is how large a message may be, with its headers.
func maxPayload(nc *client.Conn, cfg config.NATS) int64 {
	if cfg.MaxPayload > 0 {
		return min(nc.MaxPayload(), int64(cfg.MaxPayload))
	}
	return nc.MaxPayload()
}

// servers returns the configured servers, and those of their cluster that they
// told of, so that one of them alone in the configuration is not needed for ever.
func (s *Sink) servers() []server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(s.urls[:len(s.urls):len(s.urls)], s.discovered...)
}

func (s *Sink) learn(ses *session) {
	var found []server
	for _, address := range ses.nc.DiscoveredServers() {
		u, err := url.Parse(address)
		if err != nil {
			continue
		}
		u.Scheme, u.User = ses.server.Scheme, ses.server.User
		found = append(found, server{u})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discovered = found
	s.stats.Connects++
	s.window = newWindow(s.cfg.AckTimeout)
}

// credentials reads who we are, how the server proves who it is, and where we may be
// answered.
func (s *Sink) credentials(srv server) ([]client.Option, error) {
	var options []client.Option
	if s.cfg.InboxPrefix != "" {
		options = append(options, client.CustomInboxPrefix(s.cfg.InboxPrefix))
	}
	if s.cfg.Creds != "" {
		// Not read by us; but its absence would be told as a missing signature.
		if _, err := os.Stat(s.cfg.Creds); err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
		options = append(options, client.UserCredentials(s.cfg.Creds))
	}
	if s.cfg.NKey != "" {
		o, err := client.NkeyOptionFromSeed(s.cfg.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey: %w", err)
		}
		options = append(options, o)
	}
	if s.cfg.TokenFile != "" {
		token, err := credentials.Secret(s.cfg.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
		options = append(options, client.Token(token))
	}
	if s.cfg.User != "" {
		var password string
		if s.cfg.PasswordFile != "" {
			var err error
			if password, err = credentials.Secret(s.cfg.PasswordFile); err != nil {
				return nil, fmt.Errorf("read password: %w", err)
			}
		}
		options = append(options, client.UserInfo(s.cfg.User, password))
	}
	if s.cfg.TLS != nil {
		c, err := credentials.TLS(s.cfg.TLS)
		if err != nil {
			return nil, err
		}
		if c.ServerName == "" && net.ParseIP(srv.Hostname()) != nil && !s.configured(srv) {
			// A discovered server is known by its address; its certificate is for the name.
			c.ServerName = s.urls[0].Hostname()
		}
		options = append(options, client.Secure(c))
	}
	return options, nil
}

func (s *Sink) configured(srv server) bool {
	for _, u := range s.urls {
		if u.Host == srv.Host {
			return true
		}
	}
	return false
}

// dialer dials for the client, keeps the connection at hand so that it can be
// cut, and remembers why it could not be made, which the client does not tell.
type dialer struct {
	ctx  context.Context
	mu   sync.Mutex
	conn net.Conn
	stop func() bool // of what ends a handshake with ctx
	err  error
}

// Dial implements the client's CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.err = err
		return nil, err
	}
	d.conn = conn
	// A handshake that hangs ends with the sink. A deadline would not do: the client sets
	// its own.
	d.stop = context.AfterFunc(d.ctx, func() { conn.Close() })
	return conn, nil
}

func (d *dialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// close cuts the connection, if there is one.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.stop()
		d.conn.Close()
	}
}

// plain puts the client's kinds of a refused login into its own words.
func plain(err error) error {
	for _, known := range []error{client.ErrAuthorization, client.ErrAuthExpired, client.ErrAuthRevoked} {
		if errors.Is(err, known) {
			return known
		}
	}
	return err
}
