//go:build unix

package file

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/statetest"
)

const (
	oldRules, newRules = "include", "redact"
	secretsView        = state.ViewID("secrets")
	configMapsView     = state.ViewID("configmaps")
)

var secretsLane = state.LaneID{Sink: "audit", View: secretsView}

// secretObjects are objects with a text, packed with a dictionary made of the first.
func secretObjects(n int, version, text string) map[string]*event.Object {
	objects := map[string]*event.Object{}
	var samples []byte
	var dictionary *event.Dictionary
	for i := range n {
		o := statetest.Object("shop", fmt.Sprint("s", i), fmt.Sprint("uid-", i), version)
		o.Body = fmt.Appendf(o.Body[:len(o.Body)-1], `,"n":%d,"data":{"text":%q,"encoded":%q}}`, i, text, base64.StdEncoding.EncodeToString([]byte(text)))
		if samples = append(samples, o.Body...); i == 20 {
			dictionary = event.NewDictionary(samples)
		}
		if dictionary != nil {
			o.Body, o.Dictionary = dictionary.Pack(o.Body), dictionary
		}
		objects[state.Key(o.Namespace, o.Name)] = o
	}
	return objects
}

// secretsOf is a batch with a watch of such objects, and a sink that is behind on one.
func secretsOf(n int, rules, version, text string) *state.Batch {
	objects := secretObjects(n, version, text)
	gone := map[string]*state.Behind{"shop/s1": {UID: "uid-1", Gone: objects["shop/s1"]}, "shop/s30": {UID: "uid-30", Gone: objects["shop/s30"]}}
	return &state.Batch{
		Views: map[state.ViewID]*state.ViewChange{secretsView: {Info: state.ViewInfo{Position: version, Rules: rules}, Objects: objects}},
		Lanes: map[state.LaneID]*state.LaneChange{secretsLane: {Behind: gone}},
	}
}

// both are the rules of the two watches.
func both(ofSecrets string) map[state.ViewID]string {
	return map[state.ViewID]string{secretsView: ofSecrets, configMapsView: oldRules}
}

// openWithSecrets is a store that has the secret in what is stored, in what that is packed
// with, and where nothing refers to it any more.
func openWithSecrets(t *testing.T, dir string) *Store {
	t.Helper()
	s := mustOpen(t, dir)
	if err := s.Retain(both(oldRules), []state.LaneID{secretsLane}); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"1", "2"} { // each has a dictionary of its own
		mustCommit(t, s, secretsOf(200, oldRules, version, secret))
	}
	mustCommit(t, s, &state.Batch{Views: map[state.ViewID]*state.ViewChange{configMapsView: {
		Info: state.ViewInfo{Rules: oldRules}, Objects: secretObjects(100, "1", "of no interest")}}})
	if n := salvage(mustRead(t, s.path)); n < 200 {
		t.Fatalf("the secret is in %d places that are looked at", n)
	}
	return s
}

// without are the ways in which the secret is to go.
var without = map[string]func(*Store) error{
	"the watch is gone": func(s *Store) error {
		return s.Retain(map[state.ViewID]string{configMapsView: oldRules}, nil)
	},
	"its rules are others": func(s *Store) error {
		if err := s.Retain(both(newRules), []state.LaneID{secretsLane}); err != nil {
			return err
		}
		some := secretsOf(200, "", "2", "redacted")
		for i := range 100 {
			delete(some.Views[secretsView].Objects, fmt.Sprint("shop/s", i))
		}
		return errors.Join(s.Commit(some), s.Commit(secretsOf(200, newRules, "2", "redacted")))
	},
}

func read(t *testing.T, s *Store) statetest.Content {
	t.Helper()
	have, err := statetest.Read(s, secretsLane)
	if err != nil {
		t.Fatal(err)
	}
	return have
}

// scrubOn scrubs until it is done, and returns how many steps that took.
func scrubOn(t *testing.T, s *Store, after func()) (steps int) {
	t.Helper()
	for {
		steps++
		done, err := s.Scrub()
		if err != nil {
			t.Fatal(err)
		}
		if after(); done {
			return steps
		}
	}
}

func hasResidue(t *testing.T, s *Store) bool {
	t.Helper()
	residue, err := s.Residue()
	if err != nil {
		t.Fatal(err)
	}
	return !residue.Since.IsZero()
}

func TestWhatIsToGoIsInNoPartOfTheFileWhenItHasBeenScrubbed(t *testing.T) {
	t.Setenv("BBOLT_VERIFY", "all")
	for name, change := range without {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openWithSecrets(t, dir)
			if err := change(s); err != nil {
				t.Fatal(err)
			}
			if n := salvage(mustRead(t, s.path)); n == 0 || !hasResidue(t, s) {
				t.Fatalf("the secret is in %d places before it is scrubbed, and there is residue: %t", n, hasResidue(t, s))
			}
			want := read(t, s)
			scrubOn(t, s, func() {})
			for range 2 {
				if n := salvage(mustRead(t, s.path)); n != 0 {
					t.Errorf("the secret is in %d places", n)
				}
				if have := read(t, s); !reflect.DeepEqual(have, want) || hasResidue(t, s) {
					t.Errorf("the store holds %+v, and not %+v; residue: %t", have, want, hasResidue(t, s))
				}
				mustClose(t, s)
				s = mustOpen(t, dir)
			}
			mustCommit(t, s, numbered(1))
		})
	}
}

func TestAScrubBeginsAnewWhenMoreIsToGo(t *testing.T) {
	s := openWithSecrets(t, t.TempDir())
	s.step = 8
	if err := without["its rules are others"](s); err != nil {
		t.Fatal(err)
	}
	step := func() (done bool) {
		t.Helper()
		done, err := s.Scrub()
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	for _, midst := range []bool{true, false} {
		if midst {
			for range 2 {
				if step() {
					t.Fatal("two steps are enough")
				}
			}
		}
		if !midst {
			scrubOn(t, s, func() {})
		}
		// The first pages have it again.
		if err := s.Retain(both(oldRules), []state.LaneID{secretsLane}); err != nil {
			t.Fatal(err)
		}
		mustCommit(t, s, secretsOf(200, oldRules, "3", secret))
		if err := without["the watch is gone"](s); err != nil {
			t.Fatal(err)
		}
		scrubOn(t, s, func() {})
		if n := salvage(mustRead(t, s.path)); n > 0 {
			t.Errorf("begun in the midst of another: %t: the secret is in %d places", midst, n)
		}
	}
}

// Each step is cut off by a kill, and batches come in between.
func TestAKillBetweenTheStepsOfAScrubLeavesAllThatIsStoredAndTheRestOfTheWork(t *testing.T) {
	for name, change := range without {
		t.Run(name, func(t *testing.T) {
			s := openWithSecrets(t, t.TempDir())
			if err := change(s); err != nil {
				t.Fatal(err)
			}
			s.step = 3
			n := 0
			steps := scrubOn(t, s, func() {
				left := hasResidue(t, s)
				dir := t.TempDir() // what a kill would leave
				if err := os.WriteFile(filepath.Join(dir, Name), mustRead(t, s.path), 0o600); err != nil {
					t.Fatal(err)
				}
				next := mustOpen(t, dir)
				if !reflect.DeepEqual(read(t, next), read(t, s)) {
					t.Fatal("after a kill the store holds something else")
				}
				if hasResidue(t, next) != left {
					t.Fatal("after a kill the store does not know what is left to do")
				}
				if err := next.Retain(s.rules, []state.LaneID{secretsLane, testLane}); err != nil {
					t.Fatal(err)
				}
				scrubOn(t, next, func() {})
				if n := salvage(mustRead(t, next.path)); n > 0 {
					t.Fatalf("after a kill and another scrub the secret is in %d places", n)
				}
				mustClose(t, next)
				n++
				mustCommit(t, s, secretsLaneAt(n))
			})
			if steps < 5 {
				t.Errorf("it took %d steps", steps)
			}
			if n := salvage(mustRead(t, s.path)); n > 0 {
				t.Errorf("the secret is in %d places", n)
			}
		})
	}
}

// secretsLaneAt is a batch for the watch that stays.
func secretsLaneAt(n int) *state.Batch {
	objects := secretObjects(30, fmt.Sprint("at ", n), strings.Repeat("of no interest ", n%50))
	return &state.Batch{Views: map[state.ViewID]*state.ViewChange{configMapsView: {Info: state.ViewInfo{Rules: oldRules}, Objects: objects}}}
}

// scrubNumbered commits one numbered batch after the other, each with a watch besides that
// goes at once, and says the number of each that is stored.
func scrubNumbered(dir string) error {
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	s.step = 50
	n, err := storedNumber(s)
	if err != nil {
		return err
	}
	for {
		n++
		b := numbered(n)
		b.Views[secretsView] = secretsOf(100, oldRules, strconv.Itoa(n), secret).Views[secretsView]
		lanes := []state.LaneID{testLane}
		if err := errors.Join(
			s.Retain(map[state.ViewID]string{"pods": "", secretsView: oldRules}, lanes),
			s.Commit(b),
			s.Retain(map[state.ViewID]string{"pods": ""}, lanes),
		); err != nil {
			return err
		}
		for done := false; !done; {
			if done, err = s.Scrub(); err != nil {
				return err
			}
		}
		fmt.Println(n)
	}
}

func TestAKilledProcessLeavesResidueOnlyWhereItSaysSo(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(5, 6))
	rounds, cut := 40, 0
	for range rounds {
		p := start(t, "scrub after numbered batches", dir)
		for range random.IntN(4) {
			select {
			case <-p.lines:
			case <-p.Done():
			}
		}
		select {
		case <-time.After(time.Duration(random.IntN(30_000)) * time.Microsecond):
		case <-p.Done():
		}
		p.Kill()
		if p.stderr.Len() > 0 {
			t.Fatalf("the child: %s", &p.stderr)
		}
		s := mustOpen(t, dir)
		stored, err := s.Contents()
		if err != nil {
			t.Fatal(err)
		}
		if len(stored.Views) < 2 { // the other one is gone
			places := salvage(mustRead(t, s.path))
			if places > 0 && !hasResidue(t, s) {
				t.Fatalf("the secret is in %d places, and nothing says so", places)
			}
			if hasResidue(t, s) {
				cut++
			}
		}
		if err := s.Retain(map[state.ViewID]string{"pods": ""}, []state.LaneID{testLane}); err != nil {
			t.Fatal(err)
		}
		if _, err := storedNumber(s); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
	}
	if cut < rounds/10 {
		t.Errorf("only %d of %d kills came in the midst", cut, rounds)
	}
	t.Logf("%d of %d kills came in the midst", cut, rounds)
}

// scrubWithoutRoom scrubs where the disk takes writes up to some place of the file only.
func scrubWithoutRoom(dir string) error {
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	s.step = 20
	if err := s.Retain(map[state.ViewID]string{configMapsView: oldRules}, nil); err != nil {
		return err
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	failed, wiping := 0, 0
	for room := uint64(0); ; room += uint64(info.Size()) / 40 {
		lift, err := limit(room)
		if err != nil {
			return err
		}
		done, err := s.Scrub()
		if liftErr := lift(); liftErr != nil {
			return liftErr
		}
		if err == nil && done {
			break
		}
		if err != nil {
			if failed++; strings.Contains(err.Error(), "overwrite") {
				wiping++
			}
		}
		if residue, err := s.Residue(); err != nil || residue.Since.IsZero() {
			return fmt.Errorf("after a failure there is residue %+v, %w", residue, err)
		}
	}
	fmt.Println(failed, wiping)
	return s.Close()
}

func TestADiskThatFailsMakesAScrubFailUntilItDoesNot(t *testing.T) {
	dir := t.TempDir()
	s := openWithSecrets(t, dir)
	want := read(t, s).Views[configMapsView]
	mustClose(t, s)
	p := start(t, "scrub without room", dir)
	if err := p.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &p.stderr)
	}
	var failed, wiping int
	if _, err := fmt.Sscan(p.stdout.String(), &failed, &wiping); err != nil || failed-wiping < 1 || wiping < 1 {
		t.Errorf("%d steps had no room, %d of them when they came to overwrite (%v)", failed, wiping, err)
	}
	s = mustOpen(t, dir)
	if have := read(t, s).Views[configMapsView]; !reflect.DeepEqual(have, want) {
		t.Error("the store holds something else")
	}
	if n := salvage(mustRead(t, s.path)); n > 0 || hasResidue(t, s) {
		t.Errorf("the secret is in %d places; residue: %t", n, hasResidue(t, s))
	}
}

// A batch that fails may have written some of its pages, also behind all that is in use.
func TestWhatAFailedBatchLeftIsScrubbedToo(t *testing.T) {
	dir := t.TempDir()
	if err := play(t, "fail to commit a secret", dir); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir)
	if n := len(read(t, s).Views[secretsView].Objects); n != 0 || salvage(mustRead(t, s.path)) == 0 {
		t.Fatalf("%d objects are stored, and the secret is not where it is looked for", n)
	}
	if err := s.Retain(both(newRules), nil); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, s, secretsOf(1, newRules, "2", "redacted"))
	scrubOn(t, s, func() {})
	if n := salvage(mustRead(t, s.path)); n > 0 {
		t.Errorf("the secret is in %d places", n)
	}
}

func failToCommitSecret(dir string) error {
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	mustHave := &state.Batch{Views: map[state.ViewID]*state.ViewChange{secretsView: {Info: state.ViewInfo{Rules: oldRules}}}}
	// The file becomes longer before it is written to.
	if err := errors.Join(s.Commit(mustHave), os.Truncate(s.path, 1<<20)); err != nil {
		return err
	}
	lift, err := limit(64 << 10)
	if err != nil {
		return err
	}
	if err := s.Commit(secretsOf(5000, oldRules, "1", secret)); err == nil {
		return errors.New("there was room")
	}
	if err := lift(); err != nil {
		return err
	}
	return s.Close()
}

func TestFreePagesThatCanNotBeToldAreNotOverwritten(t *testing.T) {
	s := openWithSecrets(t, t.TempDir())
	if err := s.Retain(map[state.ViewID]string{configMapsView: oldRules}, nil); err != nil {
		t.Fatal(err)
	}
	for what, damage := range map[string]func(file []byte){
		"no valid meta page":             func(file []byte) { clear(file[:2*pageSize]) },
		"a list that holds another page": func(file []byte) { eachFreelist(file, func(list []byte) { binary.NativeEndian.PutUint64(list, 1) }) },
		"a page twice":                   func(file []byte) { eachFreelist(file, func(list []byte) { copy(list[:8], list[8:16]) }) },
		"it is cut":                      nil,
	} {
		file := mustRead(t, s.path)
		if damage == nil {
			file = file[:len(file)/2]
		} else {
			damage(file)
		}
		if _, err := freePages(bytes.NewReader(file), int64(len(file)), pageSize); err == nil {
			t.Errorf("%s: its free pages are told", what)
		}
	}
}

// eachFreelist calls do with the numbers in each list of free pages.
func eachFreelist(file []byte, do func(list []byte)) {
	for at := 2 * pageSize; at+headerSize <= len(file); at += pageSize {
		if flags(file[at:]) == freelistPage && count(file[at:]) > 1 {
			do(file[at+headerSize:])
		}
	}
}
