package file

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestAFullFileSystemIsAnErrorThatPasses(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=24m"); err != nil {
		t.Skip("a small file system can not be mounted here, and the tests with a limit on the file's size show the same: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(mount, "state")
	s := mustOpen(t, dir)
	last := large(1, 300)
	mustCommit(t, s, last)
	filler := filepath.Join(mount, "filler")
	for n := 2; n < 12; n++ {
		// Room is left for some of the pages, each time for more.
		written, err := fillUp(filler)
		if err == nil {
			t.Fatal("the file system is not full")
		}
		if err := os.Truncate(filler, max(0, written-int64(n)*4096)); err != nil {
			t.Fatal(err)
		}
		b := large(n, 300+100*n) // more pages than are free in the file
		if err := s.Commit(b); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("batch %d, without room: %v", n, err)
		}
		if err := hold(s, last); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, s, b)
		last = b
		mustClose(t, s)
		s = mustOpen(t, dir)
	}
	mustClose(t, s)
}

// fillUp takes all the room there is.
func fillUp(path string) (written int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	page := make([]byte, 4096)
	for err == nil {
		var n int
		n, err = f.Write(page)
		written += int64(n)
	}
	return written, err
}
