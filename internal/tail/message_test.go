package tail

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/event"
)

func TestABinaryEventIsPrintedAsTheSameJSONAsAStructuredOne(t *testing.T) {
	snapshot := delta(event.Synced, nodes, object("node-1", "7", `,"spec":{"html":"<&>","n":1.50}`))
	snapshot.Snapshot = "abc"
	inferred := delta(event.Deleted, deployments, object("shop/web", "8", ``))
	inferred.Inferred = true
	change := delta(event.Updated, changed, object("shop/settings", "10", `,"data":{"a":"2"}`))
	change.Old = object("shop/settings", "9", `,"data":{"a":"1"}`)
	encoders := []func(*event.Event, event.Format){
		func(e *event.Event, f event.Format) {
			inferred.Encode(e, f, nil)
			if err := e.Truncate(); err != nil {
				t.Fatal(err)
			}
		},
	}
	for _, d := range []*event.Delta{snapshot, inferred, change, delta(event.Added, nodes, object("system:node:x", "1", ""))} {
		encoders = append(encoders, func(e *event.Event, f event.Format) { d.Encode(e, f, nil) })
	}
	for _, m := range []event.Marker{
		{Type: event.SnapshotStarted, Resource: nodes, Snapshot: "abc", Time: noon},
		{Type: event.SnapshotCompleted, Resource: deployments, Namespace: "shop", Snapshot: "abc", Count: 2, ResourceVersion: "7", Time: noon},
	} {
		encoders = append(encoders, m.Encode)
	}
	for _, encode := range encoders {
		var want event.Event
		encode(&want, event.Structured)
		for _, format := range []event.Format{event.Structured, event.Binary} {
			var e event.Event
			encode(&e, format)
			got, err := read(t, &e).JSON()
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want.Value) {
				t.Errorf("format %d:\n got %s\nwant %s", format, got, want.Value)
			}
		}
	}
}

func TestJSONIsOneLineWithoutWhatATerminalMightObey(t *testing.T) {
	body := "{\n\"specversion\":\"1.0\",\"type\":\"t\",\n \"data\":{\"a\":\"\u009b2J\u202e\x7f\U000e0001é\xff\"}}"
	e, err := Decode(map[string][]string{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","type":"t","data":{"a":"\u009b2J\u202e\u007f\udb40\udc01é\ufffd"}}`
	if string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var v any
	if err := json.Unmarshal(got, &v); err != nil {
		t.Error(err)
	}
}

func TestHeaderValuesAreDecodedAndUnknownAttributesKept(t *testing.T) {
	e, err := Decode(map[string][]string{
		"CE-SpecVersion": {"1.0"}, "ce-type": {"t"}, "ce-subject": {"Euro%20%E2%82%AC"}, "ce-zulu": {"z"}, "ce-alpha": {"50%"},
	}, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"specversion":"1.0","type":"t","subject":"Euro €","alpha":"50%","zulu":"z","data":{"a":1}}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatIsNoEventIsRefused(t *testing.T) {
	structured := map[string][]string{"content-type": {structuredType}}
	for _, c := range []struct {
		headers map[string][]string
		body    string
	}{
		{nil, "hello"},
		{nil, ""},
		{nil, `{"specversion":"1.0","type":"t"}`},
		{map[string][]string{"ce-specversion": {"1.0"}, "ce-type": {"t"}}, "hello"},
		{map[string][]string{"ce-specversion": {}}, "1"},
		{structured, "hello"},
		{structured, `[1]`},
		{structured, `{"type":"t"}`},
		{structured, `null`},
	} {
		if _, err := Decode(c.headers, []byte(c.body)); err == nil {
			t.Errorf("%v %s is taken for an event", c.headers, c.body)
		}
	}
}

func FuzzDecodeAndPrintDoNotPanicAndPrintOneCleanLine(f *testing.F) {
	f.Add(true, `{"specversion":"1.0","type":"dev.kbridge.object.updated","time":"2026-11-30T04:18:07.123456Z","data":{"object":{},"oldObject":{"a":[{"name":"x"}]}}}`)
	f.Add(true, "{\"specversion\":\"1\",\"type\":\"\x1b[2J\",\"name\":\"\u009b\"}")
	f.Add(true, `{"specversion":"1.0","type":"dev.kbridge.snapshot.completed","truncated":true,"data":{"count":-1,"resourceVersion":"\u001b"}}`)
	f.Add(false, `{"a":1}`)
	f.Fuzz(func(t *testing.T, structured bool, body string) {
		headers := map[string][]string{"ce-specversion": {"1.0"}, "ce-type": {body}, "ce-name": {body}}
		if structured {
			headers = map[string][]string{"content-type": {structuredType}}
		}
		e, err := Decode(headers, []byte(body))
		if err != nil {
			return
		}
		var text strings.Builder
		p := Printer{Out: &text, Today: "2026-11-30"}
		for range 2 {
			if err := p.Print(e); err != nil {
				t.Fatal(err)
			}
		}
		line, err := e.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(line) {
			t.Errorf("no JSON: %q", line)
		}
		for _, r := range strings.ReplaceAll(text.String(), "\n", "") + string(line) {
			if mustEscape(r) && r != '�' {
				t.Fatalf("%q has %q", text.String()+string(line), r)
			}
		}
	})
}
