//go:build unix

package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/statetest"
)

// mostlyFree is a store of which most is free, with the batch that is in it.
func mostlyFree(t *testing.T, dir string) (*Store, *state.Batch) {
	t.Helper()
	s := mustOpen(t, dir)
	mustCommit(t, s, large(1, maxLarge))
	last := large(2, 10)
	mustCommit(t, s, last)
	return s, last
}

func TestACompactedFileIsSmallerAndHoldsTheSame(t *testing.T) {
	dir := t.TempDir()
	s, last := mostlyFree(t, dir)
	before, err := statetest.Read(s, testLane)
	if err != nil {
		t.Fatal(err)
	}
	was, err := s.Compaction()
	if err != nil || 2*was.Free < was.Size || was.Worth {
		t.Fatalf("before: %+v, %v; less than %d is not worth it", was, err, worthCompacting)
	}
	old, err := os.Open(filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	size, err := s.Compact()
	if err != nil {
		t.Fatal(err)
	}
	if now, err := s.Compaction(); err != nil || now.Size != size || size > was.Size/2 {
		t.Errorf("after: %+v, %v; Compact said %d", now, err, size)
	}
	text := make([]byte, was.Size)
	if n, err := old.ReadAt(text, 0); int64(n) != was.Size || len(bytes.Trim(text, "\x00")) > 0 {
		t.Errorf("the blocks of the old one are given back as they were (%d of %d bytes, %v)", n, was.Size, err)
	}
	for _, when := range []string{"at once", "when it is opened again"} {
		after, err := statetest.Read(s, testLane)
		if err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s it does not hold the same: %v", when, err)
		}
		if err := hold(s, last); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		last = large(3, 20)
		mustCommit(t, s, last)
		if before, err = statetest.Read(s, testLane); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
		s = mustOpen(t, dir)
	}
	if have := names(t, dir); len(have) != 1 {
		t.Errorf("the folder has %v", have)
	}
}

func TestWhoWaitsForAFileThatIsCompactedOpensTheNewOne(t *testing.T) {
	dir := t.TempDir()
	s, last := mostlyFree(t, dir)
	type opened struct {
		s   *Store
		err error
	}
	done := make(chan opened)
	go func() {
		second, err := open(dir, time.Minute)
		done <- opened{second, err}
	}()
	// It has the old file open when another lock than ours is asked for.
	waits := func() bool {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return true // elsewhere it may come later, which is right too
		}
		n := 0
		for _, fd := range fds {
			if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && name == filepath.Join(dir, Name) {
				n++
			}
		}
		return n > 1
	}
	for began := time.Now(); !waits(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("nobody waits")
		}
	}
	if _, err := s.Compact(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	second := <-done
	if second.err != nil {
		t.Fatal(second.err)
	}
	defer second.s.Close()
	if err := hold(second.s, last); err != nil {
		t.Error(err)
	}
	mustCommit(t, second.s, large(3, 20))
	mustClose(t, second.s)
	if err := hold(mustOpen(t, dir), large(3, 20)); err != nil {
		t.Errorf("what the second one stored is lost: %v", err)
	}
}

func TestACompactionWithoutRoomLeavesTheStateAsItIs(t *testing.T) {
	dir := t.TempDir()
	s, last := mostlyFree(t, dir)
	mustClose(t, s)
	if err := play(t, "compact without room", dir); err != nil {
		t.Fatal(err)
	}
	if err := hold(mustOpen(t, dir), last); err != nil {
		t.Error(err)
	}
	if have := names(t, dir); len(have) != 1 {
		t.Errorf("the folder has %v", have)
	}
}

// compactWithoutRoom compacts where no file may be as long as the copy, and then where it may.
func compactWithoutRoom(dir string) error {
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	lift, err := limit(64 << 10)
	if err != nil {
		return err
	}
	if _, err := s.Compact(); err == nil {
		return errors.New("it was compacted without room")
	}
	if err := lift(); err != nil {
		return err
	}
	if err := hold(s, large(2, 10)); err != nil {
		return err
	}
	return s.Close()
}

func TestNothingIsCompactedWhileThereIsResidue(t *testing.T) {
	s, _ := mostlyFree(t, t.TempDir())
	s.worth = 0
	if c, err := s.Compaction(); err != nil || !c.Worth {
		t.Errorf("without residue: %+v, %v", c, err)
	}
	if err := s.Retain(map[state.ViewID]string{"pods": ""}, nil); err != nil { // what is stored of the other goes
		t.Fatal(err)
	}
	if residue, err := s.Residue(); err != nil || residue.Since.IsZero() {
		t.Fatalf("there is no residue: %+v, %v", residue, err)
	}
	if c, err := s.Compaction(); err != nil || c.Worth {
		t.Errorf("with residue: %+v, %v", c, err)
	}
}
