package testcluster

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

const tempDirPattern = "kbridge-cluster-*"

// temporaryDir is a folder that a lock marks as in use. etcd reserves over 100 MB in it, so what a killed test run
// left is removed by the next: the kernel gave its lock up.
type temporaryDir struct {
	path string
	lock *fileLock
}

func newTemporaryDir() (*temporaryDir, error) {
	removeAbandoned(os.TempDir())
	path, err := os.MkdirTemp("", tempDirPattern)
	if err != nil {
		return nil, err
	}
	d := &temporaryDir{path: path}
	if d.lock, err = lockFile(context.Background(), filepath.Join(path, "lock"), nil); err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	return d, nil
}

func (d *temporaryDir) remove() error {
	d.lock.release()
	return os.RemoveAll(d.path)
}

// removeAbandoned does what it can and reports nothing: somebody else's folders are not this test's trouble.
func removeAbandoned(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, tempDirPattern))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // perhaps so new that its lock is not taken yet
		}
		f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, _ := tryLock(f); free {
			os.RemoveAll(dir)
		}
		f.Close()
	}
}
