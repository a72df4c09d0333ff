// Command kafka keeps a copy of the objects whose events are in a Kafka topic, and serves it:
//
//	go run ./examples/consumer/kafka -brokers 127.0.0.1:9092 -topic k8s.apps.deployments
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/kbridge-io/kbridge/examples/consumer/mirror"
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "some of the brokers, separated by commas")
	topic := flag.String("topic", "k8s.apps.deployments", "the topic")
	listen := flag.String("listen", "127.0.0.1:8091", "where the objects are served")
	flag.Parse()
	// Whatever ends it, the next start begins anew: the copy is in memory.
	log.Fatal(run(context.Background(), strings.Split(*brokers, ","), *topic, *listen))
}

// run gives each partition of the topic a reader and a mirror: an object's events are in one partition,
// a snapshot's markers are in each, and places of two partitions do not compare.
func run(ctx context.Context, brokers []string, topic, listen string) error {
	client := kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 30 * time.Second}
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	if err := metadata.Topics[0].Error; err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	var mirrors []*mirror.Mirror
	failed := make(chan error)
	for _, partition := range metadata.Topics[0].Partitions {
		objects := mirror.New()
		mirrors = append(mirrors, objects)
		go func() { failed <- follow(ctx, brokers, topic, partition.ID, objects) }()
	}
	go func() { failed <- http.ListenAndServe(listen, mirror.Handler(mirrors...)) }()
	return <-failed
}

// follow applies a partition's records from its first one on. There is no consumer group:
// who is given partitions while it runs would have to begin each of them anew.
func follow(ctx context.Context, brokers []string, topic string, partition int, objects *mirror.Mirror) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers, Topic: topic, Partition: partition, MaxBytes: 16 << 20, MaxWait: time.Second,
		OffsetOutOfRangeError: true,
		ErrorLogger:           kafka.LoggerFunc(log.Printf), // also of records that the topic forgot before they were read
	})
	if err := reader.SetOffset(kafka.FirstOffset); err != nil {
		return err
	}
	for {
		record, err := reader.ReadMessage(ctx)
		switch {
		case errors.Is(err, kafka.OffsetOutOfRange): // the topic is another one, or shorter
			return fmt.Errorf("read partition %d: %w", partition, err)
		case err != nil:
			log.Print(err) // the reader tries again, with pauses
			continue
		}
		if record.Value == nil {
			objects.Remove(record.Offset, string(record.Key))
			continue
		}
		var e mirror.Event
		if err := json.Unmarshal(record.Value, &e); err != nil {
			return fmt.Errorf("record %d of partition %d is no structured event: %w", record.Offset, partition, err)
		}
		objects.Apply(record.Offset, e)
	}
}
