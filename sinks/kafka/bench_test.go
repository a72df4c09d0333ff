//go:build unix

package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks/kafka"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

const benchPartitions = 6

var benchTopic = kafkabroker.Topic{Partitions: benchPartitions, Config: map[string]string{"retention.bytes": "67108864", "segment.bytes": "16777216"}}

var benchResource = event.NewResource(event.ResourceInfo{Cluster: "bench", Version: "v1", Resource: "pods", Kind: "Pod"})

// benchEvents are made once: what is measured is the sink. The pods have 4 KB and
// compress about as real ones do, with names, ids and hashes that differ in each.
func benchEvents(format event.Format) []event.Event {
	events := make([]event.Event, 20_000)
	r := rand.New(rand.NewPCG(1, 2))
	hex := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(strconv.FormatUint(r.Uint64(), 16))
		}
		return b.String()[:n]
	}
	for i := range events {
		name, uid := "checkout-api-"+hex(10), hex(8)+"-"+hex(4)+"-"+hex(4)+"-"+hex(12)
		var b strings.Builder
		fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"generateName":"checkout-api-","namespace":"shop","uid":%q,"resourceVersion":"%d","creationTimestamp":"2026-11-30T04:%02d:%02dZ","labels":{"app":"checkout","pod-template-hash":%q},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"checkout-api","uid":%q,"controller":true}]},"spec":{"containers":[`,
			name, uid, 1000+i, r.IntN(60), r.IntN(60), hex(10), hex(36))
		for c := range 3 {
			fmt.Fprintf(&b, `{"name":"c%d","image":"registry.example.com/shop/checkout-%d:%d.%d.%d","imagePullPolicy":"IfNotPresent","env":[{"name":"POD_NAME","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"TOKEN_HASH","value":%q}],"resources":{"limits":{"cpu":"%dm","memory":"%dMi"}},"terminationMessagePath":"/dev/termination-log","volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount","name":"kube-api-access-%s","readOnly":true}]},`,
				c, c, r.IntN(9), r.IntN(20), r.IntN(90), hex(32), r.IntN(2000), r.IntN(4000), hex(5))
		}
		fmt.Fprintf(&b, `{}],"nodeName":"node-%d","serviceAccountName":"checkout","tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300}]},"status":{"phase":"Running","podIP":"10.%d.%d.%d","containerStatuses":[`, r.IntN(300), r.IntN(256), r.IntN(256), r.IntN(256))
		for c := 0; b.Len() < 3700; c++ {
			fmt.Fprintf(&b, `{"containerID":"containerd://%s","image":"registry.example.com/shop/checkout","imageID":"sha256:%s","lastState":{},"name":"c%d","ready":true,"restartCount":%d,"started":true,"state":{"running":{"startedAt":"2026-11-30T04:%02d:%02dZ"}}},`,
				hex(64), hex(64), c, r.IntN(5), r.IntN(60), r.IntN(60))
		}
		b.WriteString(`{}],"qosClass":"Burstable"}}`)
		d := &event.Delta{Type: event.Updated, Resource: benchResource, Time: time.Now(),
			Object: &event.Object{Namespace: "shop", Name: name, UID: uid, ResourceVersion: strconv.Itoa(1000 + i), Body: []byte(b.String())}}
		d.Encode(&events[i], format, nil)
	}
	return events
}

func benchSettings(c *kafkabroker.Cluster, topic string, codec config.Compression) config.Kafka {
	cfg := settings(c.Addrs(kafkabroker.Plaintext)...)
	cfg.Topic, cfg.Compression = topic, codec
	return cfg
}

// BenchmarkSink is to be read beside BenchmarkBareWriter: events of 4 KB, published and
// acknowledged by all replicas, with the broker on the same machine.
func BenchmarkSink(b *testing.B) {
	c := kafkabroker.Shared(b)
	for _, codec := range []config.Compression{config.CompressionZstd, config.CompressionLZ4, config.CompressionSnappy, config.CompressionNone} {
		for name, format := range map[string]event.Format{"structured": event.Structured, "binary": event.Binary} {
			if format == event.Binary && codec != config.CompressionZstd {
				continue
			}
			b.Run(string(codec)+"/"+name, func(b *testing.B) {
				_, topic := template()
				if err := c.CreateTopic(context.Background(), topic, benchTopic); err != nil {
					b.Fatal(err)
				}
				s, err := kafka.Open(context.Background(), "bench", benchSettings(c, topic, codec), discard)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close(context.Background())
				defer func() {
					st := s.Stats()
					b.ReportMetric(float64(st.Sent)/float64(st.Records), "sent-B/event")
					b.ReportMetric(float64(st.Records)/float64(st.Batches), "events/batch")
				}()
				events := benchEvents(format)
				sinktest.Measure(b, func(n int, done func(error)) {
					for i := range n {
						s.Publish(context.Background(), &events[i%len(events)], done) // longer than the window: free again
					}
				})
			})
		}
	}
}

// BenchmarkBareWriter writes the same records with the library's own writer, with its
// batches as large as ours and the same codec.
func BenchmarkBareWriter(b *testing.B) {
	c := kafkabroker.Shared(b)
	for codec, compression := range map[string]compress.Compression{"zstd": compress.Zstd, "lz4": compress.Lz4} {
		b.Run(codec, func(b *testing.B) {
			_, topic := template()
			if err := c.CreateTopic(context.Background(), topic, benchTopic); err != nil {
				b.Fatal(err)
			}
			transport := &client.Transport{}
			defer transport.CloseIdleConnections()
			var done func(error)
			w := &client.Writer{
				Addr: client.TCP(c.Addrs(kafkabroker.Plaintext)...), Topic: topic, Balancer: client.Murmur2Balancer{},
				RequiredAcks: client.RequireAll, Compression: compression, Async: true, Transport: transport,
				BatchBytes: 1 << 20, BatchSize: 10_000, BatchTimeout: 5 * time.Millisecond,
				Completion: func(messages []client.Message, err error) {
					for range messages {
						done(err)
					}
				},
			}
			defer w.Close()
			events := benchEvents(event.Structured)
			// Its queue has no bound, so that the benchmark keeps one.
			window := make(chan struct{}, 8192)
			sinktest.Measure(b, func(n int, finish func(error)) {
				done = func(err error) { <-window; finish(err) }
				for i := range n {
					e := &events[i%len(events)]
					window <- struct{}{}
					if err := w.WriteMessages(context.Background(), client.Message{
						Key: []byte("bench/core/pods/shop/" + e.Key.Name), Value: e.Value, Time: e.Time,
						Headers: []client.Header{{Key: "content-type", Value: []byte(e.ContentType())}},
					}); err != nil {
						done(err)
					}
				}
			})
		})
	}
}
