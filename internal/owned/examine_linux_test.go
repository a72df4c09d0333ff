package owned

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody calls do as a user without rights. Only this thread becomes one, and ends.
func asNobody(t *testing.T, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		do() // whoever this is has the rights of a user
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock it
		const nobody = 65534
		if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); err != 0 {
			t.Errorf("become another user: %v", err)
			return
		}
		do()
	}()
	<-done
}

func TestAFolderThatCanNotBeUsedIsFoundOutWithoutMakingIt(t *testing.T) {
	top := t.TempDir()
	if err := os.Chmod(filepath.Dir(top), 0o755); err != nil { // for whom it is not made
		t.Fatal(err)
	}
	write(t, filepath.Join(top, "file"), "")
	for _, made := range []string{"ours", "closed"} {
		if err := os.Mkdir(filepath.Join(top, made), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(top, "closed"), 0o555); err != nil {
		t.Fatal(err)
	}
	check := func(path string, absent bool, want string) {
		t.Helper()
		got, err := CheckDir(filepath.Join(top, path))
		if got != absent || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: absent %t, %v, want %t and %q", path, got, err, absent, want)
		}
	}
	check("ours", false, "")
	check("ours/a/b/c", true, "")
	check("file", false, "not a directory")
	check("file/a", false, "not a directory")
	asNobody(t, func() {
		check("closed", false, "permission denied")
		check("closed/a/b", true, "permission denied")
	})
	if _, err := os.Stat(filepath.Join(top, "ours", "a")); err == nil {
		t.Error("a folder was made")
	}
}

func TestWhoHoldsALockIsFoundOutWithoutTakingIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "")
	if pid := Holder(path); pid != 0 {
		t.Errorf("of a file that nobody has locked it is %d", pid)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if pid := Holder(path); pid != os.Getpid() {
		t.Errorf("it is %d, want %d", pid, os.Getpid())
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	line := func(pid int) string {
		return fmt.Sprintf("1: FLOCK  ADVISORY  WRITE %d fd:01:%d 0 EOF\n", pid, inode)
	}
	if pid := holder([]byte(line(os.Getppid())+line(os.Getpid())), info); pid != os.Getpid() {
		t.Errorf("beside a lock on a file of the same number elsewhere it is %d, want %d", pid, os.Getpid())
	}
}
