package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnEventGetsTheSubjectTheIDAndTheKeyThatKbridgeGivesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events")
	pod := `{"id":"u.5","source":"kubernetes://bench/api/v1/pods","cluster":"bench","resource":"pods","namespace":"shop","name":"a-1","data":{}}`
	widget := `{"id":"v.6","source":"s","cluster":"bench","group":"bench.kbridge.io","resource":"widgets","namespace":"shop","name":"b"}`
	if err := os.WriteFile(file, []byte(pod+"\n"+widget+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 {
		t.Fatalf("%d events", len(got))
	}
	m := got[0]
	if string(m.value) != pod || m.id != "kubernetes://bench/api/v1/pods/u.5" || m.subject != "k8s.bench.core.pods.shop.a-1" || string(m.key) != "bench/core/pods/shop/a-1" {
		t.Errorf("the pod's event is sent as %s, %s, %s: %s", m.id, m.subject, m.key, m.value)
	}
	if key := string(got[1].key); key != "bench/bench.kbridge.io/widgets/shop/b" {
		t.Errorf("the widget's key is %s", key)
	}
}
