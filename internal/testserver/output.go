package testserver

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Line says what a line of a tool's output is.
type Line int

// What a line can be.
const (
	Other Line = iota // kept, if it is one of the last
	Step              // one more step is done
	Noise
)

const keptLines = 40

// Output takes what a tool that fetches or builds a server writes: it counts the steps and keeps the last of the other
// lines, which are those that tell what went wrong. Any goroutine may read it meanwhile.
type Output struct {
	Kind func(line string) Line

	mu    sync.Mutex
	line  []byte // the last, unfinished one
	steps int
	rest  []string
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = append(o.line, p...)
	for {
		line, rest, ok := bytes.Cut(o.line, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		switch text := string(line); o.Kind(text) {
		case Step:
			o.steps++
		case Other:
			o.rest = append(o.rest, text)
			if len(o.rest) > keptLines {
				o.rest = o.rest[1:]
			}
		}
		o.line = rest
	}
}

// Steps is how many are done.
func (o *Output) Steps() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.steps
}

// Tail returns the last lines that are neither steps nor noise.
func (o *Output) Tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(append(slices.Clone(o.rest), string(o.line)), "\n")
}
