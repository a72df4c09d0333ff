package file

import (
	"fmt"
	"testing"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/statetest"
)

// dictionaryOf makes a dictionary of its own for each n.
func dictionaryOf(n int) *event.Dictionary {
	var samples []byte
	for i := range 40 {
		samples = append(samples, statetest.Object("shop", fmt.Sprint("sample-", i), "uid", fmt.Sprint("of ", n)).Body...)
	}
	return event.NewDictionary(samples)
}

func packedWith(d *event.Dictionary, name string) *event.Object {
	o := statetest.Object("shop", name, "uid-"+name, "7")
	o.Body, o.Dictionary = d.Pack(o.Body), d
	return o
}

func commitObjects(t *testing.T, s *Store, objects ...*event.Object) {
	t.Helper()
	change := &state.ViewChange{Objects: map[string]*event.Object{}}
	for _, o := range objects {
		change.Objects[state.Key(o.Namespace, o.Name)] = o
	}
	mustCommit(t, s, &state.Batch{Views: map[state.ViewID]*state.ViewChange{"pods": change}})
}

func TestADictionaryIsKeptWhileABodyNeedsIt(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	behind := packedWith(dictionaryOf(-1), "gone")
	mustCommit(t, s, &state.Batch{Lanes: map[state.LaneID]*state.LaneChange{
		{Sink: "audit", View: "pods"}: {Behind: map[string]*state.Behind{"shop/gone": {Gone: behind}}},
	}})
	for n := range 2 * tooMany { // the same object again and again
		commitObjects(t, s, packedWith(dictionaryOf(n), "a"))
	}
	commitObjects(t, s, packedWith(dictionaryOf(5), "b"))
	mustClose(t, s)

	s = mustOpen(t, dir)
	if n := len(s.codec.dictionaries); n != 3 {
		t.Errorf("%d dictionaries are left where two objects and a record need one each", n)
	}
	read := map[string]*event.Object{}
	if _, err := s.LoadView("pods", func(o *event.Object) error { read[o.Name] = o; return nil }); err != nil {
		t.Fatal(err)
	}
	if a := read["a"]; a.Dictionary == nil || a.Dictionary.ID() != dictionaryOf(2*tooMany-1).ID() {
		t.Errorf("the object is not packed with its dictionary: %+v", a)
	}
	_, records, _, err := s.LoadLane(state.LaneID{Sink: "audit", View: "pods"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := records["shop/gone"].Gone.JSON()
	want, err2 := behind.JSON()
	if err != nil || err2 != nil || string(got) != string(want) {
		t.Errorf("the record has %s, error %v; it had %s, error %v", got, err, want, err2)
	}
	mustClose(t, s)
}

func TestABodyWhoseDictionaryIsMissingIsDamaged(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	defer mustClose(t, s)
	commitObjects(t, s, packedWith(dictionaryOf(1), "a"))
	clear(s.codec.dictionaries)
	_, err := s.LoadView("pods", func(*event.Object) error { return nil })
	mention(t, err, "damaged", "shop/a")
}
