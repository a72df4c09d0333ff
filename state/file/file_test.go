//go:build unix

package file

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/statetest"
)

func TestTheFileIsAStore(t *testing.T) {
	statetest.Run(t, func(t *testing.T) func() state.Store {
		dir := filepath.Join(t.TempDir(), "made", "anew")
		return func() state.Store { return mustOpen(t, dir) }
	})
}

func TestASecondOpeningIsRefusedWhileTheFirstLasts(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir)
	for range 2 {
		mustRefuse(t, dir, "another process has it open")
	}
	if err := play(t, "open", dir); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("another process: %v", err)
	}
	mustCommit(t, first, numbered(1))
	mustClose(t, first)
	if err := play(t, "open", dir); err != nil {
		t.Error(err)
	}
}

func TestASecondOpeningWaitsForTheFirstToEnd(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir)
	opened := make(chan error)
	go func() {
		second, err := open(dir, time.Minute)
		if err == nil {
			err = second.Close()
		}
		opened <- err
	}()
	mustCommit(t, first, numbered(1))
	mustClose(t, first)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestAClosedStoreFailsAndMayBeClosedAgain(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	mustClose(t, s)
	mustClose(t, s)
	if err := s.Commit(numbered(1)); err == nil {
		t.Error("a closed store stored something")
	}
}

func TestTheFileStaysBoundedWhenTheSameKeysAreRewritten(t *testing.T) {
	t.Setenv("BBOLT_VERIFY", "all")
	dir := t.TempDir()
	s := mustOpen(t, dir)
	random := rand.New(rand.NewPCG(1, 1))
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, Name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	var early int64
	for round := range 120 {
		objects := map[string]*event.Object{}
		for range 150 {
			i := random.IntN(500)
			o := pod(random, i)
			o.Name = fmt.Sprint(i)
			if objects[o.Name] = o; random.IntN(10) == 0 {
				objects[o.Name] = nil
			}
		}
		mustCommit(t, s, &state.Batch{Views: map[state.ViewID]*state.ViewChange{"pods": {Info: state.ViewInfo{Position: fmt.Sprint(round)}, Objects: objects}}})
		if err := checkPages(s.file, size(), s.db.Info().PageSize); err != nil {
			t.Fatalf("round %d: an undamaged file: %v", round, err)
		}
		if round%50 == 49 { // and with a freelist that was read from the disk
			mustClose(t, s)
			s = mustOpen(t, dir)
		}
		if round == 40 {
			early = size()
		}
		if round == 70 {
			if err := s.Retain(nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if late := size(); late > early*3/2 {
		t.Errorf("the file grew from %d to %d bytes", early, late)
	} else {
		t.Logf("%d bytes after 40 rounds, %d after 120", early, late)
	}
}

func TestTheFileIsNotOpenedThroughASymbolicLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	mustClose(t, mustOpen(t, elsewhere))
	target := filepath.Join(elsewhere, Name)
	before, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{target, filepath.Join(elsewhere, "absent")} {
		link := filepath.Join(dir, Name)
		os.Remove(link)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		_, err := open(dir, lockTimeout)
		mention(t, err, link, "symbolic link")
	}
	if after, err := os.ReadFile(target); err != nil || !bytes.Equal(before, after) {
		t.Errorf("what the link leads to was changed, %v", err)
	}
	if _, err := os.Lstat(filepath.Join(elsewhere, "absent")); err == nil {
		t.Error("a file was made where the link leads to")
	}
}

func TestAFolderThatAnybodyMayWriteToIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := open(dir, lockTimeout)
	mention(t, err, dir, "anybody may write to the folder")
	if err := os.Chmod(dir, 0o775|os.ModeSetgid); err != nil { // as Kubernetes does for an fsGroup
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, dir))
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustOpen(t, filepath.Join(dir, "inside")))
}
