package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

// refuseBad refuses the objects whose names begin with bad, and takes the others.
func refuseBad(_ context.Context, e *event.Event, done func(error)) {
	if strings.HasPrefix(e.Key.Name, "bad") {
		done(errNever)
		return
	}
	done(nil)
}

func TestARefusedEventIsKeptAsAStructuredDocumentWithTheReason(t *testing.T) {
	for _, format := range []event.Format{event.Structured, event.Binary} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, refuseBad, func(o *Options) { o.Format = format })
			f, p := r.feed()
			d := update("bad", 7, 100)
			r.send(f, d)
			r.drain()
			r.stop()
			wantPosition(t, p, "7")
			letters := r.letters()
			if len(letters) != 1 {
				t.Fatalf("%d dead letters", len(letters))
			}
			var want event.Event
			d.Encode(&want, event.Structured, nil)
			if l := letters[0]; l.Sink != "live" || l.Reason != "too large" || !l.Time.Equal(time.Now()) || !bytes.Equal(l.Event, want.Value) {
				t.Errorf("format %d: %s %s %s %s", format, l.Time, l.Sink, l.Reason, l.Event)
			}
			if got := r.sum("kbridge_dead_letters_total"); got != 1 || r.sum("kbridge_published_total") != 0 {
				t.Errorf("%d dead letters are counted", got)
			}
			info, err := os.Stat(r.file)
			if err != nil || info.Mode().Perm() != deadLetterMode {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			if log := r.log.String(); strings.Count(log, "\n") != 1 || strings.Contains(log, "xxx") {
				t.Errorf("log: %s", log)
			}
		})
	}
}

// block puts a folder where the file was.
func block(t *testing.T, path string) (free func()) {
	t.Helper()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADeadLetterThatCannotBeWrittenHoldsUpItsObjectAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var came []string
		r := newRig(t, func(ctx context.Context, e *event.Event, done func(error)) {
			mu.Lock()
			came = append(came, e.Key.Name+"/"+e.ResourceVersion)
			mu.Unlock()
			if e.ResourceVersion == "1" {
				done(errNever)
				return
			}
			done(nil)
		})
		seen := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(came, " ")
		}
		free := block(t, r.file)
		f, p := r.feed()
		r.send(f, update("bad", 1, 10))
		seen()
		r.send(f, update("bad", 2, 10))
		r.send(f, update("good", 3, 10))
		time.Sleep(time.Minute)
		if got := seen(); got != "bad/1 good/3" {
			t.Errorf("published: %s", got)
		}
		wantPosition(t, p, "")
		if err := r.opts.DeadLetters.Err(); err == nil || !strings.Contains(err.Error(), r.file) {
			t.Errorf("the trouble is not told: %v", err)
		}
		if n := r.sum("kbridge_dead_letter_errors_total"); n < 10 || n > 40 {
			t.Errorf("%d attempts failed in a minute", n)
		}
		if n := strings.Count(r.log.String(), "can not be written"); n != 1 {
			t.Errorf("that is logged %d times", n)
		}
		free()
		r.drain()
		wantPosition(t, p, "3")
		if got := seen(); got != "bad/1 good/3 bad/2" {
			t.Errorf("published: %s", got)
		}
		if letters := r.letters(); len(letters) != 1 || idOf(t, letters[0]) != "uid-bad.1" || r.opts.DeadLetters.Err() != nil {
			t.Errorf("%d dead letters, %v", len(letters), r.opts.DeadLetters.Err())
		}
	})
}

func TestAStopDoesNotWaitForADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refuseBad)
		block(t, r.file)
		f, p := r.feed()
		r.send(f, update("bad", 1, 10))
		r.send(f, update("bad-too", 2, 10))
		synctest.Wait()
		began := time.Now()
		r.stop()
		if time.Since(began) != 0 {
			t.Errorf("Run ended after %s", time.Since(began))
		}
		wantPosition(t, p, "")
		if r.open() != 2 {
			t.Errorf("%d of 2 are left", r.open())
		}
	})
}

// The sink's answers may come with the lane's lock wanted elsewhere: a full channel
// of refused events would stop everything.
func TestAllOfTheWindowMayBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, refuseBad, func(o *Options) { o.MaxEvents = 3 })
		free := block(t, r.file)
		var feeds [4]*Feed
		var watches sync.WaitGroup
		for i := range feeds {
			feeds[i], _ = r.feed()
			watches.Go(func() { r.send(feeds[i], update("bad-"+string('a'+rune(i)), i, 10)) })
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, events, waiting := r.Usage(); events != 3 || waiting != 1 {
			t.Errorf("%d events, %d waiting", events, waiting)
		}
		free()
		watches.Wait()
		r.drain()
		if n := len(r.letters()); n != 4 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func openLetters(t *testing.T) (*DeadLetterFile, string, *event.Event) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a", "b.jsonl")
	d, err := OpenDeadLetters(path)
	if err != nil {
		t.Fatal(err)
	}
	e := &event.Event{}
	update("a", 1, 300).Encode(e, event.Binary, nil)
	return d, path, e
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
}

func TestAFullDeadLetterFileTakesNoMoreUntilItIsMovedAway(t *testing.T) {
	d, path, e := openLetters(t)
	d.max = 10
	if err := d.Write(t.Context(), "live", e, errNever); err != nil {
		t.Fatalf("one that is larger than the limit does not fit into an empty file: %v", err)
	}
	size := int64(len(lines(t, path)[0]) + 1)
	d.max = 2*size + int64(len(".123456789")) // the time's fraction may be longer than before
	if err := d.Write(t.Context(), "live", e, errNever); err != nil {
		t.Fatalf("the second line has room: %v", err)
	}
	before := lines(t, path)
	err := d.Write(t.Context(), "live", e, errNever)
	if err == nil || !strings.Contains(err.Error(), path+" is full") || !strings.Contains(err.Error(), "move it away") || !errors.Is(d.Err(), err) {
		t.Fatalf("a full file: %v; Err() = %v", err, d.Err())
	}
	if after := lines(t, path); len(after) != len(before) {
		t.Errorf("%d lines became %d", len(before), len(after))
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > d.max {
		t.Errorf("%d of %d bytes, %v", info.Size(), d.max, err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := d.Write(t.Context(), "live", e, errNever); err != nil || d.Err() != nil {
		t.Fatalf("after it was moved away: %v", err)
	}
	if got := lines(t, path); len(got) != 1 || len(lines(t, path+".1")) != 2 {
		t.Errorf("%d lines are in the new file", len(got))
	}
}

func TestAPartOfALineSpoilsNoOther(t *testing.T) {
	d, path, e := openLetters(t)
	if err := os.WriteFile(path, []byte("{}\n{\"time\":\"2026"), 0o600); err != nil { // as a power cut leaves it
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Write(t.Context(), "live", e, errNever); err != nil {
			t.Fatal(err)
		}
	}
	got := lines(t, path)
	if len(got) != 4 {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	for i, line := range got {
		if valid := json.Valid([]byte(line)); valid != (i != 1) {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

func TestAPlaceThatCannotBeWrittenIsKnownAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "dead.jsonl"), filepath.Dir(file)} {
		if _, err := OpenDeadLetters(path); err == nil || !strings.Contains(err.Error(), "deadLetter.file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestADeadLetterIsNotWrittenThroughASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "live.jsonl"), filepath.Join(dir, "other")
	d, err := OpenDeadLetters(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []error{os.WriteFile(other, []byte("of another\n"), 0o600), os.Remove(path), os.Symlink(other, path)} {
		if do != nil {
			t.Fatal(do)
		}
	}
	if err := d.Write(t.Context(), "live", &event.Event{}, errors.New("refused")); err == nil || !strings.Contains(err.Error(), "symbolic link") || d.Err() == nil {
		t.Errorf("Write returned %v", err)
	}
	if _, err := OpenDeadLetters(path); err == nil {
		t.Error("it is opened at the start")
	}
	if got, err := os.ReadFile(other); err != nil || string(got) != "of another\n" {
		t.Errorf("the other file has %q, %v", got, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDeadLetters(filepath.Join(dir, "audit.jsonl")); err == nil || !strings.Contains(err.Error(), "anybody may write") {
		t.Errorf("in a folder that anybody may write to: %v", err)
	}
}

func TestWhereDeadLettersWouldGoIsFoundOutWithoutMakingIt(t *testing.T) {
	dir := t.TempDir()
	inside := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	for _, do := range []error{
		os.WriteFile(inside("file"), nil, 0o600), os.Symlink(inside("file"), inside("link")), os.Mkdir(inside("open"), 0o700), os.Chmod(inside("open"), 0o777),
		os.WriteFile(inside("full"), nil, 0o600), os.Truncate(inside("full"), maxDeadLetters),
	} {
		if do != nil {
			t.Fatal(do)
		}
	}
	for _, c := range []struct{ path, want string }{
		{inside("file"), ""},
		{inside("new"), ""},
		{inside("a", "b", "new"), ""},
		{inside("file", "new"), "not a directory"},
		{inside("link"), "symbolic link"},
		{inside("open", "new"), "anybody may write"},
		{inside("full"), "is full"},
	} {
		if err := CheckDeadLetters(c.path); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	for _, absent := range []string{inside("new"), inside("a")} {
		if _, err := os.Stat(absent); err == nil {
			t.Errorf("%s was made", absent)
		}
	}
}
