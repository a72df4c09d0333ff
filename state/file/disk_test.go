//go:build unix

package file

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// limit sets how long a file may become: what is beyond is no room. It returns how to
// lift it.
func limit(room uint64) (lift func() error, err error) {
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return nil, err
	}
	set := old
	set.Cur = room
	return func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) }, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &set)
}

// maxLarge is how many objects a large batch can have.
const maxLarge = 1500

// large is a numbered batch with a watch of so many objects of 2 kB besides.
func large(n, objects int) *state.Batch {
	b := numbered(n)
	random := rand.New(rand.NewPCG(uint64(n), 3))
	change := &state.ViewChange{Info: state.ViewInfo{Position: fmt.Sprint(n)}, Objects: map[string]*event.Object{}}
	for i := range maxLarge {
		name := fmt.Sprint(i)
		change.Objects[name] = nil
		if i < objects {
			body := make([]byte, 2000)
			for j := range body {
				body[j] = byte(random.Uint32())
			}
			change.Objects[name] = &event.Object{Name: name, UID: fmt.Sprint(n), ResourceVersion: fmt.Sprint(n), Body: body}
		}
	}
	b.Views["large"] = change
	return b
}

// hold checks that the store holds exactly this large batch.
func hold(s *Store, b *state.Batch) error {
	want, have := 0, 0
	for _, o := range b.Views["large"].Objects {
		if o != nil {
			want++
		}
	}
	info, err := s.LoadView("large", func(o *event.Object) error {
		have++
		if w := b.Views["large"].Objects[o.Name]; w == nil || !w.Same(o) || !bytes.Equal(w.Body, o.Body) {
			return fmt.Errorf("object %s is of batch %s", o.Name, o.ResourceVersion)
		}
		return nil
	})
	if err == nil && (have != want || info != b.Views["large"].Info) {
		err = fmt.Errorf("%d objects and not %d, at %s", have, want, info.Position)
	}
	if err != nil {
		return fmt.Errorf("batch %s is not stored: %w", b.Views["large"].Info.Position, err)
	}
	return nil
}

// runOutOfRoom commits with less and less room: first the file can not become longer,
// then its pages can not be written behind some place, down to the meta pages.
func runOutOfRoom(dir string) error {
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	last := large(1, 200)
	if err := s.Commit(last); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(4, 5))
	failed := 0
	for n := 2; n < 44; n++ {
		info, err := os.Stat(s.path)
		if err != nil {
			return err
		}
		room, objects := info.Size(), 200
		switch n % 4 {
		case 0:
			objects *= 1 + n/10 // often the file has to become longer
		case 1:
			room = random.Int64N(room)
		case 2:
			room = random.Int64N(2 * int64(os.Getpagesize())) // a meta page is written in part
		case 3:
			room /= 2
		}
		b := large(n, objects)
		lift, err := limit(uint64(room))
		if err != nil {
			return err
		}
		for range 2 {
			if s.Commit(b) != nil {
				failed++
				// Reading works without room too. Where the last page was written in part, enough
				// of it can have been written.
				if err := hold(s, last); err != nil && hold(s, b) != nil {
					return fmt.Errorf("without room: %w", err)
				}
			}
		}
		if err := lift(); err != nil {
			return err
		}
		if n%5 == 0 { // what has failed must not be damage either
			if err := s.Close(); err != nil {
				return err
			}
			if s, err = open(dir, lockTimeout); err != nil {
				return err
			}
			if err := hold(s, last); err != nil && hold(s, b) != nil {
				return fmt.Errorf("reopened: %w", err)
			}
		}
		if err := s.Commit(b); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
		if err := hold(s, b); err != nil {
			return err
		}
		last = b
	}
	fmt.Println(failed)
	return s.Close()
}

func TestAFullDiskIsAnErrorThatPasses(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "run out of room", dir)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &p.stderr)
	}
	if failed, _ := strconv.Atoi(strings.TrimSpace(p.stdout.String())); failed < 25 {
		t.Errorf("only %d commits had no room", failed)
	}
	if err := hold(mustOpen(t, dir), large(43, 200)); err != nil {
		t.Error(err)
	}
}

// startWithoutRoom makes a state where the disk is full, and then where it is not.
func startWithoutRoom(dir string) error {
	for _, room := range []uint64{0, 1, 4096, 8192, 10000, 16384, 20000} {
		lift, err := limit(room)
		if err != nil {
			return err
		}
		s, openErr := open(dir, lockTimeout)
		if openErr == nil {
			return fmt.Errorf("made in %d bytes: %w", room, s.Close())
		}
		if err := lift(); err != nil {
			return err
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			return fmt.Errorf("%d bytes of room left %v, %w", room, list, err)
		}
	}
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	return s.Close()
}

func TestAFullDiskAtTheFirstStartLeavesNothing(t *testing.T) {
	if err := play(t, "start without room", t.TempDir()); err != nil {
		t.Fatal(err)
	}
}

// openAsNobody opens the state as a user that may not write in the folder.
func openAsNobody(dir string) error {
	if os.Getuid() == 0 {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	return onlyOpen(dir)
}

func onlyOpen(dir string) error {
	s, err := open(dir, soon)
	if err != nil {
		return err
	}
	return s.Close()
}

// mention checks that an error has all of the words.
func mention(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in: %v", w, err)
		}
	}
}

func TestAFolderThatCanNotBeWrittenIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(d, 0o755)
	}
	for _, d := range []string{dir, filepath.Join(dir, "new")} {
		mention(t, play(t, "open as nobody", d), d, "permission denied")
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := open(plain, lockTimeout)
	mention(t, err, plain, "not a directory")
}

func TestAFileThatCanNotBeWrittenIsNamed(t *testing.T) {
	dir := t.TempDir()
	mustClose(t, mustOpen(t, dir))
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, Name)
	if err := os.Chmod(path, 0o444); err != nil {
		t.Fatal(err)
	}
	mention(t, play(t, "open as nobody", dir), path, "permission denied")
}

func TestAKilledCreationIsTidiedUp(t *testing.T) {
	dir := t.TempDir()
	for name, body := range map[string]string{Name + unfinished + "123": "half", Name: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir)
	mustCommit(t, s, numbered(1))
	if have := names(t, dir); len(have) != 1 {
		t.Errorf("the folder has %v", have)
	}
	if info, err := os.Stat(filepath.Join(dir, Name)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file's mode: %v, %v", info.Mode(), err)
	}
}
