// Package spill keeps what is seldom read in a file instead of the heap: the bodies of
// the objects that an index holds. The file lives as long as the process, and nothing of
// it is read again by another one.
package spill

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/internal/owned"
)

// name is that of the file in its folder, for as long as it takes to open it.
const name = "spill.tmp"

// segmentSize is how much is written at once, in bytes, and the most that one value may
// have.
const segmentSize = 256 << 10

// slack is how many segments may be in use beyond twice what is needed.
const slack = 16

// File keeps values until nobody refers to them any more. It is made of segments of one
// size, which are filled one after the other. A segment's place in the file is used again
// when the garbage collector finds that no Extent is in it; so that a few values that
// stay do not keep many segments, their owner moves them: see Wasteful.
//
// A value that can not be written stays in memory. Many goroutines may use a File.
type File struct {
	file   *os.File
	log    *slog.Logger
	errors prometheus.Counter

	mu      sync.Mutex
	segment *segment // that is being filled, or nil
	buffer  []byte   // of the last one that was written, for the next
	free    []int64  // places in the file that may be used again
	size    int64    // of the file
	live    int64    // bytes that their owners still need
	used    int64    // bytes of full segments in which something is still needed
	failed  error    // of the last write
}

// segment is a part of the file. The File's lock guards it.
type segment struct {
	file *File
	*use
	at     int64
	memory []byte // what is not in the file, or could not be written
}

// use is what of a segment is still needed. It outlives the segment by a moment.
type use struct {
	live int64
	full bool
}

// Extent is a value in a File. The zero Extent is none.
type Extent struct {
	segment  *segment
	at, size uint32
}

// Open makes a file in a folder that is there. A file in it is of no use to another
// process, so it has no name.
func Open(dir string, reg prometheus.Registerer, log *slog.Logger) (*File, error) {
	path := filepath.Join(dir, name)
	os.Remove(path) // a kill may have left one
	file, err := owned.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a file for the bodies of the index: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open a file for the bodies of the index: %w", err), file.Close())
	}
	f := &File{file: file, log: log}
	f.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kbridge_spill_errors_total",
		Help: "Writes and reads that failed of the file with the index's bodies. What can not be written stays in memory.",
	})
	reg.MustRegister(f.errors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kbridge_spill_bytes", Help: "Size of the file with the index's bodies.",
	}, func() float64 { return float64(f.Size()) }))
	return f, nil
}

// Size is how large the file has become, in bytes.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

// Put keeps a copy of the value, and returns false where it is too large. It blocks for
// the time of a write now and then.
func (f *File) Put(value []byte) (Extent, bool) {
	if len(value) == 0 || len(value) > segmentSize {
		return Extent{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.segment != nil && len(f.segment.memory)+len(value) > segmentSize {
		f.write()
	}
	if f.segment == nil {
		f.begin()
	}
	s := f.segment
	e := Extent{segment: s, at: uint32(len(s.memory)), size: uint32(len(value))}
	s.memory = append(s.memory, value...)
	s.live += int64(len(value))
	f.live += int64(len(value))
	return e, true
}

// begin begins a segment.
func (f *File) begin() {
	s := &segment{file: f, use: &use{}, memory: f.buffer}
	if f.buffer = nil; s.memory == nil {
		s.memory = make([]byte, 0, segmentSize)
	}
	if last := len(f.free) - 1; last >= 0 {
		s.at, f.free = f.free[last], f.free[:last]
	} else {
		s.at = f.size
		f.size += segmentSize
	}
	at, u := s.at, s.use
	runtime.AddCleanup(s, func(struct{}) { f.reclaim(at, u) }, struct{}{})
	f.segment = s
}

// write writes the segment that is full.
func (f *File) write() {
	s := f.segment
	f.segment = nil
	s.full = true
	if s.live > 0 {
		f.used += segmentSize
	}
	if _, err := f.file.WriteAt(s.memory, s.at); err != nil {
		f.errors.Inc()
		if f.failed == nil {
			f.log.Warn("bodies of the index can not be written to the disk: they stay in memory", "err", err)
		}
		f.failed = err
		return
	}
	if f.failed != nil {
		f.log.Info("bodies of the index are written to the disk again")
	}
	f.failed, f.buffer, s.memory = nil, s.memory[:0], nil
}

// reclaim lets a segment's place be used again, in which there is nothing any more.
func (f *File) reclaim(at int64, u *use) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unneeded(u, u.live)
	f.free = append(f.free, at)
}

// unneeded counts bytes of a segment that nobody needs any more.
func (f *File) unneeded(u *use, n int64) {
	if n == 0 {
		return
	}
	f.live -= n
	if u.live -= n; u.live == 0 && u.full {
		f.used -= segmentSize
	}
}

// Wasteful says that so much of the file is not needed any more that it pays to Put the
// values of sparse segments anew.
func (f *File) Wasteful() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used > 2*f.live+slack*segmentSize
}

// Close gives the file back.
func (f *File) Close() error {
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("close the file with the bodies of the index: %w", err)
	}
	return nil
}

// Len is the value's length in bytes.
func (e Extent) Len() int { return int(e.size) }

// Head is the value's first n bytes, or all of it.
func (e Extent) Head(n int) Extent {
	e.size = min(e.size, uint32(n))
	return e
}

// AppendTo appends the value to dst. An error says that the disk does not give it back.
func (e Extent) AppendTo(dst []byte) ([]byte, error) {
	if e.segment == nil {
		return dst, nil
	}
	s, f := e.segment, e.segment.file
	f.mu.Lock()
	if s.memory != nil {
		defer f.mu.Unlock()
		return append(dst, s.memory[e.at:e.at+e.size]...), nil
	}
	f.mu.Unlock()
	n := len(dst)
	dst = append(dst, make([]byte, e.size)...)
	_, err := f.file.ReadAt(dst[n:], s.at+int64(e.at))
	runtime.KeepAlive(s) // its place is not used again meanwhile
	if err != nil {
		f.errors.Inc()
		return dst[:n], fmt.Errorf("read a body of the index from the disk: %w", err)
	}
	return dst, nil
}

// Release says that the value's owner does not need it any more. It can still be read by
// who refers to it.
func (e Extent) Release() {
	if e.segment == nil {
		return
	}
	f := e.segment.file
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unneeded(e.segment.use, int64(e.size))
}

// Sparse says that most of the value's segment is not needed any more.
func (e Extent) Sparse() bool {
	if e.segment == nil {
		return false
	}
	f := e.segment.file
	f.mu.Lock()
	defer f.mu.Unlock()
	return e.segment.full && e.segment.live < segmentSize/2
}
