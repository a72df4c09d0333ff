package sinks

// Failures counts what went wrong with a sink beside the attempts at single events, which
// its lane counts. Each is tried again by the sink.
type Failures struct {
	// Connect is connections that could not be made, a login included, or that broke.
	Connect uint64
	// Lookup is questions about what is published to (a stream, a topic, a partition) that
	// failed or whose answer was that nothing can be.
	Lookup uint64
	// Resend is batches that were refused and that the sink sent again, in whole or in part.
	Resend uint64
}

// Failing is a sink that can fail beside single events. Any goroutine may call it.
type Failing interface {
	Failures() Failures
}
