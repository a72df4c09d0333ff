package scan

import (
	"bytes"
	"encoding/json"
	"testing"
)

var benchmarks = []struct {
	name    string
	file    string
	options Options
}{
	{"Pod", "pod.json", Options{APIVersion: "v1", Kind: "Pod", Drop: defaultDrop}},
	{"ConfigMap", "configmap.json", Options{APIVersion: "v1", Kind: "ConfigMap", Drop: defaultDrop}},
	{"Custom", "custom.json", Options{APIVersion: "gateway.example.com/v1alpha2", Kind: "RoutePolicy", Drop: defaultDrop}},
	{"Certificate", "certificate.json", Options{APIVersion: "v1", Kind: "Secret", Drop: defaultDrop, RedactSecret: true}},
	{"Secret", "secret.json", Options{APIVersion: "v1", Kind: "Secret", Drop: defaultDrop, RedactSecret: true}},
}

func BenchmarkObject(b *testing.B) {
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			src := sample(b, bm.file)
			r := rules(b, bm.options)
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			var m Meta
			for b.Loop() {
				if _, err := r.Object(nil, src, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWatchEvent(b *testing.B) {
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			frame := []byte(`{"type":"MODIFIED","object":` + string(sample(b, bm.file)) + "}\n")
			r := rules(b, bm.options)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			var m Meta
			for b.Loop() {
				if _, _, err := r.WatchEvent(nil, frame, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMaps is what Object is measured against: a document decoded into maps, changed, and encoded again.
func BenchmarkMaps(b *testing.B) {
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			src := sample(b, bm.file)
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				var object map[string]any
				if err := json.Unmarshal(src, &object); err != nil {
					b.Fatal(err)
				}
				metadata := object["metadata"].(map[string]any)
				delete(metadata, "managedFields")
				delete(metadata, "annotations")
				if data, is := object["data"].(map[string]any); is && bm.options.RedactSecret {
					for key := range data {
						data[key] = "cmVkYWN0ZWQ="
					}
				}
				if _, err := json.Marshal(object); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkList(b *testing.B) {
	item := sample(b, "pod.json")
	body := []byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
	body = append(body, bytes.Repeat(append(item[:len(item):len(item)], ','), 500)...)
	body = append(body[:len(body)-1], "]}"...)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := List(body, func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFramer(b *testing.B) {
	frame := []byte(`{"type":"MODIFIED","object":` + string(sample(b, "pod.json")) + "}\n")
	b.SetBytes(int64(len(frame)))
	for b.Loop() {
		if End(frame) < 0 {
			b.Fatal("no end")
		}
	}
}
