//go:build unix

package file

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/statetest"
)

// commitNumbered commits one batch after the other, until it is killed, and says the
// number of each that is stored.
func commitNumbered(dir string) error {
	s, err := open(dir, lockTimeout)
	if err != nil {
		return err
	}
	n, err := storedNumber(s)
	if err != nil {
		return err
	}
	for {
		n++
		if err := s.Commit(numbered(n)); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// storedNumber is the number of the batch that the store holds, or 0. It fails where
// that is not the whole of one batch and nothing else.
func storedNumber(s *Store) (int, error) {
	have, err := statetest.Read(s, testLane)
	if err != nil || reflect.DeepEqual(have.Views["pods"].Info, state.ViewInfo{}) {
		return 0, err
	}
	n, err := strconv.Atoi(have.Views["pods"].Info.Position)
	if err != nil {
		return 0, err
	}
	if !reflect.DeepEqual(have, content(n)) {
		return 0, errors.New("the store does not hold exactly batch " + strconv.Itoa(n))
	}
	return n, nil
}

func TestAKilledProcessLeavesOneWholeBatchAndNoneThatIsOlderThanItsLastCommit(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	rounds, productive, stored := 40, 0, 0
	for range rounds {
		p := start(t, "commit numbered batches", dir)
		// The moment of the kill: some time after some commit, or after the start.
		for range random.IntN(5) {
			select {
			case <-p.lines:
			case <-p.Done():
			}
		}
		select {
		case <-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond):
		case <-p.Done():
		}
		p.Kill()
		if p.stderr.Len() > 0 {
			t.Fatalf("the child: %s", &p.stderr)
		}
		committed := stored
		// The last line can be cut by the kill; a number that is not said is not promised.
		if lines := strings.Split(p.stdout.String(), "\n"); len(lines) > 1 {
			committed, _ = strconv.Atoi(lines[len(lines)-2])
			productive++
		}
		s := mustOpen(t, dir)
		n, err := storedNumber(s)
		if err != nil {
			t.Fatal(err)
		}
		if n < committed || n > committed+1 {
			t.Fatalf("batch %d is stored, and %d was committed", n, committed)
		}
		stored = n
		mustClose(t, s)
	}
	if productive < rounds/4 {
		t.Errorf("only %d of %d children committed something", productive, rounds)
	}
	t.Logf("%d batches, %d of %d children committed", stored, productive, rounds)
}

func TestAnotherOwnerFencesOffTheFirst(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	mustCommit(t, s, numbered(1))
	for _, views := range []map[state.ViewID]string{{"pods": "", "gone": ""}, {"pods": ""}} {
		if err := s.Retain(views, []state.LaneID{testLane}); err != nil {
			t.Fatal(err)
		}
	}
	s.step = 1
	if done, err := s.Scrub(); done || err != nil {
		t.Fatal(done, err)
	}
	mine := s.owner
	s.owner++ // as the file would say after another process opened it
	_, scrubErr := s.Scrub()
	for what, err := range map[string]error{"Commit": s.Commit(numbered(2)), "Retain": s.Retain(nil, nil), "Scrub": scrubErr} {
		if !errors.Is(err, state.ErrFenced) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.owner = mine
	if n, err := storedNumber(s); n != 1 || err != nil {
		t.Errorf("batch %d is stored, %v", n, err)
	}
	mustCommit(t, s, numbered(2))
}

func TestEachOpeningIsAnotherOwner(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir)
	mustClose(t, first)
	second := mustOpen(t, dir)
	if second.owner != first.owner+1 {
		t.Errorf("owner %d, then %d", first.owner, second.owner)
	}
}
