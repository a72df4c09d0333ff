//go:build unix

package file

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/statetest"
)

// The test binary is also the process that is killed or has no room: with this in its
// environment it plays the part that it names, in the folder that the other names.
const (
	partVariable = "KBRIDGE_STATE_TEST_PART"
	dirVariable  = "KBRIDGE_STATE_TEST_DIR"
)

var parts = map[string]func(dir string) error{
	"commit numbered batches":      commitNumbered,
	"run out of room":              runOutOfRoom,
	"start without room":           startWithoutRoom,
	"open":                         onlyOpen,
	"open as nobody":               openAsNobody,
	"scrub after numbered batches": scrubNumbered,
	"scrub without room":           scrubWithoutRoom,
	"compact without room":         compactWithoutRoom,
	"fail to commit a secret":      failToCommitSecret,
}

func TestMain(m *testing.M) {
	if part, ok := parts[os.Getenv(partVariable)]; ok {
		if err := part(os.Getenv(dirVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// process is a child that plays a part.
type process struct {
	*child.Process
	stdout, stderr bytes.Buffer  // to be read when it has ended
	lines          chan struct{} // one for each line on stdout, as long as there is room
}

// Write takes what comes on stdout.
func (p *process) Write(b []byte) (int, error) {
	for range bytes.Count(b, []byte("\n")) {
		select {
		case p.lines <- struct{}{}:
		default:
		}
	}
	return p.stdout.Write(b)
}

func start(t *testing.T, part, dir string) *process {
	t.Helper()
	p := &process{lines: make(chan struct{}, 100)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partVariable+"="+part, dirVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = p, &p.stderr
	var err error
	if p.Process, err = child.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// play waits for the end of a part and returns what it failed with.
func play(t *testing.T, part, dir string) error {
	t.Helper()
	p := start(t, part, dir)
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, &p.stderr)
	}
	return nil
}

const soon = 200 * time.Millisecond // for a lock that is not given up

func mustOpen(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := open(dir, soon)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustCommit(t testing.TB, s *Store, b *state.Batch) {
	t.Helper()
	if err := s.Commit(b); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// names lists a folder.
func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// mustRefuse opens a file that has to be refused with all of the words, and left alone.
func mustRefuse(t *testing.T, dir string, words ...string) {
	t.Helper()
	path := filepath.Join(dir, Name)
	before, list := mustRead(t, path), names(t, dir)
	s, err := open(dir, soon)
	if err == nil {
		s.Close()
		t.Fatal("it was opened")
	}
	for _, w := range append(words, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in: %v", w, err)
		}
	}
	if !bytes.Equal(before, mustRead(t, path)) {
		t.Error("the file was changed")
	}
	if have := names(t, dir); len(have) != len(list) {
		t.Errorf("the folder has %v", have)
	}
}

var testLane = state.LaneID{Sink: "audit", View: "pods"}

// numbered is a batch that carries its number in everything that it writes.
func numbered(n int) *state.Batch {
	number := fmt.Sprint(n)
	objects, behind := map[string]*event.Object{}, map[string]*state.Behind{}
	for i := range 200 {
		o := statetest.Object("shop", fmt.Sprintf("pod-%d", i), fmt.Sprintf("uid-%d", i), number)
		o.Body = append(o.Body, strings.Repeat(number, (i*7+n)%300)...)
		key := state.Key(o.Namespace, o.Name)
		objects[key] = o
		if i%3 == n%3 {
			objects[key] = nil
		}
		switch (i + n) % 4 {
		case 0:
			behind[key] = &state.Behind{UID: o.UID, ResourceVersion: number, Gone: o}
		case 1:
			behind[key] = &state.Behind{UID: o.UID, ResourceVersion: number}
		case 2:
			behind[key] = nil
		case 3:
			behind[key] = &state.Behind{ResourceVersion: number, First: true}
		}
	}
	return &state.Batch{
		Views: map[state.ViewID]*state.ViewChange{"pods": {Info: state.ViewInfo{Position: number, Listed: true}, Objects: objects}},
		Lanes: map[state.LaneID]*state.LaneChange{testLane: {Info: state.LaneInfo{Position: number}, Behind: behind}},
	}
}

// content is what a store holds after a numbered batch: each replaces all of the last.
func content(n int) statetest.Content {
	b := numbered(n)
	v := statetest.View{Info: b.Views["pods"].Info, Objects: map[string]event.Object{}}
	for key, o := range b.Views["pods"].Objects {
		if o != nil {
			v.Objects[key] = *o
		}
	}
	l := statetest.Lane{Info: b.Lanes[testLane].Info, Behind: map[string]state.Behind{}}
	for key, entry := range b.Lanes[testLane].Behind {
		if entry != nil {
			l.Behind[key] = *entry
		}
	}
	return statetest.Content{Views: map[state.ViewID]statetest.View{"pods": v}, Lanes: map[state.LaneID]statetest.Lane{testLane: l}}
}
