package spill

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func open(t *testing.T) (*File, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	var log bytes.Buffer
	f, err := Open(dir, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the folder has %v, error %v: a kill would leave it there", left, err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, &log
}

func value(n, size int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%08d", n)), size/8+1)[:size]
}

func put(t *testing.T, f *File, v []byte) Extent {
	t.Helper()
	e, ok := f.Put(v)
	if !ok || e.Len() != len(v) {
		t.Fatalf("%d bytes were not put: %d, %t", len(v), e.Len(), ok)
	}
	return e
}

func wants(t *testing.T, e Extent, want []byte) {
	t.Helper()
	if got, err := e.AppendTo([]byte("before")); err != nil || string(got) != "before"+string(want) {
		t.Fatalf("%.40q came back as %.40q, error %v", want, got, err)
	}
	if got, err := e.Head(5).AppendTo(nil); err != nil || !bytes.HasPrefix(want, got) || len(got) != min(5, len(want)) {
		t.Fatalf("the head of %.40q is %q, error %v", want, got, err)
	}
}

func TestValuesComeBackWhereverTheyAre(t *testing.T) {
	f, _ := open(t)
	rng := rand.New(rand.NewPCG(1, 1))
	extents := map[int]Extent{}
	sizes := map[int]int{}
	for n := range 2000 { // some segments, the last of which is not written
		sizes[n] = 1 + rng.IntN(3000)
		extents[n] = put(t, f, value(n, sizes[n]))
	}
	if f.Size() < 2*segmentSize {
		t.Fatalf("nothing but memory was used: %d bytes", f.Size())
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for n, e := range extents {
				if got, err := e.AppendTo(nil); err != nil || !bytes.Equal(got, value(n, sizes[n])) {
					t.Errorf("value %d: %.40q, error %v", n, got, err)
				}
			}
		})
	}
	for n := range 2000 {
		put(t, f, value(n, 100))
	}
	readers.Wait()
	for n, e := range extents {
		wants(t, e, value(n, sizes[n]))
	}
}

func TestWhatIsNoneOrTooLargeIsNotPut(t *testing.T) {
	f, _ := open(t)
	for _, v := range [][]byte{nil, make([]byte, segmentSize+1)} {
		if e, ok := f.Put(v); ok || e != (Extent{}) {
			t.Errorf("%d bytes were put", len(v))
		}
	}
	wants(t, put(t, f, value(1, segmentSize)), value(1, segmentSize))
	if got, err := (Extent{}).AppendTo(nil); err != nil || got != nil {
		t.Errorf("no value is %q, error %v", got, err)
	}
	Extent{}.Release()
}

// until collects garbage until the condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal("not within 30s: " + what)
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

func (f *File) freed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.free)
}

func TestThePlaceOfWhatNobodyRefersToIsUsedAgain(t *testing.T) {
	f, _ := open(t)
	kept := put(t, f, value(7, 1000))
	fill := func() {
		for n := range 8 * segmentSize / 1000 {
			put(t, f, value(n, 1000))
		}
	}
	for range 5 {
		fill()
		// One place has what is kept, and one what has not been written yet.
		until(t, "all other places are free", func() bool { return int64(f.freed()) >= f.Size()/segmentSize-2 })
	}
	if f.Size() > 11*segmentSize {
		t.Errorf("five times eight segments have made it %d segments large", f.Size()/segmentSize)
	}
	wants(t, kept, value(7, 1000)) // its segment was not used again
	until(t, "what was dropped without a word counts as needed no more", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.live <= 3*segmentSize
	})
}

func TestAFileThatIsMostlyWasteSaysSoAndWhatIsMovedFreesIt(t *testing.T) {
	f, _ := open(t)
	var extents []Extent
	const perSegment = segmentSize / 1024
	for n := range 64 * perSegment {
		extents = append(extents, put(t, f, value(n, 1024)))
	}
	if f.Wasteful() {
		t.Error("it is wasteful while all is needed")
	}
	kept := map[int]Extent{}
	for n, e := range extents {
		if n%8 == 0 {
			kept[n] = e
			continue
		}
		e.Release()
	}
	clear(extents)
	if !f.Wasteful() {
		t.Error("an eighth of it is needed, and it is not wasteful")
	}
	for n, e := range kept {
		if !e.Sparse() {
			continue
		}
		v, err := e.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		kept[n] = put(t, f, v)
		e.Release()
	}
	if f.Wasteful() {
		t.Error("it is wasteful after all was moved")
	}
	until(t, "the place of most segments is free", func() bool { return int64(f.freed()) >= f.Size()/segmentSize*3/4 })
	for n, e := range kept {
		wants(t, e, value(n, 1024))
	}
}

func TestWhatADiskDoesNotTakeStaysInMemoryAndIsCounted(t *testing.T) {
	f, log := open(t)
	written := put(t, f, value(1, segmentSize))
	put(t, f, value(2, 10)) // the first is written
	if err := f.file.Close(); err != nil {
		t.Fatal(err)
	}
	kept := map[int]Extent{}
	for n := range 10 {
		kept[n] = put(t, f, value(n, segmentSize/2))
	}
	for n, e := range kept {
		wants(t, e, value(n, segmentSize/2))
	}
	failed := testutil.ToFloat64(f.errors)
	if failed < 4 || strings.Count(log.String(), "stay in memory") != 1 {
		t.Errorf("%v failures are counted, and the log says %s", failed, log)
	}
	if got, err := written.AppendTo([]byte("before")); err == nil || string(got) != "before" {
		t.Errorf("what can not be read is %.40q, error %v", got, err)
	}
	if now := testutil.ToFloat64(f.errors); now != failed+1 {
		t.Errorf("the failed read is not counted: %v, then %v", failed, now)
	}
}

func BenchmarkPut(b *testing.B) {
	f, err := Open(b.TempDir(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	v := value(1, 1000)
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		e, _ := f.Put(v)
		e.Release()
	}
}

func BenchmarkAppendTo(b *testing.B) {
	f, err := Open(b.TempDir(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var extents []Extent
	for n := range 10_000 {
		e, _ := f.Put(value(n, 1000))
		extents = append(extents, e)
	}
	b.SetBytes(1000)
	var buf []byte
	n := 0
	for b.Loop() {
		if buf, err = extents[n%len(extents)].AppendTo(buf[:0]); err != nil {
			b.Fatal(err)
		}
		n += 7
	}
}

func TestAnotherFileIsNotWrittenThroughALinkOfItsName(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("of another"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []func(string, string) error{os.Symlink, os.Link} {
		if err := link(other, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		f, err := Open(dir, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		e := put(t, f, value(1, segmentSize))
		put(t, f, value(2, segmentSize)) // the first one goes to the disk
		wants(t, e, value(1, segmentSize))
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(other); err != nil || string(got) != "of another" {
			t.Errorf("the other file has %.20q, %v", got, err)
		}
	}
}
