package nats

import (
	"context"
	"errors"
	"fmt"

	client "github.com/nats-io/nats.go"

	"github.com/kbridge-io/kbridge/config"
)

// Dial connects a reader of what a sink publishes, with the sink's credentials and
// TLS settings; their files are read anew. It tries each server once, in random
// order. The connection does not come back by itself: when it is closed, dial
// again. It lives until ctx ends, at the longest.
func Dial(ctx context.Context, cfg config.NATS, options ...client.Option) (*client.Conn, error) {
	urls, err := parseURLs(cfg.URLs)
	if err != nil {
		return nil, fmt.Errorf("urls: %w", err)
	}
	s := &Sink{cfg: cfg, urls: urls}
	return tryEach(ctx, urls, func(srv server) (*client.Conn, error) { return s.dialReader(ctx, srv, options) })
}

func (s *Sink) dialReader(ctx context.Context, srv server, more []client.Option) (*client.Conn, error) {
	options, err := s.credentials(srv)
	if err != nil {
		return nil, err
	}
	d := &dialer{ctx: ctx}
	options = append(options,
		client.NoReconnect(),
		client.Timeout(connectTimeout),
		client.SetCustomDialer(d),
		client.PingInterval(pingInterval),
		client.MaxPingsOutstanding(2),
	)
	nc, err := client.Connect(srv.URL.String(), append(options, more...)...)
	if err != nil {
		d.close()
		if errors.Is(err, client.ErrNoServers) && d.failure() != nil {
			return nil, d.failure() // what the library's error stands for
		}
		return nil, err
	}
	return nc, nil
}
