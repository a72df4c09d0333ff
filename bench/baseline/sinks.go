package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/segmentio/kafka-go"
)

// open returns how objects get to the sink.
func open(ctx context.Context, sink, address, name string, acknowledged, failed func()) (sender, error) {
	switch sink {
	case "stdout":
		return stdout(acknowledged), nil
	case "nats":
		return stream(ctx, address, name, acknowledged, failed)
	case "kafka":
		return topic(address, name, acknowledged, failed), nil
	default:
		return nil, fmt.Errorf("unknown sink %q", sink)
	}
}

func stdout(acknowledged func()) sender {
	return func(_, _ string, value []byte) error {
		_, err := os.Stdout.Write(append(value, '\n'))
		if err == nil {
			acknowledged()
		}
		return err
	}
}

func stream(ctx context.Context, url, name string, acknowledged, failed func()) (sender, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc,
		jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) { acknowledged() }),
		jetstream.WithPublishAsyncErrHandler(func(jetstream.JetStream, *nats.Msg, error) { failed() }))
	if err != nil {
		return nil, err
	}
	if _, err := js.Stream(ctx, name); err != nil {
		return nil, fmt.Errorf("find stream %s: %w", name, err)
	}
	return func(namespace, name string, value []byte) error {
		for {
			_, err := js.PublishAsync("k8s.bench."+namespace+"."+name, value)
			if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
				return err
			}
		}
	}, nil
}

func topic(broker, name string, acknowledged, failed func()) sender {
	w := &kafka.Writer{
		Addr: kafka.TCP(broker), Topic: name, Balancer: &kafka.Hash{},
		RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd, BatchTimeout: 5 * time.Millisecond,
		BatchSize: 1000, BatchBytes: 1 << 20,
		Async: true, // its queue has no limit
		Completion: func(messages []kafka.Message, err error) {
			for range messages {
				if err != nil {
					failed()
				} else {
					acknowledged()
				}
			}
		},
	}
	return func(namespace, name string, value []byte) error {
		return w.WriteMessages(context.Background(), kafka.Message{Key: []byte(namespace + "/" + name), Value: value})
	}
}
