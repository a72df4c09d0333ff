//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kbridge-io/kbridge/internal/kafkabroker"
)

// partitions are those of a topic that kbridge makes.
const partitions = 6

// javaOptions are what Kafka's own script starts a broker with. Those of the brokers in
// tests, which these replace, are for processes that live for seconds: little memory, and
// no compiler but the quick one.
const javaOptions = "-Xms1g -Xmx1g -XX:-UseSerialGC -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:TieredStopAtLevel=4"

// topic is a place in Kafka: a topic that nobody has produced to.
type topic struct {
	file
	cluster     *kafkabroker.Cluster
	address     string
	name        string
	compression string
}

// openTopic starts a broker where none runs, and makes a topic as kbridge would.
func openTopic(compression string) opener {
	return func(ctx context.Context, b *bench) (place, error) {
		if b.kafka == nil {
			var err error
			if err = os.Setenv("_JAVA_OPTIONS", javaOptions); err != nil {
				return nil, err
			}
			if b.kafka, err = kafkabroker.Start(ctx, kafkabroker.Options{}); err != nil {
				return nil, err
			}
		}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		b.starts++
		t := &topic{
			file: file{null}, cluster: b.kafka, address: b.kafka.Addrs(kafkabroker.Plaintext)[0],
			name: fmt.Sprintf("bench-%d", b.starts), compression: compression,
		}
		if err := t.cluster.CreateTopic(ctx, t.name, kafkabroker.Topic{Partitions: partitions}); err != nil {
			return nil, errors.Join(err, null.Close())
		}
		return t, nil
	}
}

func (t *topic) settings() string {
	return fmt.Sprintf("kafka: {brokers: ['%s'], topic: %s, topicPolicy: require, acks: all, compression: %s}", t.address, t.name, t.compression)
}

func (t *topic) flags() []string {
	return []string{"-sink", "kafka", "-address", t.address, "-name", t.name}
}

func (t *topic) stored(ctx context.Context) (int64, error) {
	ends, err := t.cluster.Admin().ListEndOffsets(ctx, t.name)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the topic's end: %w", err)
	}
	sum := int64(0)
	for _, end := range ends[t.name] {
		sum += end.Offset
	}
	return sum, nil
}

func (t *topic) follow(ctx context.Context, each func([]byte)) error {
	client, err := t.cluster.Client(kgo.ConsumeTopics(t.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return fmt.Errorf("follow the topic: %w", err)
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) { each(r.Value) })
		switch err := fetches.Err(); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("follow the topic: %w", err)
		}
	}
}

func (t *topic) close(ctx context.Context) error {
	return errors.Join(t.cluster.DeleteTopic(ctx, t.name), t.file.Close())
}
