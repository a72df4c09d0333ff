package kafka

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/kbridge-io/kbridge/config"
)

// Connector makes connections with the sink's login and TLS settings, for those who
// read what it publishes with requests of their own. It is safe for concurrent use.
type Connector struct{ dialer *dialer }

// NewConnector returns a connector that calls itself clientID.
func NewConnector(cfg config.Kafka, clientID string) *Connector {
	return &Connector{newDialer(cfg, clientID)}
}

// Connect connects to a broker and logs in. The connection ends with ctx.
func (c *Connector) Connect(ctx context.Context, address string) (*Connection, error) {
	conn, err := c.dialer.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Connection{conn}, nil
}

// Connection is a connection to one broker. One goroutine uses it.
type Connection struct{ conn *conn }

// Ask sends a request and waits for its answer. After an error the connection is of
// no use.
func (c *Connection) Ask(req protocol.Message, timeout time.Duration) (protocol.Message, error) {
	return c.conn.ask(req, timeout)
}

// Expired says that the login ends soon, and the connection with it.
func (c *Connection) Expired() bool { return c.conn.expired(time.Now()) }

// Close ends the connection.
func (c *Connection) Close() { c.conn.close() }
