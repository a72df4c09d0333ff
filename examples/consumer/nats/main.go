// Command nats keeps a copy of a cluster's objects from kbridge's stream in NATS JetStream, and serves it:
//
//	go run ./examples/consumer/nats -url nats://127.0.0.1:4222 -stream KBRIDGE
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/examples/consumer/mirror"
)

func main() {
	url := flag.String("url", nats.DefaultURL, "the NATS server's URL")
	stream := flag.String("stream", "KBRIDGE", "the stream")
	name := flag.String("name", "mirror", "the durable consumer's name")
	listen := flag.String("listen", "127.0.0.1:8090", "where the objects are served")
	flag.Parse()
	objects := mirror.New()
	go func() { log.Fatal(http.ListenAndServe(*listen, mirror.Handler(objects))) }()
	// Whatever ends it, the next start begins anew: the copy is in memory.
	log.Fatal(follow(context.Background(), *url, *stream, *name, objects))
}

// follow applies the stream's messages from its first one on.
func follow(ctx context.Context, url, stream, name string, objects *mirror.Mirror) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// What the copy has and what the consumer has acknowledged begin together.
	if err := js.DeleteConsumer(ctx, stream, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable:       name,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		// The next message comes when this one is acknowledged: nothing overtakes one that is delivered again.
		MaxAckPending: 1,
		AckWait:       5 * time.Second,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.WithMessagesErrOnMissingHeartbeat(false)) // it asks again
	if err != nil {
		return err
	}
	for {
		msg, err := messages.Next()
		if err != nil {
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		var e mirror.Event
		if err := json.Unmarshal(msg.Data(), &e); err != nil {
			return fmt.Errorf("message %d is no structured event: %w", meta.Sequence.Stream, err)
		}
		objects.Apply(int64(meta.Sequence.Stream&math.MaxInt64), e)
		if err := msg.Ack(); err != nil {
			log.Print(err) // it comes again
		}
	}
}
