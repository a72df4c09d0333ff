package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAFindingIsALineWhateverTheServersSay(t *testing.T) {
	s := &Subject{Group: Sinks, Name: "audit"}
	s.OK("logged in")
	s.Warn("the server said \x1b[2Jtwo\nlines \xff")
	var got bytes.Buffer
	if err := (Report{s.Findings}).WriteText(&got); err != nil {
		t.Fatal(err)
	}
	want := "sinks        ok       audit: logged in\n" +
		`sinks        warning  audit: the server said \x1b[2Jtwo; lines ` + "\ufffd\n" +
		"no gaps: a start finds what it needs (ok: 1, warnings: 1, skipped: 0)\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

type mend string

func (m mend) String() string { return string(m) }

func TestGapsAreCountedAndMended(t *testing.T) {
	s := &Subject{Group: State, Name: "/state"}
	s.GapMendedBy(mend("do this"), "no")
	s.Skip("not looked at")
	r := Report{s.Findings}
	var text, doc bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteJSON(&doc)); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "gap      /state: no; do this\n") || !strings.Contains(got, "\n1 gap: ") || r.Gaps() != 1 {
		t.Errorf("the text is %q", got)
	}
	var got struct {
		Gaps, Skipped int
		Findings      []map[string]string
	}
	if err := json.Unmarshal(doc.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"group": "state", "outcome": "gap", "subject": "/state", "text": "no", "mend": "do this"}
	if got.Gaps != 1 || got.Skipped != 1 || !cmp.Equal(got.Findings[0], want) {
		t.Errorf("the document is %s", doc.String())
	}
}

func TestACheckThatIsTooSlowIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Run(t.Context(), time.Second, Cluster, "c", func(ctx context.Context, s *Subject) {
			<-ctx.Done()
			s.Gap("asking: %v", Reason(ctx, errors.New("the context is over")))
		})
		if len(slow) != 1 || slow[0].Text != "asking: no answer within 1s" {
			t.Errorf("one that ends with its context finds %v", slow)
		}
		never := make(chan struct{})
		hangs := Run(t.Context(), time.Second, Cluster, "c", func(context.Context, *Subject) { <-never })
		if len(hangs) != 1 || hangs[0].Outcome != Gap || hangs[0].Text != "it hangs: no answer within 1s" {
			t.Errorf("one that hangs finds %v", hangs)
		}
		close(never)
	})
}

// late is a context whose deadline has passed, and which has not ended yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func TestWhatFailsWithTheDeadlineIsALateAnswer(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(errors.New("no answer within 1s"))
	if err := Reason(late{ctx}, errors.New("i/o timeout")); err.Error() != "no answer within 1s" {
		t.Errorf("the reason is %v", err)
	}
	if err := Reason(t.Context(), errors.New("refused")); err.Error() != "refused" {
		t.Errorf("before the deadline the reason is %v", err)
	}
}

func TestChecksRunSeveralAtOnceAndAreToldInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		found := Each(20, func(i int) []Finding {
			n := running.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			defer running.Add(-1)
			time.Sleep(time.Duration(20-i) * time.Second)
			return []Finding{{Subject: fmt.Sprint(i)}}
		})
		if most.Load() != atOnce {
			t.Errorf("%d ran at once, want %d", most.Load(), atOnce)
		}
		for i, f := range found {
			if f.Subject != fmt.Sprint(i) {
				t.Errorf("finding %d is that of check %s", i, f.Subject)
			}
		}
	})
}
