//go:build unix

package nats_test

import (
	"fmt"
	"testing"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks/nats"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

// benchStream holds what a benchmark writes, and no more.
var benchStream = jetstream.StreamConfig{Name: "KBRIDGE", Subjects: []string{"k8s.>"}, MaxBytes: 256 << 20}

// benchEvents are made once: what is measured is the sink.
func benchEvents(format event.Format) []event.Event {
	events := make([]event.Event, 20_000)
	for i := range events {
		d := sinktest.Pod(fmt.Sprintf("pod-%d", i), 1, 4096)
		d.Encode(&events[i], format, nil)
	}
	return events
}

// BenchmarkSink is to be read beside BenchmarkBareClient: events of 4 KB, published
// and acknowledged, with the server on the same machine.
func BenchmarkSink(b *testing.B) {
	for name, format := range map[string]event.Format{"structured": event.Structured, "binary": event.Binary} {
		b.Run(name, func(b *testing.B) {
			srv := natsserver.New(b, "")
			makeStream(b, srv.URL(), benchStream)
			s, err := nats.Open(b.Context(), "bench", settings(srv.URL()), discard)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(b.Context())
			defer func() { b.ReportMetric(float64(s.Stats().Window), "window") }()
			events := benchEvents(format)
			run := 0
			sinktest.Measure(b, func(n int, done func(error)) {
				run++
				for i := range n {
					e := &events[i%len(events)] // longer than the window: free again
					e.ID = fmt.Sprintf("%d.%d", run, i)
					s.Publish(b.Context(), e, done)
				}
			})
		})
	}
}

// BenchmarkBareClient publishes the same bytes with the same headers and nothing
// else around the library's asynchronous publisher.
func BenchmarkBareClient(b *testing.B) {
	srv := natsserver.New(b, "")
	makeStream(b, srv.URL(), benchStream)
	nc, err := client.Connect(srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	events := benchEvents(event.Structured)
	subject, err := event.NATSSubject(settings().Subject)
	if err != nil {
		b.Fatal(err)
	}
	run := 0
	sinktest.Measure(b, func(n int, done func(error)) {
		run++
		for i := range n {
			e := &events[i%len(events)]
			e.ID = fmt.Sprintf("%d.%d", run, i)
			m := &client.Msg{Subject: string(subject.Append(nil, e)), Data: e.Value, Header: client.Header{
				"Nats-Msg-Id": {e.DedupID()}, "Nats-Expected-Stream": {"KBRIDGE"}, "content-type": {e.ContentType()},
			}}
			for {
				f, err := js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
				if err != nil { // it stalls, and then gives up
					continue
				}
				_ = f
				break
			}
		}
		<-js.PublishAsyncComplete()
		for range n {
			done(nil)
		}
	})
}
