package event

import (
	"testing"
	"time"
)

func TestSnapshotsThatBeginTogetherHaveDifferentIDsInOrder(t *testing.T) {
	now := time.Now()
	last := ""
	for range 100 {
		id := NewSnapshotID(now)
		if id <= last {
			t.Fatalf("%s follows %s", id, last)
		}
		last = id
	}
	if id := NewSnapshotID(now.Add(-time.Hour)); id <= last {
		t.Errorf("%s follows %s after the clock was put back", id, last)
	}
}
