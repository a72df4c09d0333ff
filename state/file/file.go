// Package file keeps the state in one bbolt file in a folder. A file that is
// damaged, that a newer kbridge wrote, or that another process has open is named in
// the error and left as it is.
package file

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/kbridge-io/kbridge/internal/owned"
	"github.com/kbridge-io/kbridge/state"
)

// Name is the file's name in its folder.
const Name = "kbridge.db"

// format is the version of what is in the file. A file with another one is refused.
const format = 2

// pageSize is that of a new file, in bytes, on machines with larger pages too: with 8 KiB
// a commit of changes that are spread takes a third more time.
const pageSize = 4096

// lockTimeout is how long another process may take to let go of the file, as one
// that is being replaced does.
const lockTimeout = 10 * time.Second

// lockPause is how long each attempt to get it takes.
const lockPause = 100 * time.Millisecond

// Store is a state.Store in a file. One goroutine uses it.
type Store struct {
	path string
	wait time.Duration // for the lock
	db   *bbolt.DB
	file *os.File // bbolt's
	// identity is the file's, as it was opened.
	identity fs.FileInfo
	codec    *codec
	owner    uint64 // the fencing token: one more with each opening
	buf      []byte

	rules  map[state.ViewID]string // that bodies are to be under; nil before Retain
	wiped  uint64                  // up to this page what is free has been overwritten; zero: nothing has
	wipeTo uint64                  // up to this one it is to be
	step   int                     // how many pages are overwritten at once
	worth  int64                   // the size from which on it is worth to compact the file

	values arena // of the transaction under way
	// failed is what bbolt panicked with. It may hold locks of its own since then, so it
	// is not called again.
	failed error
	// calling says that a function of the caller runs, whose panics are its own.
	calling bool
}

var _ state.Store = (*Store)(nil)

// Open opens or makes the file in the folder, which is made too. All of the file is
// read once, and compared with its checksums. Where another process has it open, inUse is
// called, once, and Open waits for a while, or until ctx ends.
func Open(ctx context.Context, dir string, inUse func()) (*Store, error) {
	for began := time.Now(); ; {
		s, err := open(dir, lockPause)
		if err == nil || !errors.Is(err, errInUse) || time.Since(began) >= lockTimeout {
			return s, err
		}
		if inUse != nil {
			inUse()
			inUse = nil
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func open(dir string, wait time.Duration) (*Store, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("open the state: %w", err)
	}
	s := &Store{path: filepath.Join(dir, Name), wait: wait, step: wipedAtOnce, worth: worthCompacting}
	err := s.open()
	for s.wasReplaced() {
		// Another process has compacted it while we waited for the lock, and has ended.
		if err == nil {
			err = s.close()
		}
		if s.identity, s.failed = nil, nil; err == nil || !errors.Is(err, errInUse) {
			err = s.open()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the state in %s: %w", s.path, err)
	}
	return s, nil
}

// wasReplaced says that the file which was opened last is not the state's any more.
func (s *Store) wasReplaced() bool {
	if s.identity == nil {
		return false // there was none
	}
	named, err := os.Stat(s.path)
	return err == nil && !os.SameFile(s.identity, named)
}

func (s *Store) open() (err error) {
	s.codec = newCodec()
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	switch found, err := lookFor(s.path); {
	case err != nil:
		return err
	case found != stored:
		if err := create(s.path, found == empty); err != nil {
			return err
		}
	}
	// Read before it is opened for writing: what is no state of ours stays as it is.
	if err := s.openDB(true); err != nil {
		return err
	}
	if err := s.inspect(s.file); err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	if err := s.openDB(false); err != nil {
		return err
	}
	removeUnfinished(s.path)
	if err := s.guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket(metaBucket)
			if owner := meta.Get(ownerKey); len(owner) == 8 {
				s.owner = binary.BigEndian.Uint64(owner)
			}
			s.owner++
			return meta.Put(ownerKey, binary.BigEndian.AppendUint64(nil, s.owner))
		})
	}); err != nil {
		return err
	}
	return s.loadDictionaries()
}

// presence is whether there is a file of the state.
type presence int

const (
	absent presence = iota
	empty           // of no bytes
	stored
)

func lookFor(path string) (presence, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return absent, err
	case info.Mode()&fs.ModeSymlink != 0:
		return absent, errors.New("it is a symbolic link, and kbridge writes through none: name the folder that the file is in")
	case !info.Mode().IsRegular():
		return absent, errors.New("it is no regular file")
	case info.Size() == 0:
		return empty, nil
	}
	return stored, nil
}

// options are bbolt's, save for how the file is opened.
//
// A full disk can not end the process with SIGBUS: bbolt only reads from its memory
// map, and only pages that were written; it writes with pwrite, whose error it
// returns. Two options keep it so. NoGrowSync is off: the file is made longer, and
// that is on the disk, before the map's new part is used. NoFreelistSync is off: the
// list of free pages is stored with each commit, 8 bytes a page. Else bbolt finds
// them by reading the whole file when it opens it and after each failed commit, in a
// goroutine whose panics nobody can catch.
func options(wait time.Duration) *bbolt.Options {
	return &bbolt.Options{Timeout: wait, PageSize: pageSize, FreelistType: bbolt.FreelistMapType}
}

// openDB lets bbolt open the file and take the lock.
func (s *Store) openDB(readOnly bool) error {
	o := options(s.wait)
	o.ReadOnly = readOnly
	o.OpenFile = func(name string, flag int, mode os.FileMode) (file *os.File, err error) {
		s.file, err = owned.OpenFile(name, flag&^os.O_CREATE, mode)
		if err == nil {
			s.identity, err = s.file.Stat()
		}
		return s.file, err
	}
	return s.guard(func() (err error) {
		s.db, err = bbolt.Open(s.path, 0o600, o)
		return explain(err)
	})
}

// explain says what the user can do about an error of opening.
func explain(err error) error {
	var errno syscall.Errno
	var path *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return errInUse
	case errors.As(err, &errno), errors.As(err, &path):
		return err
	default:
		return damaged(fmt.Errorf("or no state of kbridge: %w", err))
	}
}

var errInUse = errors.New("another process has it open: each kbridge needs a folder of its own")

// damaged says of a file that it can not be used.
func damaged(why any) error {
	return fmt.Errorf("the file is damaged (%v): move it away to begin anew, with a snapshot", why)
}

// guard turns what bbolt does about pages that make no sense, and the kernel about
// those that are not there, into an error. It sees what happens in this goroutine.
func (s *Store) guard(do func() error) (err error) {
	if s.failed != nil {
		return s.failed
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if s.calling {
			s.calling = false // a panic of the caller's own goes on
			return
		}
		if p := recover(); p != nil {
			s.failed = damaged(p)
			err = s.failed
		}
	}()
	err = do()
	if errors.Is(err, errDamaged) {
		err = damaged(err)
	}
	return err
}

func (s *Store) view(do func(tx *bbolt.Tx) error) error {
	if err := s.guard(func() error { return s.db.View(do) }); err != nil {
		return fmt.Errorf("read the state in %s: %w", s.path, err)
	}
	return nil
}

// update runs one transaction, provided that the state is still ours.
func (s *Store) update(do func(tx *bbolt.Tx, r *root) error) error {
	defer s.values.reset()
	err := s.guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			if owner := tx.Bucket(metaBucket).Get(ownerKey); len(owner) != 8 || binary.BigEndian.Uint64(owner) != s.owner {
				return state.ErrFenced
			}
			r, err := readRoot(tx)
			if err != nil {
				return err
			}
			if err := do(tx, r); err != nil {
				return err
			}
			return r.write(tx)
		})
	})
	if err != nil {
		return fmt.Errorf("write the state in %s: %w", s.path, err)
	}
	return nil
}

// Close implements state.Store.
func (s *Store) Close() error {
	if err := s.close(); err != nil {
		return fmt.Errorf("close the state in %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) close() error {
	if s.failed != nil {
		return s.file.Close() // which gives up the lock; bbolt might wait for itself
	}
	if s.db == nil {
		return nil // bbolt has closed what it could not open
	}
	return s.db.Close()
}
