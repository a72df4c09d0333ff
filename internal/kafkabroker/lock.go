package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// fileLock is held by one process at a time; the kernel gives it up when the process ends. The file's content is free
// for the holder to leave a message to those who wait.
type fileLock struct{ f *os.File }

// lockFile waits for the lock. While it waits it calls waiting, if there is one, several times a second.
func lockFile(ctx context.Context, path string, waiting func(f *os.File)) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		free, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if free {
			return &fileLock{f: f}, nil
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

func tryLock(f *os.File) (bool, error) {
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

func (l *fileLock) release() { l.f.Close() }
