package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/internal/owned"
)

// unfinished is what the name of a file that is being made has after Name.
const unfinished = ".new-"

// makeDir makes the folder, so that a crash does not unmake it, or checks who may write
// to it.
func makeDir(dir string) error {
	_, absent := os.Stat(dir)
	if err := owned.Dir(dir); err != nil || absent == nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// create makes an empty state. It gets its name when it is whole: a kill or a full
// disk leave no half one, which would be taken for a damaged one. empty says that
// there is a file of no bytes.
func create(path string, empty bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), Name+unfinished)
	if err != nil {
		return err
	}
	name := f.Name()
	defer os.Remove(name)
	if err := f.Close(); err != nil {
		return err
	}
	if err := fill(name); err != nil {
		return err
	}
	if err := publish(name, path, empty); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func fill(name string) error {
	db, err := bbolt.Open(name, 0o600, options(lockTimeout))
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{metaBucket, viewsBucket, lanesBucket, dictionariesBucket} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		if err := tx.Bucket(metaBucket).Put(formatKey, []byte{format}); err != nil {
			return err
		}
		return new(root).write(tx)
	})
	return errors.Join(err, db.Close())
}

// publish gives the file its name. A link fails where the name is taken, by another
// process that was faster; not all file systems have them.
func publish(name, path string, empty bool) error {
	if !empty {
		if os.Link(name, path) == nil {
			return nil
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Rename(name, path)
}

// removeUnfinished removes what a kill during create left. We hold the lock of the
// whole one, so nobody needs another.
func removeUnfinished(path string) {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // they take room, no more
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), Name+unfinished) {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// syncDir makes the names in a folder survive a crash.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such call
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
