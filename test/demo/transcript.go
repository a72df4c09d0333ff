//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
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
	line, err := t.next(ctx, tail)
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	return s.matches(line)
}

// awaitMarkers waits for the lines of the snapshots that kbridge begins with.
func (t *transcript) awaitMarkers(ctx context.Context, tail *child.Process) error {
	var got []string
	for range markers {
		line, err := t.next(ctx, tail)
		if err != nil {
			return fmt.Errorf("wait for the first snapshots: %w", err)
		}
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != "snapshot" {
			return fmt.Errorf("got the line %q, expected that of a snapshot", line)
		}
		text, _, _ := strings.Cut(strings.Join(fields[2:], " "), " rv ")
		got = append(got, text)
	}
	return checkMarkers(got)
}

// checkMarkers compares what was said of the first snapshots with what must be said:
// of each resource its begin and then its end.
func checkMarkers(got []string) error {
	byResource := func(a, b string) int {
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	}
	g, w := slices.Clone(got), slices.Clone(markers)
	slices.SortStableFunc(g, byResource)
	slices.SortStableFunc(w, byResource)
	if !slices.Equal(g, w) {
		return fmt.Errorf("the first snapshots were\n  %s\nexpected\n  %s", strings.Join(got, "\n  "), strings.Join(markers, "\n  "))
	}
	return nil
}

// next waits for the next line.
func (t *transcript) next(ctx context.Context, tail *child.Process) (string, error) {
	select {
	case line := <-t.lines:
		return line, nil
	case <-tail.Done():
		select {
		case line := <-t.lines: // the last one
			return line, nil
		default:
			return "", fmt.Errorf("kbridge tail ended without the event: %w", tail.Wait())
		}
	case <-time.After(patience):
		return "", fmt.Errorf("no event came within %s", patience)
	case <-ctx.Done():
		return "", ctx.Err()
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
