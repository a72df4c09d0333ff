package file

import (
	"errors"
	"fmt"
	"io"

	"go.etcd.io/bbolt"
)

// inspect reads the whole file, which is open for reading and locked, without
// changing it. The pages come from pages, which is the file; its errors are returned as
// they are where they say that it is not to be read on.
func (s *Store) inspect(pages io.ReaderAt) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	switch err := checkPages(pages, info.Size(), s.db.Info().PageSize); {
	case errors.Is(err, errEnough):
		return err
	case err != nil:
		return damaged(err)
	}
	return s.guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if err := checkFormat(tx); err != nil {
				return err
			}
			return checkRecords(tx)
		})
	})
}

func checkFormat(tx *bbolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return errForeign
	}
	v := meta.Get(formatKey)
	if len(v) != 1 || v[0] == 0 {
		return errForeign
	}
	if v[0] > format {
		return fmt.Errorf("a newer kbridge wrote it (format %d, this one knows %d): run that one, or move the file away to begin anew", v[0], format)
	}
	if v[0] < format {
		return fmt.Errorf("a kbridge before the first release wrote it (format %d, this one knows %d): move the file away to begin anew, with a snapshot", v[0], format)
	}
	return nil
}

var errForeign = errors.New("this is no state of kbridge; move it away or choose another folder")

// checkRecords compares everything with its checksums.
func checkRecords(tx *bbolt.Tx) error {
	kinds := [][]byte{viewsBucket, lanesBucket, dictionariesBucket}
	for _, kind := range kinds {
		if tx.Bucket(kind) == nil {
			return errDamaged
		}
	}
	r, err := readRoot(tx)
	if err != nil {
		return err
	}
	var have digest
	for _, kind := range kinds {
		if err := tx.Bucket(kind).ForEach(func(name, value []byte) error {
			if value != nil {
				return errDamaged
			}
			t, err := openTable(tx, kind, name)
			if err != nil {
				return fmt.Errorf("%s %q: %w", kind, name, err)
			}
			have.add(sealOf(t.stored))
			if err := t.each(func([]byte, []byte) error { return nil }); err != nil {
				return fmt.Errorf("%s %q: %w", kind, name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if have != r.tables {
		return errors.Join(errDamaged, fmt.Errorf("%d watches and sinks where %d were stored, or others", have.count, r.tables.count))
	}
	return nil
}
