package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/internal/owned"
	"github.com/kbridge-io/kbridge/state"
)

// Examined is what a start would find in the state's folder.
type Examined struct {
	// NoFolder and Absent say that a start would make the folder, or the file in it.
	NoFolder, Absent bool
	// InUse says that a process has the state open; Process is its id, zero where that can
	// not be known. Nothing else is known of the state then.
	InUse   bool
	Process int
	// Unread says that there was no time to read all of the file: whether it is damaged is
	// not known, nor what is in it.
	Unread bool
	// Format is the version of what is in the file, and Starts is how often it was opened.
	Format int
	Starts uint64
	// Clusters are the UIDs of those that the state is of.
	Clusters []string
	Contents state.Contents
}

// examineFor is for how long the file is read, and locked for those who would write. A start
// waits for longer.
const examineFor = lockTimeout / 2

// errEnough ends the reading of a file that is too large to be read in time.
var errEnough = errors.New("the time is over")

// Examine looks at the state in a folder without making or changing anything. An error is
// one that Open would return too.
func Examine(dir string) (Examined, error) {
	x := Examined{Format: format}
	path := filepath.Join(dir, Name)
	var err error
	if x.NoFolder, err = owned.CheckDir(dir); err != nil {
		return x, err
	}
	found, err := lookFor(path)
	if err != nil {
		return x, err
	}
	if x.Absent = found != stored; x.Absent {
		return x, nil
	}
	s := &Store{path: path, wait: time.Millisecond, codec: newCodec()}
	err = s.openDB(true)
	if errors.Is(err, errInUse) {
		x.InUse, x.Process = true, owned.Holder(path)
		return x, nil
	}
	if err == nil {
		err = errors.Join(s.examine(&x), s.close())
	}
	if errors.Is(err, errEnough) {
		x.Unread = true
		return x, nil
	}
	return x, err
}

// examine reads what is in the file, which is open for reading and locked.
func (s *Store) examine(x *Examined) (err error) {
	if err := s.inspect(&until{s.file, time.Now().Add(examineFor)}); err != nil {
		return err
	}
	if err := s.view(func(tx *bbolt.Tx) error {
		if owner := tx.Bucket(metaBucket).Get(ownerKey); len(owner) == 8 {
			x.Starts = binary.BigEndian.Uint64(owner)
		}
		return nil
	}); err != nil {
		return err
	}
	if x.Contents, err = s.Contents(); err != nil {
		return err
	}
	for _, id := range x.Contents.Views {
		info, err := s.Info(id)
		if err != nil {
			return fmt.Errorf("watch %s: %w", id, err)
		}
		if !slices.Contains(x.Clusters, info.Cluster) {
			x.Clusters = append(x.Clusters, info.Cluster)
		}
	}
	return nil
}

// until reads until a time.
type until struct {
	file io.ReaderAt
	end  time.Time
}

func (u *until) ReadAt(p []byte, at int64) (int, error) {
	if time.Now().After(u.end) {
		return 0, errEnough
	}
	return u.file.ReadAt(p, at)
}
