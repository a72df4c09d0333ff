package testcluster

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

const tempDirPattern = "kbridge-cluster-*"

// temporaryDir is a folder that a lock marks as in use. etcd reserves over 100 MB in it, so what a killed test run
// left is removed by the next: the kernel gave its lock up.
type temporaryDir struct {
	path string
	lock *testserver.Lock
}

func newTemporaryDir() (*temporaryDir, error) {
	removeAbandoned(os.TempDir())
	path, err := os.MkdirTemp("", tempDirPattern)
	if err != nil {
		return nil, err
	}
	d := &temporaryDir{path: path}
	if d.lock, err = testserver.LockFile(context.Background(), filepath.Join(path, "lock"), nil); err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	return d, nil
}

func (d *temporaryDir) remove() error {
	d.lock.Release()
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
		if lock := testserver.TryLock(filepath.Join(dir, "lock")); lock != nil {
			os.RemoveAll(dir)
			lock.Release()
		}
	}
}
