package statetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kbridge-io/kbridge/state"
)

// wantResidue checks whether there is residue, and which watches keep it.
func (u *subject) wantResidue(want bool, views ...state.ViewID) state.Residue {
	u.t.Helper()
	have, err := u.Residue()
	if err != nil {
		u.t.Fatal(err)
	}
	if !have.Since.IsZero() != want || !slices.Equal(have.Views, views) {
		u.t.Fatalf("the residue is %+v, want some: %t, because of %q", have, want, views)
	}
	return have
}

// scrub scrubs to the end, with batches in between.
func (u *subject) scrub() {
	u.t.Helper()
	for n := 0; ; n++ {
		done, err := u.Scrub()
		if err != nil {
			u.t.Fatal(err)
		}
		if done {
			u.wantResidue(false)
			return
		}
		u.wantResidue(true)
		u.commit(&state.Batch{Lanes: map[state.LaneID]*state.LaneChange{lane("live", pods): {Info: state.LaneInfo{Position: fmt.Sprint(n)}}}})
	}
}

func forgotten(_ *testing.T, u *subject) {
	u.commit(example())
	rules, lanes := map[state.ViewID]string{pods: podRules}, []state.LaneID{lane("audit", pods), lane("live", pods)}
	u.retain(rules, lanes)
	delete(u.want.Views, nodes)
	delete(u.want.Lanes, lane("audit", nodes))
	since := u.wantResidue(true).Since
	u.reopen()
	u.retain(rules, lanes)
	if again := u.wantResidue(true).Since; !again.Equal(since) {
		u.t.Errorf("there is residue since %s, and was since %s", again, since)
	}
	u.scrub()
	u.check()
	u.wantResidue(false)
}

func otherRules(_ *testing.T, u *subject) {
	const other = "drop=b;secrets=redact"
	u.commit(example())
	rules := map[state.ViewID]string{pods: other, nodes: "none"}
	lanes := slices.Collect(maps.Keys(u.want.Lanes))
	u.retain(rules, lanes)
	for range 2 {
		u.wantResidue(true, pods)
		if done, err := u.Scrub(); done || err == nil {
			u.t.Fatalf("scrubbed while bodies are under other rules: %t, %v", done, err)
		}
		u.reopen()
		u.retain(rules, lanes)
	}
	b := example()
	b.Views[pods].Info.Rules = "" // some are under these, and some under those
	u.commit(b)
	u.wantResidue(true, pods)
	b.Views[pods].Info.Rules = other
	u.commit(b)
	u.wantResidue(true)
	u.scrub()
	u.check()
	u.wantResidue(false)
	u.retain(rules, lanes)
	u.wantResidue(false)
}

func noResidue(t *testing.T, u *subject) {
	u.commit(example())
	lanes := slices.Collect(maps.Keys(u.want.Lanes))
	rules := map[state.ViewID]string{pods: podRules, nodes: "none", "new": "any"}
	u.retain(rules, lanes)
	u.wantResidue(false)
	if done, err := u.Scrub(); !done || err != nil {
		t.Errorf("nothing is to be scrubbed, and Scrub says %t, %v", done, err)
	}
	u.commit(example())
	u.retain(rules, lanes[1:]) // what a sink is behind on is under the rules that hold
	u.wantResidue(false)
	delete(rules, "new") // nothing of it was ever stored, as far as is known
	u.retain(rules, lanes[1:])
	u.wantResidue(true)
}

func (u *subject) retain(views map[state.ViewID]string, lanes []state.LaneID) {
	u.t.Helper()
	if err := u.Retain(views, lanes); err != nil {
		u.t.Fatal(err)
	}
}
