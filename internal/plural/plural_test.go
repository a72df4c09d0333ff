package plural

import "testing"

func TestOneIsSingularAndAllOthersAreNot(t *testing.T) {
	for n, want := range map[int]string{0: "0 events", 1: "1 event", 2: "2 events", 11: "11 events"} {
		if got := Of(n, "event"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
