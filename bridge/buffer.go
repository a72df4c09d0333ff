package bridge

import "sync"

// Buffers for encoded events are kept by size, in steps, so that a small event does
// not hold a large buffer: the window counts capacities.
const (
	bufferStep  = 1 << 10 // bytes
	bufferSteps = 64      // larger ones are left to the garbage collector
)

var buffers [bufferSteps + 1]sync.Pool

// bufferSize is how large a buffer of at least n bytes is.
func bufferSize(n int) int { return (n + bufferStep - 1) / bufferStep * bufferStep }

// getBuffer returns an empty buffer of at least n bytes.
func getBuffer(n int) *[]byte {
	size := bufferSize(n)
	step := size / bufferStep
	if step <= bufferSteps {
		if buf, ok := buffers[step].Get().(*[]byte); ok {
			return buf
		}
	}
	buf := make([]byte, 0, size)
	return &buf
}

// putBuffer gives a buffer back.
func putBuffer(buf *[]byte) {
	*buf = (*buf)[:0]
	if step := cap(*buf) / bufferStep; step > 0 && step <= bufferSteps {
		buffers[step].Put(buf)
	}
}
