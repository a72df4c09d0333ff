package sinks

import "github.com/kbridge-io/kbridge/event"

// Sample stands for events that a configuration lets come to a sink, so that it can be
// found out beforehand whether the sink takes them.
type Sample struct {
	// Event has a resource, a type and a namespace, and no value.
	Event *event.Event
	// Unknown names the fields, as a template's placeholders do, that may be anything.
	Unknown []string
}
