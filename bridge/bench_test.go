package bridge

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
)

// objectSize is that of a usual pod without managedFields, in bytes.
const objectSize = 3200

// pipeline is a feed into a lane whose sink acknowledges at once.
func pipeline(tb testing.TB, format event.Format) (*Feed, *Lane) {
	tb.Helper()
	dead, err := OpenDeadLetters(filepath.Join(tb.TempDir(), "dead.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	l := NewLane(Options{
		Sink: testSink{stored}, Format: format, MaxBytes: 64 << 20, MaxEvents: 65536,
		DeadLetters: dead, Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return NewFeed(nil, l.NewPort(pods.Name(), pods, "", allTypes)), l
}

func deltas() []*event.Delta {
	list := make([]*event.Delta, 1000)
	for i := range list {
		list[i] = update("checkout-api-"+strconv.Itoa(i), 1000+i, objectSize)
	}
	return list
}

func handOver(tb testing.TB, f *Feed, d *event.Delta) {
	if err := f.Delta(tb.Context(), d); err != nil {
		tb.Fatal(err)
	}
	f.Position(d.Object.ResourceVersion)
}

func benchmarkDelta(b *testing.B, format event.Format) {
	f, l := pipeline(b, format)
	list := deltas()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		handOver(b, f, list[i%len(list)])
		i++
	}
	if err := l.Drain(b.Context(), false); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkDeltaToAcknowledgementStructured(b *testing.B) { benchmarkDelta(b, event.Structured) }
func BenchmarkDeltaToAcknowledgementBinary(b *testing.B)     { benchmarkDelta(b, event.Binary) }

// An event costs its id, and now and then a part of a slice or a buffer.
func TestAnEventCostsFewAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector pools forget on purpose")
	}
	for _, format := range []event.Format{event.Structured, event.Binary} {
		f, l := pipeline(t, format)
		list := deltas()
		round := func(n int) {
			for i := range n {
				handOver(t, f, list[i%len(list)])
				if i%256 == 255 { // a bound on what is under way, so that scheduling does not count
					if err := l.Drain(t.Context(), false); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		round(2048) // entries and buffers are made
		var before, after runtime.MemStats
		const events = 20480
		runtime.ReadMemStats(&before)
		round(events)
		runtime.ReadMemStats(&after)
		if each := float64(after.Mallocs-before.Mallocs) / events; each > 1.5 {
			t.Errorf("format %d: %.2f allocations an event, want the id's and hardly more", format, each)
		}
	}
}
