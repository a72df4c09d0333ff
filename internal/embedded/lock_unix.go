//go:build unix

package embedded

import (
	"errors"
	"os"
	"syscall"

	"github.com/kbridge-io/kbridge/internal/owned"
)

// acquire takes the lock, which ends with the file's being closed or with the process.
func acquire(path string) (*os.File, error) {
	f, err := owned.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, err
	}
	return f, nil
}
