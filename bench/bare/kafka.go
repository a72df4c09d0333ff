package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produce sends each event with franz-go, idempotent and acknowledged by all replicas,
// with kbridge's batch size, linger and level of compression.
func produce(broker, topic, compression string, events []message, next func() error) error {
	codec := kgo.ZstdCompression().WithLevel(int(zstd.SpeedFastest))
	if compression == "lz4" {
		codec = kgo.Lz4Compression()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(1<<20), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(16384),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	errs := make(chan error, 1)
	for _, e := range events {
		if err := next(); err != nil {
			return err
		}
		client.Produce(ctx, &kgo.Record{
			Key: e.key, Value: e.value,
			Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/cloudevents+json")}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case errs <- err:
				default: // one says it all
				}
			}
		})
	}
	err = client.Flush(ctx)
	select {
	case refused := <-errs:
		err = errors.Join(err, refused)
	default:
	}
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	return nil
}
