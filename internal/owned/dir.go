package owned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Dir makes a folder for kbridge's user alone, or fails where one that is there can be
// written by whoever else may then put files of their own in the place of kbridge's: an
// owner who is neither that user nor root, or anybody. A group may write: Kubernetes lets
// fsGroup's write to every volume.
//
// In a folder where anybody may write but nobody remove what another has made, such as
// /tmp, OpenFile looks at whose the files are.
func Dir(dir string) error {
	if err := look(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.MkdirAll(dir, 0o700)
}

// look fails where a folder is absent or not to be used.
func look(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if link, err := os.Lstat(dir); err == nil && others(link) {
		info = link // who owns the link says where it leads
	}
	return judge(dir, info)
}

// CheckDir fails where Dir would, or where no file could be made in the folder, and makes
// nothing. absent says that Dir would make it.
func CheckDir(dir string) (absent bool, err error) {
	switch err := look(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return true, makeable(dir)
	case err != nil:
		return false, err
	}
	return false, writable(dir)
}

// makeable fails where a folder that is absent could not be made.
func makeable(dir string) error {
	above := filepath.Dir(dir)
	info, err := os.Stat(above)
	switch {
	case errors.Is(err, fs.ErrNotExist) && above != dir:
		return makeable(above)
	case err != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	return writable(above)
}

func judge(dir string, info fs.FileInfo) error {
	if others(info) {
		return fmt.Errorf("another user than root and kbridge's own owns the folder %s (%v), and could replace what is in it: chown it, or choose another", dir, info.Mode())
	}
	if anybodyWrites(info) && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("anybody may write to the folder %s (%v), and replace what is in it: chmod o-w it, or name a folder inside of it, which kbridge makes for itself alone", dir, info.Mode())
	}
	return nil
}

func anybodyWrites(info fs.FileInfo) bool {
	return runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0
}
