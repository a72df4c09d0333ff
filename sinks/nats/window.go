package nats

import "time"

const (
	// windowEvents and windowBytes bound what may be handed to the server and not be
	// acknowledged. The lane's own window bounds what waits; this one keeps a server
	// from refusing what it must queue (nats-server: 10,000 messages and 128 MiB a
	// stream).
	windowEvents = 4096
	windowBytes  = 32 << 20

	firstWindow = 256
	leastWindow = 16
)

// window is how many events may be under way: as many as are answered in good
// time. A server answers a batch when it has stored all of it, so that on a store
// that syncs each message a full window could take longer than the acknowledgement
// timeout, and be published again and again. It is guarded by Sink.mu.
type window struct {
	size   int
	target time.Duration // how long an answer may take
	shrunk uint64        // the last message sent when size was last reduced
}

func newWindow(ackTimeout time.Duration) window {
	return window{size: firstWindow, target: ackTimeout / 10}
}

// answered learns from the answer to message n, when the last one sent was last.
// The window doubles within a round trip while it is nearly full and answers are quick,
// and is halved, once for what was under way at a time, when they are slow.
func (w *window) answered(n, last uint64, took time.Duration, inflight int) {
	switch {
	case took > w.target:
		if n > w.shrunk {
			w.size = max(w.size/2, leastWindow)
			w.shrunk = last
		}
	case took < w.target/2 && inflight > w.size/2:
		w.size = min(w.size+1, windowEvents)
	}
}
