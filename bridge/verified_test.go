package bridge

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTheOutcomeOfAComparisonComesBehindWhatWasHandedOverBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{}
		r := newRig(t, d.publish)
		w := watchOf(t, r.port())
		w.has("a", "b")
		w.feed.Verified("V", 2, 0, "2")
		w.has("c") // it need not wait for what comes later
		d.answer(1)
		d.wants(t, 0, "added a1/1", "added b1/2", "added c1/3")
		d.answer(1)
		d.wants(t, 3, "verified ")
		d.run()
		r.drain()
	})
}

func TestTheOutcomeOfAComparisonWaitsForWhatASinkIsBehindOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, d, w := stuck(t)
		go w.has("k")
		time.Sleep(6 * time.Second)
		if !r.isFolding() {
			t.Fatal("it does not fold")
		}
		before := len(d.told())
		w.feed.Verified("V1", 5, 1, "9")
		w.feed.Verified("V2", 5, 0, "9") // in the place of the other
		d.answer(1)
		for _, told := range d.told()[before:] {
			if told == "verified " {
				t.Error("the outcome came before what the sink is behind on")
			}
		}
		d.run()
		r.drain()
		told, n := d.told(), 0
		for _, e := range told {
			if e == "verified " {
				n++
			}
		}
		if n != 1 || told[len(told)-1] != "verified " {
			t.Errorf("the sink got %q, want one outcome at the end", told)
		}
	})
}
