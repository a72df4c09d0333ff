package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// publish sends each event as kbridge's sink does, without one's place in the other's
// queue: nats.go's own asynchronous publishing, its window as it comes.
func publish(url, stream string, events []message, next func() error) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	var refused error // set in the client's goroutine, before PublishAsyncComplete closes
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { refused = err }))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if _, err := js.Stream(ctx, stream); err != nil {
		return fmt.Errorf("find stream %s: %w", stream, err)
	}
	for _, e := range events {
		if err := next(); err != nil {
			return err
		}
		m := &nats.Msg{Subject: e.subject, Data: e.value, Header: nats.Header{
			jetstream.MsgIDHeader:          {e.id},
			jetstream.ExpectedStreamHeader: {stream},
			"content-type":                 {"application/cloudevents+json"},
		}}
		for {
			_, err := js.PublishMsgAsync(m)
			if err == nil {
				break
			}
			if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
				return fmt.Errorf("publish: %w", err)
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return refused
	case <-ctx.Done():
		return ctx.Err()
	}
}
