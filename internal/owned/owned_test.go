package owned

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestNoFileIsOpenedThroughASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	other, link := filepath.Join(dir, "other"), filepath.Join(dir, "link")
	for _, there := range []bool{false, true} {
		if there {
			write(t, other, "of another")
		}
		os.Remove(link)
		if err := os.Symlink(other, link); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_RDWR | os.O_CREATE | os.O_TRUNC, os.O_RDWR | os.O_CREATE | os.O_APPEND} {
			f, err := OpenFile(link, flag, 0o600)
			if err == nil {
				f.Close()
				t.Errorf("flag %#x opens what the link leads to", flag)
			} else if !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("flag %#x: %v", flag, err)
			}
		}
		if _, err := ReadFile(link); err == nil {
			t.Error("it is read through the link")
		}
	}
	if got := text(t, other); got != "of another" {
		t.Errorf("the file that the link leads to has become %q", got)
	}
}

func TestWhatIsNoRegularFileIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "folder"), "/dev/null"} {
		if f, err := OpenFile(path, os.O_RDONLY, 0); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v, %v", path, f, err)
		}
	}
}

func TestAFileIsReplacedAndNotWrittenInto(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	write(t, other, "of another")
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		if err := Replace(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got := text(t, path); got != want {
			t.Errorf("the file has %q, want %q", got, want)
		}
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if got := text(t, other); got != "of another" {
		t.Errorf("the file that the link led to has become %q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}
