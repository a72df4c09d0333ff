//go:build unix

package owned

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// writable fails where the process may not make files in a folder: it has not the rights,
// or the file system is read-only.
func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}
