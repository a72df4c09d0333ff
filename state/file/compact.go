package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/internal/owned"
)

// bbolt uses the pages that become free again, and never gives them back: after a day with
// ten times as many objects the file stays that large. So at a start it is written anew
// where more than half of it is free.

const (
	// worthCompacting is the size in bytes from which on a file is: less is not worth the time.
	worthCompacting = 64 << 20
	// copiedAtOnce is how many bytes bbolt copies in one transaction.
	copiedAtOnce = 4 << 20
)

// Compaction is what could be won by one.
type Compaction struct {
	Size, Free int64 // of the file, in bytes
	Worth      bool
}

// Compaction says what is free in the file. Nothing is to be won while there is residue:
// first it goes.
func (s *Store) Compaction() (c Compaction, err error) {
	info, err := s.file.Stat()
	if err != nil {
		return c, fmt.Errorf("look at the state in %s: %w", s.path, err)
	}
	size := s.db.Info().PageSize
	free, err := freePages(s.file, info.Size(), size)
	if err != nil {
		return c, damaged(err)
	}
	c.Size = info.Size()
	for _, is := range free {
		if is {
			c.Free += int64(size)
		}
	}
	residue, err := s.Residue()
	// Windows renames no file that is open.
	c.Worth = c.Size >= s.worth && 2*c.Free > c.Size && residue.Since.IsZero() && runtime.GOOS != "windows"
	return c, err
}

// Compact writes what is stored to a new file, which takes the place of the one there is,
// and returns its size in bytes. The old one is overwritten before its blocks are given
// back: what it has may not be meant to last. After an error, such as that of a full disk,
// the state is as good as before.
func (s *Store) Compact() (size int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("compact the state in %s: %w", s.path, err)
		}
	}()
	old, err := owned.OpenFile(s.path, os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	// Until it is renamed nobody else opens it; and we have its lock when we let go of the
	// old one's.
	db, file, err := s.copyTo()
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err == nil {
		err = os.Rename(file.Name(), s.path)
	}
	if err != nil {
		return 0, errors.Join(err, db.Close(), os.Remove(file.Name()))
	}
	before := s.db
	s.db, s.file, s.wiped = db, file, 0
	if err := s.guard(before.Close); err != nil {
		return info.Size(), err
	}
	// A crash before this is on the disk brings the old one back: it must be what it was.
	if err := syncDir(filepath.Dir(s.path)); err != nil {
		return info.Size(), err
	}
	return info.Size(), overwrite(old)
}

// copyTo writes what is stored to a file that has no name of a state yet.
func (s *Store) copyTo() (db *bbolt.DB, file *os.File, err error) {
	unnamed, err := os.CreateTemp(filepath.Dir(s.path), Name+unfinished)
	if err != nil {
		return nil, nil, err
	}
	if err := unnamed.Close(); err != nil {
		return nil, nil, err
	}
	o := options(s.wait)
	o.NoSync = true // it is synced once, when it is whole
	o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	err = s.guard(func() error {
		if db, err = bbolt.Open(unnamed.Name(), 0o600, o); err != nil {
			return err
		}
		if err := bbolt.Compact(db, s.db, copiedAtOnce); err != nil {
			return errors.Join(err, db.Close())
		}
		db.NoSync = false
		return db.Sync()
	})
	if err != nil {
		return nil, nil, errors.Join(err, os.Remove(unnamed.Name()))
	}
	return db, file, nil
}

// overwrite writes zeros over a file that nobody reads any more.
func overwrite(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < info.Size(); at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), info.Size()-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}
