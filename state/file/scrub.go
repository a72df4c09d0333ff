package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/state"
)

// bbolt writes what changes to pages that are free, and leaves what was there before in
// those that become free: until they are used again they hold what they held. So what is
// to go is first taken out of what is stored, and then all free pages are overwritten, in
// place: a copy of the file without them would need the room of a second one, and would
// leave to the file system the blocks of the first, as they are.

// wipedAtOnce is how many pages Scrub overwrites before batches may be written again: 16 MiB.
const wipedAtOnce = 16 << 20 / pageSize

// Residue implements state.Store.
func (s *Store) Residue() (residue state.Residue, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		r, err := readRoot(tx)
		if err != nil || r.residue == 0 {
			return err
		}
		residue.Since = time.Unix(int64(r.residue), 0).UTC()
		residue.Views, err = underOthers(tx, s.rules)
		return err
	})
	return residue, err
}

// underOthers are the watches that are stored under other rules than these.
func underOthers(tx *bbolt.Tx, rules map[state.ViewID]string) (views []state.ViewID, err error) {
	err = tx.Bucket(viewsBucket).ForEachBucket(func(name []byte) error {
		t, err := openTable(tx, viewsBucket, name)
		if err != nil {
			return err
		}
		var info state.ViewInfo
		if err := json.Unmarshal(t.info, &info); err != nil {
			return errors.Join(errDamaged, err)
		}
		if id := state.ViewID(name); info.Rules != rules[id] {
			views = append(views, id)
		}
		return nil
	})
	return views, err
}

// Scrub implements state.Store.
func (s *Store) Scrub() (done bool, err error) {
	residue, err := s.Residue()
	switch {
	case err != nil:
		return false, err
	case s.rules == nil || len(residue.Views) > 0:
		return false, fmt.Errorf("BUG: scrub the state in %s while the bodies of %q are under other rules", s.path, residue.Views)
	case residue.Since.IsZero():
		return true, nil
	}
	// Each step begins with a commit: it makes sure that the file is ours, and that the disk
	// has the newest meta page, to which what is free in it is of no use.
	if s.wiped == 0 {
		err = s.forgetDictionaries()
	} else {
		err = s.update(func(*bbolt.Tx, *root) error { return nil })
	}
	if err != nil {
		return false, err
	}
	if err := s.wipe(); err != nil {
		return false, fmt.Errorf("overwrite what is free in the state in %s: %w", s.path, err)
	}
	if s.wiped < s.wipeTo {
		return false, nil
	}
	if err := s.update(func(_ *bbolt.Tx, r *root) error { r.residue = 0; return nil }); err != nil {
		return false, err
	}
	return true, nil
}

// wipe overwrites free pages, from the first on that it has not come to. What becomes free
// behind it, and what makes the file longer, has what is stored now.
func (s *Store) wipe() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	size := s.db.Info().PageSize
	free, err := freePages(s.file, info.Size(), size)
	if err != nil {
		return damaged(err)
	}
	if s.wiped == 0 {
		s.wipeTo = uint64(len(free))
	}
	if s.wipeTo > uint64(len(free)) {
		return damaged(fmt.Errorf("it was cut from %d pages to %d", s.wipeTo, len(free)))
	}
	zeros, page := make([]byte, size), make([]byte, size)
	at, left := max(s.wiped, 2), s.step
	for ; at < s.wipeTo && left > 0; at++ {
		if !free[at] {
			continue
		}
		left--
		// What the disk does not give back may still be there for others.
		if _, err := s.file.ReadAt(page, int64(at)*int64(size)); err == nil && bytes.Equal(page, zeros) {
			continue
		}
		if _, err := s.file.WriteAt(zeros, int64(at)*int64(size)); err != nil {
			return err
		}
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	s.wiped = at
	return nil
}
