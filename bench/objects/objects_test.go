package objects

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestPodsAreWhatAnAPIServerCallsPods(t *testing.T) {
	for i := range 200 {
		var pod corev1.Pod
		decode(t, Pods.Append(nil, State{Index: i, Version: 1234 + uint64(i)}), &pod)
		switch {
		case pod.Kind != "Pod" || pod.APIVersion != "v1":
			t.Fatalf("%s %s", pod.APIVersion, pod.Kind)
		case len(pod.ManagedFields) == 0, len(pod.OwnerReferences) != 1, len(pod.Spec.Containers) != 2, len(pod.Status.Conditions) == 0:
			t.Fatalf("something is missing in %v", pod)
		case len(validation.IsDNS1123Subdomain(pod.Name)) > 0:
			t.Fatalf("name %q", pod.Name)
		}
	}
}

func TestOtherKindsAreTheirs(t *testing.T) {
	decode(t, ConfigMaps.Append(nil, State{Index: 1, Version: 5}), &corev1.ConfigMap{})
	decode(t, Events.Append(nil, State{Index: 1, Version: 5}), &corev1.Event{})
	var widget unstructured.Unstructured
	if err := widget.UnmarshalJSON(Widgets.Append(nil, State{Index: 1, Version: 5})); err != nil {
		t.Fatal(err)
	}
	if widget.GetKind() != "Widget" {
		t.Errorf("kind is %s", widget.GetKind())
	}
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("decode: %v\n%s", err, data)
	}
	if bytes.IndexByte(data, '\n') >= 0 {
		t.Error("a line feed inside would end the watch frame")
	}
}

func TestObjectsHaveTheSizesThatTheFiguresAreFor(t *testing.T) {
	for _, c := range []struct {
		kind     *Kind
		from, to int
	}{{Pods, 4700, 4900}, {ConfigMaps, 950, 1100}, {Widgets, 19_500, 20_500}, {Events, 1000, 1500}} {
		const n = 500
		size := 0
		for i := range n {
			size += len(c.kind.Append(nil, State{Index: i, Version: 100_000_000}))
		}
		if mean := size / n; mean < c.from || mean > c.to {
			t.Errorf("a %s has %d bytes on average, want %d to %d", c.kind.Name, mean, c.from, c.to)
		}
	}
}

func TestNoTwoObjectsShareANameOrAUID(t *testing.T) {
	for _, k := range Kinds {
		names, uids := map[string]bool{}, map[string]bool{}
		for i := range 3_000 {
			var o struct {
				Metadata struct{ Namespace, Name, UID string }
			}
			if err := json.Unmarshal(k.Append(nil, State{Index: i}), &o); err != nil {
				t.Fatal(err)
			}
			m := o.Metadata
			if names[m.Namespace+"/"+m.Name] || uids[m.UID] {
				t.Fatalf("%s %d: %+v is there already", k.Name, i, m)
			}
			names[m.Namespace+"/"+m.Name], uids[m.UID] = true, true
		}
	}
}

func TestAChangeKeepsWhoTheObjectIs(t *testing.T) {
	for _, k := range Kinds {
		var before, after unstructured.Unstructured
		if err := before.UnmarshalJSON(k.Append(nil, State{Index: 7, Version: 1000})); err != nil {
			t.Fatal(err)
		}
		if err := after.UnmarshalJSON(k.Append(nil, State{Index: 7, Version: 2001})); err != nil {
			t.Fatal(err)
		}
		if before.GetName() != after.GetName() || before.GetUID() != after.GetUID() || before.GetNamespace() != after.GetNamespace() {
			t.Errorf("%s: another object", k.Name)
		}
		if before.GetResourceVersion() == after.GetResourceVersion() {
			t.Errorf("%s: the same version", k.Name)
		}
		for _, o := range []*unstructured.Unstructured{&before, &after} {
			o.SetResourceVersion("")
		}
		one, _ := before.MarshalJSON()
		other, _ := after.MarshalJSON()
		if bytes.Equal(one, other) {
			t.Errorf("%s: nothing but the version changed", k.Name)
		}
	}
}

func TestAnItemOfAListIsTheObjectWithoutItsType(t *testing.T) {
	s := State{Index: 3, Version: 9}
	var whole, item map[string]any
	if err := json.Unmarshal(Pods.Append(nil, s), &whole); err != nil {
		t.Fatal(err)
	}
	prefix := []byte("before")
	data := Pods.AppendItem(prefix, s)
	if err := json.Unmarshal(data[len(prefix):], &item); err != nil {
		t.Fatal(err)
	}
	if item["kind"] != nil || item["apiVersion"] != nil || len(item) != len(whole)-2 {
		t.Errorf("an item has the members %v", item)
	}
}

// BenchmarkAppend is what making a frame costs the server.
func BenchmarkAppend(b *testing.B) {
	var buf []byte
	for i := 0; b.Loop(); i++ {
		buf = Pods.AppendFrame(buf[:0], "MODIFIED", State{Index: i, Version: uint64(i)})
	}
	b.SetBytes(int64(len(buf)))
}
