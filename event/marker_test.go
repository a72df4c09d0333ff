package event

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

func markers() map[string]Marker {
	at := time.Date(2026, 11, 30, 5, 18, 7, 123456789, time.UTC)
	return map[string]Marker{
		"snapshot-started":   {Type: SnapshotStarted, Resource: deployments, Snapshot: "dk3f9", Time: at},
		"snapshot-completed": {Type: SnapshotCompleted, Resource: deployments, Namespace: "shop", Snapshot: "dk3f9", Count: 17, ResourceVersion: "1042", Time: at},
		"verified":           {Type: Verified, Resource: selected, Namespace: "shop", Verification: "dk3f9", Compared: 312, ResourceVersion: "1042", Time: at},
		"snapshot-restored":  {Type: SnapshotCompleted, Resource: restored, Snapshot: "dk3f9", ResourceVersion: "7", Time: at},
		"snapshot-empty":     {Type: SnapshotCompleted, Resource: nodes, Snapshot: "dk3f9", ResourceVersion: "7", Time: at},
	}
}

func TestMarkersLookAsTheGoldenFilesSay(t *testing.T) {
	for name, m := range markers() {
		var e Event
		m.Encode(&e, Structured)
		golden(t, name+".structured.json", append(e.Value, '\n'))
		m.Encode(&e, Binary)
		message, err := json.MarshalIndent(map[string]any{"contentType": e.ContentType(), "attributes": attributes(&e), "value": string(e.Value)}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".binary.json", append(message, '\n'))
	}
}

func TestTheCloudEventsSDKReadsMarkers(t *testing.T) {
	for name, m := range markers() {
		var structured, binary Event
		m.Encode(&structured, Structured)
		m.Encode(&binary, Binary)
		var got ce.Event
		if err := json.Unmarshal(structured.Value, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.ID() != "dk3f9."+m.Type.String() || got.Type() != map[bool]string{true: "dev.kbridge.verified", false: "dev.kbridge.snapshot." + m.Type.String()}[m.Type == Verified] || got.Subject() != "" {
			t.Errorf("%s: id %s, type %s, subject %s", name, got.ID(), got.Type(), got.Subject())
		}
		for _, left := range []string{"name", "uid", "resourceversion", "inferred", "truncated"} {
			if _, there := got.Extensions()[left]; there {
				t.Errorf("%s has the attribute %s", name, left)
			}
			if _, there := attributes(&binary)[left]; there {
				t.Errorf("%s in binary format has the attribute %s", name, left)
			}
		}
		if _, there := got.Extensions()["namespace"]; there != (m.Namespace != "") {
			t.Errorf("%s: namespace %v", name, got.Extensions()["namespace"])
		}
		// Both formats say the same, and a structured document can be made of the other.
		if string(got.Data()) != string(binary.Value) || string(binary.AppendStructured(nil)) != string(structured.Value) {
			t.Errorf("%s: %s and %s", name, got.Data(), binary.Value)
		}
		var data map[string]any
		if err := json.Unmarshal(binary.Value, &data); err != nil {
			t.Fatal(err)
		}
		_, count := data["count"]
		_, compared := data["compared"]
		if count != (m.Type == SnapshotCompleted) || compared != (m.Type == Verified) || (data["snapshot"] == "dk3f9") == compared || data["scope"] == nil {
			t.Errorf("%s: data %v", name, data)
		}
	}
}

func TestAMarkerHasAKeyAndASubjectOfItsOwn(t *testing.T) {
	m := markers()["snapshot-completed"]
	var e Event
	m.Encode(&e, Structured)
	if want := (Key{"apps", "deployments", "shop", "_snapshot"}); e.Key != want {
		t.Errorf("the key is %v", e.Key)
	}
	if want := "kubernetes://prod-eu/apis/apps/v1/deployments/dk3f9.completed"; e.DedupID() != want {
		t.Errorf("it is recognised by %s", e.DedupID())
	}
}

func TestAnEventIsTruncatedToItsMetadata(t *testing.T) {
	for _, s := range samples() {
		if s.name == "escaped" {
			continue // its body has no uid to compare
		}
		for _, format := range []Format{Structured, Binary} {
			e := encode(&s.delta, format)
			before := string(s.delta.Object.Body)
			if err := e.Truncate(); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if string(s.delta.Object.Body) != before {
				t.Fatalf("%s: the object was changed", s.name)
			}
			var got ce.Event
			if err := json.Unmarshal(e.AppendStructured(nil), &got); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if err := got.Validate(); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
			if got.Extensions()["truncated"] != true || attributes(e)["truncated"] != "true" || got.ID() != s.id {
				t.Errorf("%s: %s", s.name, e.Value)
			}
			if data := string(got.Data()); strings.Contains(data, "spec") || strings.Contains(data, "oldObject") ||
				!strings.Contains(data, `"metadata":{"name":"`+s.delta.Object.Name) || strings.Contains(data, `{"object":`) != s.delta.Resource.Change {
				t.Errorf("%s: the data is %s", s.name, data)
			}
		}
	}
}

func TestAnEventThatIsNoObjectCannotBeTruncated(t *testing.T) {
	d := samples()[0].delta
	d.Object = &Object{Name: "a", Body: []byte(`"text"`)}
	e := encode(&d, Binary)
	if err := e.Truncate(); err == nil || e.Truncated || string(e.Value) != `"text"` {
		t.Errorf("%v, %s", err, e.Value)
	}
}

func TestRemainsHaveWhatIsKnown(t *testing.T) {
	for _, r := range []*Resource{deployments, nodes} {
		o := r.Remains("shop", `a"b`, "u", "7")
		var got struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace, UID string }
		}
		if err := json.Unmarshal(o.Body, &got); err != nil {
			t.Fatal(err)
		}
		if want := map[string]string{"deployments": "apps/v1", "nodes": "v1"}[r.Resource]; got.APIVersion != want || got.Kind != r.Kind ||
			got.Metadata.Name != `a"b` || got.Metadata.Namespace != "shop" || got.Metadata.UID != "u" || o.ResourceVersion != "7" {
			t.Errorf("%s", o.Body)
		}
	}
	if o := nodes.Remains("", "a", "u", "7"); strings.Contains(string(o.Body), "namespace") {
		t.Errorf("%s", o.Body)
	}
}

func TestVersionsCompareAsNumbersOrNotAtAll(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
		ok   bool
	}{
		{"9", "10", -1, true}, {"10", "9", 1, true}, {"7", "7", 0, true},
		{"18446744073709551617", "18446744073709551616", 1, true},
		{"a", "7", 0, false}, {"7", "", 0, false}, {"", "", 0, false}, {"-1", "7", 0, false}, {"07", "7", 0, false},
	} {
		if got, ok := CompareVersions(c.a, c.b); ok != c.ok || ok && got != c.want {
			t.Errorf("%q and %q: %d, %t", c.a, c.b, got, ok)
		}
	}
}
