package event

import (
	"encoding/json"
	"testing"

	ce "github.com/cloudevents/sdk-go/v2/event"
)

func TestATracedEventCarriesItsSpansContext(t *testing.T) {
	const context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, s := range samples() {
		for _, format := range []Format{Structured, Binary} {
			e := &Event{TraceParent: context, ID: "of the one before", Snapshot: "x"}
			if err := s.delta.Encode(e, format, nil); err != nil {
				t.Fatal(err)
			}
			says := func(e *Event, want any) {
				t.Helper()
				var got ce.Event
				if err := json.Unmarshal(e.AppendStructured(nil), &got); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if err := got.Validate(); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
				value, has := attributes(e)["traceparent"]
				if got.Extensions()["traceparent"] != want || has != (want != nil) || has && value != want || got.ID() != s.id {
					t.Errorf("%s: %v, %s", s.name, attributes(e), e.AppendStructured(nil))
				}
			}
			says(e, context)
			if s.name != "escaped" { // its body is cut in another test
				if err := e.Truncate(); err != nil {
					t.Fatal(err)
				}
				says(e, context)
			}
			says(encode(&s.delta, format), nil)
		}
	}
}
