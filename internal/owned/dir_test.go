//go:build unix

package owned

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// fileInfo is of a file with that mode and owner.
type fileInfo struct {
	fs.FileInfo
	mode  fs.FileMode
	owner int
}

func (i fileInfo) Mode() fs.FileMode { return i.mode }
func (i fileInfo) Sys() any          { return &syscall.Stat_t{Uid: uint32(i.owner)} }

func TestAFolderThatOthersMayWriteToIsRefused(t *testing.T) {
	self := os.Geteuid()
	const setgid, sticky = fs.ModeSetgid, fs.ModeSticky
	for _, c := range []struct {
		what  string
		mode  fs.FileMode
		owner int
		want  string // in the error; empty: none
	}{
		{"ours alone", 0o700, self, ""},
		{"as mkdir makes it", 0o755, self, ""},
		{"a volume of root's", 0o755, 0, ""},
		{"a volume with an fsGroup", 0o775 | setgid, 0, ""},
		{"/tmp", 0o777 | sticky, 0, ""},
		{"an emptyDir", 0o777, 0, "anybody may write"},
		{"an emptyDir with an fsGroup", 0o777 | setgid, 0, "anybody may write"},
		{"ours, and anybody's", 0o707, self, "anybody may write"},
		{"another user's", 0o755, self + 1, "another user"},
		{"another user's in all", 0o700, self + 1, "another user"},
		{"another user's, and anybody's", 0o777 | sticky, self + 1, "another user"},
	} {
		err := judge("/state", fileInfo{mode: fs.ModeDir | c.mode, owner: c.owner})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s (%v): %v, want %q", c.what, c.mode, err, c.want)
		}
	}
}

func TestAFolderIsMadeForKbridgeAloneAndJudgedOnceItIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		if err := Dir(dir); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := Dir(link); err != nil {
		t.Errorf("by a link of ours: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, link} {
		if err := Dir(path); err == nil || !strings.Contains(err.Error(), "anybody may write") {
			t.Errorf("%s: %v", path, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	if err := Dir(file); err == nil {
		t.Error("a file is taken for a folder")
	}
}

func TestAFileOfAnotherUserIsRefusedWhereAnybodyMayMakeOne(t *testing.T) {
	if !others(fileInfo{owner: os.Geteuid() + 1}) || others(fileInfo{owner: os.Geteuid()}) || others(fileInfo{owner: 0}) {
		t.Error("whose a file is is not told")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "waiting")
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("in a folder of ours: %v", err) // of an earlier user of the volume
	}
	f.Close()
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenFile(path, os.O_RDWR, 0); err == nil {
		f.Close()
		t.Error("it is opened")
	}
}
