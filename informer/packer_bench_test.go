package informer

import (
	"testing"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/informer/scan"
)

// scannedPods are pods of the bench's cluster as the scan leaves them.
func scannedPods(b *testing.B, n int) [][]byte {
	b.Helper()
	resource := config.DefaultResource()
	drop, err := resource.DropPaths()
	if err != nil {
		b.Fatal(err)
	}
	rules, err := scan.New(scan.Options{APIVersion: "v1", Kind: "Pod", Drop: drop})
	if err != nil {
		b.Fatal(err)
	}
	var pods [][]byte
	for i := range n {
		pod, err := rules.Object(nil, objects.Pods.Append(nil, objects.State{Index: i, Version: uint64(1000 + i)}), &scan.Meta{})
		if err != nil {
			b.Fatal(err)
		}
		pods = append(pods, pod)
	}
	return pods
}

// BenchmarkPacking compares ways to pack the bodies of pods, one at a time: how long
// they take, and what is left.
func BenchmarkPacking(b *testing.B) {
	pods := scannedPods(b, 4000)
	samples, rest := pods[:200], pods[1000:]
	zstdWith := func(options ...zstd.EOption) func([]byte) []byte {
		e, err := zstd.NewWriter(nil, append(options, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))...)
		if err != nil {
			b.Fatal(err)
		}
		return func(body []byte) []byte { return e.EncodeAll(body, nil) }
	}
	trained, err := dict.BuildZstdDict(samples, dict.Options{MaxDictSize: 64 << 10, HashBytes: 6, ZstdDictID: 1, ZstdLevel: zstd.SpeedFastest})
	if err != nil {
		b.Fatal(err)
	}
	var joined []byte
	for _, pod := range samples {
		joined = append(joined, pod...)
	}
	for _, way := range []struct {
		name string
		pack func([]byte) []byte
	}{
		{"S2", func(body []byte) []byte { return s2.Encode(nil, body) }},
		{"S2, dictionary", event.NewDictionary(joined).Pack},
		{"zstd", zstdWith()},
		{"zstd, dictionary", zstdWith(zstd.WithEncoderDict(trained))},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			size, i := 0, 0
			for b.Loop() {
				size += len(way.pack(rest[i%len(rest)]))
				i++
			}
			b.ReportMetric(float64(size)/float64(i), "bytes")
		})
	}
}

func BenchmarkUnpacking(b *testing.B) {
	pods := scannedPods(b, 2000)
	p := &packer{}
	var packed []*event.Object
	for _, pod := range pods {
		o := &event.Object{}
		if o.Body, o.Dictionary = p.pack(nil, pod); o.Dictionary != nil {
			packed = append(packed, o)
		}
	}
	var buf []byte
	i := 0
	for b.Loop() {
		var err error
		if buf, err = packed[i%len(packed)].Unpack(buf[:0]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
