//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
)

// text collects what a process writes.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all.String()
}

// transcript shows what kbridge tail prints, and keeps it to be compared.
type transcript struct {
	text
	rest  []byte      // of a line; used by Write alone
	lines chan string // without colours
}

func newTranscript() *transcript { return &transcript{lines: make(chan string, 1000)} }

var colours = regexp.MustCompile("\x1b\\[[0-9]*m")

// Write shows the lines that are complete.
func (t *transcript) Write(p []byte) (int, error) {
	if _, err := t.text.Write(p); err != nil {
		return 0, err
	}
	t.rest = append(t.rest, p...)
	for {
		line, rest, ok := bytes.Cut(t.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.rest = rest
		fmt.Fprintf(os.Stdout, "%s\n", line)
		t.lines <- colours.ReplaceAllString(string(line), "")
	}
}

// await waits for the next line, which must be the step's.
func (t *transcript) await(ctx context.Context, s *step, tail *child.Process) error {
	select {
	case line := <-t.lines:
		return s.matches(line)
	case <-tail.Done():
		select {
		case line := <-t.lines: // the last one
			return s.matches(line)
		default:
			return fmt.Errorf("%s: kbridge tail ended without its event: %w", s.what, tail.Wait())
		}
	case <-time.After(patience):
		return fmt.Errorf("%s: no event came within %s", s.what, patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// matches compares a line of kbridge tail with what the step must have caused.
func (s *step) matches(line string) error {
	fields := strings.Fields(line)
	want := []string{s.event, s.resource, s.name, "rv"}
	if len(fields) < len(want)+2 || strings.Join(fields[1:5], " ") != strings.Join(want, " ") {
		return fmt.Errorf("%s: got the line %q, expected %q", s.what, line, want)
	}
	if s.version != "" && fields[5] != s.version {
		return fmt.Errorf("%s: got the line %q, expected version %s", s.what, line, s.version)
	}
	if got := strings.Join(fields[6:], " "); got != s.changed {
		return fmt.Errorf("%s: got the line %q, expected it to end in %q", s.what, line, s.changed)
	}
	return nil
}
