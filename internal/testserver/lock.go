package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Lock is held by one process at a time; the kernel gives it up when the process ends. The file's content is free for
// the holder to leave a message to those who wait.
type Lock struct{ File *os.File }

// LockFile waits for the lock. While it waits it calls waiting, if there is one, several times a second.
func LockFile(ctx context.Context, path string, waiting func(f *os.File)) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		free, err := flock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if free {
			return &Lock{File: f}, nil
		}
		if waiting != nil {
			waiting(f)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
		}
	}
}

// TryLock returns nil where another process has the lock, or there is no such file.
func TryLock(path string) *Lock {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	if free, _ := flock(f); !free {
		f.Close()
		return nil
	}
	return &Lock{File: f}
}

// Release gives the lock up.
func (l *Lock) Release() { l.File.Close() }

func flock(f *os.File) (bool, error) {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
