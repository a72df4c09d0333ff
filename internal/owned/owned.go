// Package owned opens the files that kbridge writes. Whoever else may write to their
// folder must not make kbridge write, or read back, another file: none is opened through
// a symbolic link, and what is new is made where nothing was.
//
// Files that kbridge only reads are not its business: Kubernetes mounts Secrets and
// ConfigMaps as symbolic links.
package owned

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// OpenFile is os.OpenFile for a regular file that is not reached through a symbolic link.
func OpenFile(path string, flag int, mode fs.FileMode) (*os.File, error) {
	// A pipe would be waited for.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, irregular(path, info)
	}
	f, err := os.OpenFile(path, flag|noFollow, mode)
	if err != nil {
		if info, e := os.Lstat(path); e == nil && !info.Mode().IsRegular() {
			err = irregular(path, info)
		}
		return nil, err
	}
	if err := check(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// check looks at what was opened.
func check(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return irregular(f.Name(), info)
	case !others(info):
		return nil
	}
	// Of another user: one that kbridge had before, or one that waits for it.
	dir, err := os.Stat(filepath.Dir(f.Name()))
	if err == nil && anybodyWrites(dir) {
		err = refused(f.Name(), "another user than root and kbridge's own made it, in a folder that anybody may write to")
	}
	return err
}

func irregular(path string, info fs.FileInfo) error {
	what := "it is no regular file"
	if info.Mode()&fs.ModeSymlink != 0 {
		what = "it is a symbolic link, and kbridge writes through none"
	}
	return refused(path, what)
}

func refused(path, why string) error {
	return &fs.PathError{Op: "open", Path: path, Err: errors.New(why)}
}

// Private fails where somebody else may read or write the file.
func Private(f *os.File) error {
	info, err := f.Stat()
	if err == nil && (others(info) || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("%s (%v) is not ours alone", f.Name(), info.Mode())
	}
	return err
}

// ReadFile is os.ReadFile for a file of OpenFile's.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Replace puts a file of its own in the place of whatever has the name, at once, so that
// no reader sees half of it. Nobody else may read it.
func Replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-") // O_EXCL, 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
