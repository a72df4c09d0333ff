//go:build unix

package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state/statetest"
)

// damage changes some bytes of a file, and returns them and what it did.
func damage(random *rand.Rand, file, earlier []byte) ([]byte, string) {
	pages := len(file) / pageSize
	page := random.IntN(pages) * pageSize
	at := page + random.IntN(pageSize)
	if random.IntN(2) == 0 {
		at = page + random.IntN(96) // where a page says what it is and where things are
	}
	to := random.IntN(pages) * pageSize
	switch random.IntN(8) {
	case 0:
		file[at] ^= 1 << random.IntN(8)
		return file, fmt.Sprintf("bit at %d", at)
	case 1:
		file[at] = byte(random.Uint32())
		return file, fmt.Sprintf("byte at %d", at)
	case 2:
		end := min(at+1+random.IntN(16), len(file))
		for i := at; i < end; i++ {
			file[i] = byte(random.Uint32())
		}
		return file, fmt.Sprintf("bytes %d to %d", at, end)
	case 3:
		at &^= 3
		v := binary.NativeEndian.Uint32(file[at:])
		binary.NativeEndian.PutUint32(file[at:], v+uint32(random.IntN(5))-2)
		return file, fmt.Sprintf("number at %d", at)
	case 4:
		clear(file[page : page+pageSize])
		return file, fmt.Sprintf("zeros in the page at %d", page)
	case 5:
		copy(file[page:page+pageSize], file[to:])
		return file, fmt.Sprintf("the page at %d is that at %d", page, to)
	case 6:
		// A write that was confirmed and lost.
		if page+pageSize <= len(earlier) {
			copy(file[page:page+pageSize], earlier[page:])
		}
		return file, fmt.Sprintf("the page at %d is as it was", page)
	default:
		return file[:at], fmt.Sprintf("cut to %d", at)
	}
}

func TestADamagedFileIsRefusedOrItsDataIsRight(t *testing.T) {
	base := t.TempDir()
	s := mustOpen(t, base)
	path := filepath.Join(base, Name)
	var earlier []byte
	const last = 14
	for n := range last + 1 {
		if n == last-1 {
			earlier = mustRead(t, path)
		}
		mustCommit(t, s, numbered(n))
	}
	mustClose(t, s)
	whole := mustRead(t, path)
	// With a damaged newer meta page, bbolt goes back one transaction.
	allowed := []statetest.Content{content(last), content(last - 1)}

	dir := t.TempDir()
	path = filepath.Join(dir, Name)
	refused, accepted, trials := 0, 0, 400
	if testing.Short() {
		trials = 100
	}
	for seed := range trials {
		random := rand.New(rand.NewPCG(uint64(seed), 7))
		file, what := damage(random, bytes.Clone(whole), earlier)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		// A crash names the trial.
		ok := t.Run(fmt.Sprintf("%d, %s", seed, what), func(t *testing.T) {
			s, err := open(dir, soon)
			if err != nil {
				refused++
				mention(t, err, path, "move it away")
				if !bytes.Equal(file, mustRead(t, path)) && len(file) > 0 {
					t.Error("the refused file was changed")
				}
				return
			}
			defer s.Close()
			if len(file) == 0 {
				return // it was begun anew
			}
			accepted++
			have, err := statetest.Read(s, testLane)
			if err != nil {
				t.Fatalf("opened, and then: %v", err)
			}
			if !reflect.DeepEqual(have, allowed[0]) && !reflect.DeepEqual(have, allowed[1]) {
				t.Fatal("other data was returned")
			}
			for n := last + 1; n < last+3; n++ {
				mustCommit(t, s, numbered(n))
			}
			mustClose(t, s)
			s = mustOpen(t, dir)
			if n, err := storedNumber(s); err != nil || n != last+2 {
				t.Fatalf("after commits batch %d is stored, %v", n, err)
			}
		})
		if !ok {
			return
		}
	}
	if refused < trials/10 || accepted < trials/10 {
		t.Errorf("%d of %d were refused and %d accepted: both should happen", refused, trials, accepted)
	}
	t.Logf("%d of %d were refused, %d hit what is not in use", refused, trials, accepted)
}

func TestAFileOfAnyLengthIsRefusedOrWhole(t *testing.T) {
	base := t.TempDir()
	s := mustOpen(t, base)
	mustCommit(t, s, numbered(1))
	mustCommit(t, s, numbered(2))
	mustClose(t, s)
	whole := mustRead(t, filepath.Join(base, Name))
	lengths := []int{1, 15, 16, 79, 80, 1000, 4095, 4096, 4097, 8191, 8192, 8193, 12288, 16384}
	for l := 20480; l < len(whole); l += 4096 * 3 {
		lengths = append(lengths, l, l+1, l+2000)
	}
	dir := t.TempDir()
	for _, l := range lengths {
		if err := os.WriteFile(filepath.Join(dir, Name), whole[:l], 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := open(dir, soon); err == nil {
			if n, err := storedNumber(s); n != 2 || err != nil {
				t.Errorf("cut to %d of %d: batch %d, %v", l, len(whole), n, err)
			}
			mustClose(t, s)
			continue
		}
		mustRefuse(t, dir, "move it away")
	}
}

func TestARecordThatIsDamagedWhileTheFileIsOpenIsNotReturned(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	mustCommit(t, s, numbered(1))
	f, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := bytes.Index(mustRead(t, f.Name()), []byte("uid-100"))
	if _, err := f.WriteAt([]byte("uid-199"), int64(at)); err != nil {
		t.Fatal(err)
	}
	_, viewErr := s.LoadView("pods", func(o *event.Object) error {
		if o.UID == "uid-199" && o.Name != "pod-199" {
			t.Error("wrong object: ", o.Name)
		}
		return nil
	})
	_, _, _, laneErr := s.LoadLane(testLane)
	err = viewErr
	if err == nil {
		err = laneErr
	}
	mention(t, err, f.Name(), "pod-100", "damaged", "move it away")
}

func TestPagesThatChangeUnderAnOpenStoreDoNotEndTheProcess(t *testing.T) {
	changes := map[string]func(*os.File, int64) error{
		"it is cut": func(f *os.File, _ int64) error { return f.Truncate(2 * pageSize) },
		"it is zeros": func(f *os.File, size int64) error {
			_, err := f.WriteAt(make([]byte, size-2*pageSize), 2*pageSize)
			return err
		},
	}
	uses := map[string]func(*Store) error{
		"read": func(s *Store) error {
			_, err := s.LoadView("pods", func(*event.Object) error { return nil })
			return err
		},
		"written": func(s *Store) error { return s.Commit(numbered(2)) },
		"scrubbed": func(s *Store) error {
			_, err := s.Scrub()
			return err
		},
	}
	for changed, change := range changes {
		for used, use := range uses {
			t.Run("When "+changed+" and "+used, func(t *testing.T) {
				dir := t.TempDir()
				s := mustOpen(t, dir)
				mustCommit(t, s, numbered(1))
				f, err := os.OpenFile(filepath.Join(dir, Name), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				info, err := f.Stat()
				if err != nil {
					t.Fatal(err)
				}
				if err := change(f, info.Size()); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					mention(t, use(s), f.Name(), "damaged", "move it away")
				}
				for _, use := range uses {
					mention(t, use(s), f.Name(), "damaged", "move it away")
				}
				mustClose(t, s) // which does not wait for the locks that bbolt may hold
				other := t.TempDir()
				if err := os.WriteFile(filepath.Join(other, Name), mustRead(t, f.Name()), 0o600); err != nil {
					t.Fatal(err)
				}
				mustRefuse(t, other, "damaged", "move it away")
			})
		}
	}
}

func TestARecordThatIsMissingOlderOrElsewhereIsRefused(t *testing.T) {
	records := func(tx *bbolt.Tx) *bbolt.Bucket {
		return tx.Bucket(viewsBucket).Bucket([]byte("pods")).Bucket(recordsKey)
	}
	info := func(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket(viewsBucket).Bucket([]byte("pods")) }
	// Each gets what the same bucket held one batch before.
	for name, change := range map[string]func(tx, earlier *bbolt.Tx) error{
		"A record is missing": func(tx, _ *bbolt.Tx) error {
			key, _ := records(tx).Cursor().First()
			return records(tx).Delete(key)
		},
		"A record is older": func(tx, earlier *bbolt.Tx) error {
			key := []byte("shop/pod-0") // which both batches have
			return records(tx).Put(key, bytes.Clone(records(earlier).Get(key)))
		},
		"A record is under two keys": func(tx, _ *bbolt.Tx) error {
			return records(tx).Put([]byte("shop/pod-x"), bytes.Clone(records(tx).Get([]byte("shop/pod-1"))))
		},
		"Two records have changed places": func(tx, _ *bbolt.Tx) error {
			one, two := bytes.Clone(records(tx).Get([]byte("shop/pod-1"))), bytes.Clone(records(tx).Get([]byte("shop/pod-4")))
			return errors.Join(records(tx).Put([]byte("shop/pod-4"), one), records(tx).Put([]byte("shop/pod-1"), two))
		},
		"A record is a bucket": func(tx, _ *bbolt.Tx) error {
			_, err := records(tx).CreateBucket([]byte("x"))
			return err
		},
		"The position is older": func(tx, earlier *bbolt.Tx) error {
			return info(tx).Put(infoKey, bytes.Clone(info(earlier).Get(infoKey)))
		},
		"The position is missing": func(tx, _ *bbolt.Tx) error { return info(tx).Delete(infoKey) },
		"All records are missing": func(tx, _ *bbolt.Tx) error { return info(tx).DeleteBucket(recordsKey) },
		"A watch is missing":      func(tx, _ *bbolt.Tx) error { return tx.Bucket(viewsBucket).DeleteBucket([]byte("pods")) },
		"A watch has another name": func(tx, _ *bbolt.Tx) error {
			b, err := tx.Bucket(viewsBucket).CreateBucket([]byte("podz"))
			if err != nil {
				return err
			}
			copied, err := b.CreateBucket(recordsKey)
			if err != nil {
				return err
			}
			return errors.Join(
				b.Put(infoKey, bytes.Clone(info(tx).Get(infoKey))),
				records(tx).ForEach(func(key, value []byte) error { return copied.Put(key, bytes.Clone(value)) }),
				tx.Bucket(viewsBucket).DeleteBucket([]byte("pods")))
		},
		"A sink's part is missing": func(tx, _ *bbolt.Tx) error { return tx.Bucket(lanesBucket).DeleteBucket(laneName(testLane)) },
		"All sinks are missing":    func(tx, _ *bbolt.Tx) error { return tx.DeleteBucket(lanesBucket) },
		"The root record is older": func(tx, earlier *bbolt.Tx) error {
			return tx.Bucket(metaBucket).Put(rootKey, bytes.Clone(earlier.Bucket(metaBucket).Get(rootKey)))
		},
		"The first record of all is missing": func(tx, _ *bbolt.Tx) error { return tx.Bucket(metaBucket).Delete(rootKey) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, Name)
			s := mustOpen(t, dir)
			mustCommit(t, s, numbered(1))
			copied := filepath.Join(t.TempDir(), Name)
			if err := os.WriteFile(copied, mustRead(t, path), 0o600); err != nil {
				t.Fatal(err)
			}
			mustCommit(t, s, numbered(2))
			mustClose(t, s)
			before, err := bbolt.Open(copied, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer before.Close()
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := before.View(func(earlier *bbolt.Tx) error {
				return db.Update(func(tx *bbolt.Tx) error { return change(tx, earlier) })
			}); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, dir, "damaged", "move it away")
		})
	}
}

func TestAPageThatIsUnderAnotherKeyThanItsFirstIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	mustCommit(t, s, numbered(1))
	mustClose(t, s)
	whole := mustRead(t, filepath.Join(dir, Name))
	if err := checkPages(bytes.NewReader(whole), int64(len(whole)), pageSize); err != nil {
		t.Fatal(err)
	}
	found := false
	for at := 2 * pageSize; at < len(whole); at += pageSize {
		if page := whole[at:][:pageSize]; flags(page) == branchPage {
			file := bytes.Clone(whole)
			key, err := branchKey(file[at:][:pageSize], 1)
			if err != nil {
				t.Fatal(err)
			}
			key[len(key)-1]-- // which is still in order
			found = true
			if err := checkPages(bytes.NewReader(file), int64(len(file)), pageSize); err == nil {
				t.Errorf("page %d passed", at/pageSize)
			}
		}
	}
	if !found {
		t.Error("there is no such page")
	}
}

func TestAPageThatIsInUseAndFreeIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	mustCommit(t, s, numbered(1))
	mustClose(t, s)
	path := filepath.Join(dir, Name)
	file := mustRead(t, path)
	p := &pages{file: bytes.NewReader(file), size: pageSize}
	root, freelist, end, err := p.newest()
	if err != nil {
		t.Fatal(err)
	}
	entry := file[freelist*pageSize+headerSize:]
	if n := count(file[freelist*pageSize:]); n == 0 {
		t.Fatal("no page is free")
	}
	for _, id := range []uint64{root, freelist, 0, 1, end, end + 1<<40} {
		binary.NativeEndian.PutUint64(entry, id)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		mustRefuse(t, dir, "damaged", "move it away")
	}
}

func TestAnotherFileIsRefusedAndLeftAlone(t *testing.T) {
	foreign := func(bucket string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucket([]byte(bucket))
				if err != nil {
					return err
				}
				return b.Put([]byte("key"), []byte("value"))
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := func(body string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, make := range map[string]func(t *testing.T, path string){
		"Another program's":                 foreign("accounts"),
		"Another program's with a meta":     foreign("meta"),
		"A text":                            text("hello\n"),
		"A long text":                       text(strings.Repeat("hello\n", 10_000)),
		"Zeros":                             text(strings.Repeat("\x00", 65536)),
		"SQLite's":                          text("SQLite format 3\x00" + strings.Repeat("\x01", 8192)),
		"One of 16 KiB, like a new bbolt's": text(strings.Repeat("\xed\xda\x0c\xed", 4096)),
		"A bbolt's without any transaction": func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			make(t, filepath.Join(dir, Name))
			mustRefuse(t, dir, "no state of kbridge", "move it away")
		})
	}
	t.Run("A folder", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, Name), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := open(dir, soon)
		mention(t, err, dir, "no regular file")
	})
}

func TestANewerFormatIsRefusedByItsNumberAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	mustCommit(t, s, numbered(1))
	if err := s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(formatKey, []byte{format + 1}) }); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	mustRefuse(t, dir, "newer kbridge", fmt.Sprint("format ", format+1))
}

func TestInspectingChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	mustCommit(t, s, numbered(1))
	mustClose(t, s)
	path := filepath.Join(dir, Name)
	before := mustRead(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	s = &Store{path: path, wait: soon}
	if err := s.openDB(true); err != nil {
		t.Fatal(err)
	}
	if err := s.inspect(s.file); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, mustRead(t, path)) || !after.ModTime().Equal(info.ModTime()) || after.Size() != info.Size() {
		t.Error("the file was changed")
	}
}

func FuzzCheckPages(f *testing.F) {
	dir := f.TempDir()
	s := mustOpen(f, dir)
	mustCommit(f, s, numbered(1))
	mustClose(f, s)
	whole := mustRead(f, filepath.Join(dir, Name))
	f.Add(0, []byte{1}, len(whole))
	f.Add(3*pageSize, []byte{1, 0, 0xff}, len(whole)-1)
	f.Fuzz(func(_ *testing.T, at int, change []byte, length int) {
		file := bytes.Clone(whole)
		for i, b := range change {
			if at >= 0 && at+i < len(file) {
				file[at+i] ^= b
			}
		}
		file = file[:min(max(length, 0), len(file))]
		_ = checkPages(bytes.NewReader(file), int64(len(file)), pageSize)
	})
}
