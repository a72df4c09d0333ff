// Package statetest is what every state.Store has to pass.
package statetest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/spill/spilltest"
	"github.com/kbridge-io/kbridge/state"
)

// Content is all that a store holds, for comparison.
type Content struct {
	Epoch uint32
	Views map[state.ViewID]View
	Lanes map[state.LaneID]Lane
}

// View is a watch with its index by key.
type View struct {
	Info    state.ViewInfo
	Objects map[string]event.Object
}

// Lane is a sink's part in a watch.
type Lane struct {
	Info   state.LaneInfo
	Behind map[string]state.Behind
}

// Read reads the watches that the store lists, and those of the named sinks' parts
// that it knows.
func Read(s state.Store, lanes ...state.LaneID) (Content, error) {
	c := Content{Views: map[state.ViewID]View{}, Lanes: map[state.LaneID]Lane{}}
	stored, err := s.Contents()
	if err != nil {
		return c, err
	}
	c.Epoch = stored.Epoch
	for _, id := range stored.Views {
		v := View{Objects: map[string]event.Object{}}
		if v.Info, err = s.LoadView(id, func(o *event.Object) error {
			key := state.Key(o.Namespace, o.Name)
			if _, twice := v.Objects[key]; twice {
				return fmt.Errorf("%s comes twice", key)
			}
			v.Objects[key] = *plain(o)
			return nil
		}); err != nil {
			return c, err
		}
		if info, err := s.Info(id); err != nil || info != v.Info {
			return c, fmt.Errorf("of watch %s alone %+v is read, and with its objects %+v: %w", id, info, v.Info, err)
		}
		c.Views[id] = v
	}
	for _, id := range lanes {
		info, behind, known, err := s.LoadLane(id)
		if err != nil {
			return c, err
		}
		for key, entry := range behind {
			entry.Gone = plain(entry.Gone)
			behind[key] = entry
		}
		if known {
			c.Lanes[id] = Lane{info, behind}
		}
		if listed := slices.Contains(stored.Lanes, id); listed != known {
			return c, fmt.Errorf("%+v is known: %t, and listed: %t", id, known, listed)
		}
	}
	return c, nil
}

// plain is the object with its body unpacked: how a store packs it is its own affair.
func plain(o *event.Object) *event.Object {
	if o == nil {
		return nil
	}
	body, err := o.JSON()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return &event.Object{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Epoch: o.Epoch, Body: body}
}

// apply is what a Commit has to do.
func (c *Content) apply(b *state.Batch) {
	if b.Epoch != 0 {
		c.Epoch = b.Epoch
	}
	for id, change := range b.Views {
		v, ok := c.Views[id]
		if !ok {
			v.Objects = map[string]event.Object{}
		}
		v.Info = change.Info
		for key, o := range change.Objects {
			if delete(v.Objects, key); o != nil {
				v.Objects[key] = *plain(o)
			}
		}
		c.Views[id] = v
	}
	for id, change := range b.Lanes {
		l, ok := c.Lanes[id]
		if !ok {
			l.Behind = map[string]state.Behind{}
		}
		l.Info = change.Info
		for key, entry := range change.Behind {
			if delete(l.Behind, key); entry != nil {
				e := *entry
				e.Gone = plain(e.Gone)
				l.Behind[key] = e
			}
		}
		c.Lanes[id] = l
	}
}

// Object makes an object whose bytes depend on all that is given.
func Object(namespace, name, uid, version string) *event.Object {
	return &event.Object{
		Namespace: namespace, Name: name, UID: uid, ResourceVersion: version, Epoch: uint32(len(name)),
		Body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":%q,"name":%q,"uid":%q,"resourceVersion":%q}}`, namespace, name, uid, version),
	}
}

// Run tests an implementation. Each call of medium prepares an empty place, and each
// call of what it returns opens the store there, of which one is open at a time.
func Run(t *testing.T, medium func(t *testing.T) (open func() state.Store)) {
	for name, test := range map[string]func(*testing.T, *subject){
		"A new store is empty":                                        newIsEmpty,
		"What was committed is read back, also after reopening":       roundTrip,
		"Keys and names may have any characters":                      oddNames,
		"Empty values stay empty":                                     emptyValues,
		"A batch changes what it names and nothing else":              partial,
		"An object that is gone is gone, and removing it twice is ok": removal,
		"The same batch may be committed again":                       again,
		"Retain forgets what is not named":                            retain,
		"A watch that is forgotten leaves residue until it is gone":   forgotten,
		"Other rules leave residue until all is stored under them":    otherRules,
		"What is as it was leaves no residue":                         noResidue,
		"The error of the receiver ends a load":                       receiverFails,
		"A large body and many small ones come back whole":            sizes,
		"A batch that can not be stored changes nothing":              refused,
		"Packed bodies come back":                                     packed,
	} {
		t.Run(name, func(t *testing.T) {
			u := &subject{t: t, open: medium(t), want: Content{Views: map[state.ViewID]View{}, Lanes: map[state.LaneID]Lane{}}}
			u.Store = u.open()
			defer func() {
				if err := u.Close(); err != nil {
					t.Error(err)
				}
			}()
			test(t, u)
		})
	}
}

// subject is the store under test beside what it has to hold.
type subject struct {
	state.Store
	t    *testing.T
	open func() state.Store
	want Content
}

func (u *subject) commit(b *state.Batch) {
	u.t.Helper()
	if err := u.Commit(b); err != nil {
		u.t.Fatal(err)
	}
	u.want.apply(b)
}

func (u *subject) reopen() {
	u.t.Helper()
	if err := u.Close(); err != nil {
		u.t.Fatal(err)
	}
	u.Store = u.open()
}

// check compares the content, also after reopening.
func (u *subject) check() {
	u.t.Helper()
	for range 2 {
		have, err := Read(u, slices.Collect(maps.Keys(u.want.Lanes))...)
		if err != nil {
			u.t.Fatal(err)
		}
		if !reflect.DeepEqual(have, u.want) {
			u.t.Fatalf("the store holds\n%+v\nand not\n%+v", have, u.want)
		}
		u.reopen()
	}
}

const (
	pods  = state.ViewID("pods/v1 in shop")
	nodes = state.ViewID("nodes/v1")
)

// podRules are those of the example's pods.
const podRules = "drop=a;secrets=redact"

func lane(sink string, view state.ViewID) state.LaneID { return state.LaneID{Sink: sink, View: view} }

// example has a value in every field.
func example() *state.Batch {
	return &state.Batch{
		Epoch: 3,
		Views: map[state.ViewID]*state.ViewChange{
			pods: {Info: state.ViewInfo{Position: "1042", Listed: true, Version: "v1", Rules: podRules},
				Objects: map[string]*event.Object{
					"shop/a": Object("shop", "a", "uid-a", "7"), "shop/b": Object("shop", "b", "uid-b", "8"), "shop/c": Object("shop", "c", "uid-c", "9")}},
			nodes: {Info: state.ViewInfo{Version: "v1", Rules: "none"}, Objects: map[string]*event.Object{"n1": Object("", "n1", "uid-n", "1")}},
		},
		Lanes: map[state.LaneID]*state.LaneChange{
			lane("audit", pods): {Info: state.LaneInfo{Position: "1050", Snapshot: &state.Snapshot{ID: "s-1", First: true, Sent: 17}},
				Behind: map[string]*state.Behind{
					"shop/a": {UID: "uid-a", ResourceVersion: "5"},
					"shop/d": {UID: "uid-d", ResourceVersion: "6", Gone: Object("shop", "d", "uid-d", "6"), NowUID: "uid-d2", NowResourceVersion: "8"},
					"shop/g": {UID: "uid-g", Gone: Object("shop", "g", "uid-g", "6"), Guessed: true},
					"shop/e": {First: true}}},
			lane("live", pods):   {Info: state.LaneInfo{Position: "1042"}},
			lane("audit", nodes): {},
		},
	}
}

func newIsEmpty(t *testing.T, u *subject) {
	u.check()
	info, err := u.LoadView(pods, func(*event.Object) error { t.Error("an object"); return nil })
	if err != nil || info != (state.ViewInfo{}) {
		t.Errorf("an unknown watch has %+v, %v", info, err)
	}
	if _, _, known, err := u.LoadLane(lane("audit", pods)); known || err != nil {
		t.Errorf("an unknown sink: known %v, %v", known, err)
	}
}

func roundTrip(_ *testing.T, u *subject) {
	u.commit(example())
	u.check()
}

func oddNames(_ *testing.T, u *subject) {
	odd := []string{"\x00", "a\x00b", "info", "records", "\xff\xfe", "ä/ö", "system:node:x", " ", "a\nb", strings.Repeat("x", 600), "..", "/"}
	b := &state.Batch{Views: map[state.ViewID]*state.ViewChange{}, Lanes: map[state.LaneID]*state.LaneChange{}}
	for _, name := range odd {
		objects, behind := map[string]*event.Object{}, map[string]*state.Behind{}
		for _, key := range odd {
			objects[key] = Object("", key, "uid "+key+name, key)
			behind[key] = &state.Behind{UID: key, ResourceVersion: name}
		}
		b.Views[state.ViewID(name)] = &state.ViewChange{Objects: objects}
		b.Lanes[lane("sink", state.ViewID(name))] = &state.LaneChange{Behind: behind}
	}
	u.commit(b)
	u.check()
}

func emptyValues(_ *testing.T, u *subject) {
	u.commit(&state.Batch{})
	u.check()
	u.commit(&state.Batch{
		Views: map[state.ViewID]*state.ViewChange{pods: {Objects: map[string]*event.Object{"a": {Name: "a"}}}, nodes: {}},
		Lanes: map[state.LaneID]*state.LaneChange{
			lane("audit", pods): {Behind: map[string]*state.Behind{"a": {}, "b": {Gone: &event.Object{Name: "b"}}}},
			lane("", nodes):     {Info: state.LaneInfo{Snapshot: &state.Snapshot{}}}},
	})
	u.check()
}

func partial(_ *testing.T, u *subject) {
	u.commit(example())
	u.commit(&state.Batch{Views: map[state.ViewID]*state.ViewChange{pods: {Info: state.ViewInfo{Position: "1100", Listed: true}, Objects: map[string]*event.Object{"shop/b": Object("shop", "b", "other", "12")}}}})
	u.check()
	u.commit(&state.Batch{Lanes: map[state.LaneID]*state.LaneChange{lane("audit", pods): {Behind: map[string]*state.Behind{"shop/d": nil, "shop/f": {First: true}}}}})
	u.check()
}

func removal(_ *testing.T, u *subject) {
	u.commit(example())
	gone := &state.Batch{
		Views: map[state.ViewID]*state.ViewChange{pods: {Info: state.ViewInfo{Position: "2"}, Objects: map[string]*event.Object{"shop/a": nil, "shop/never": nil, "shop/b": nil, "shop/c": nil}}},
		Lanes: map[state.LaneID]*state.LaneChange{lane("audit", pods): {Behind: map[string]*state.Behind{"shop/a": nil, "shop/never": nil}}},
	}
	u.commit(gone)
	u.check()
	u.commit(gone)
	u.check()
	u.commit(example())
	u.check()
}

func again(_ *testing.T, u *subject) {
	u.commit(example())
	u.commit(example())
	u.check()
}

func retain(t *testing.T, u *subject) {
	u.commit(example())
	if err := u.Retain(map[state.ViewID]string{pods: podRules, "never": "some"}, []state.LaneID{lane("live", pods), lane("audit", nodes), lane("never", pods)}); err != nil {
		t.Fatal(err)
	}
	if _, _, known, err := u.LoadLane(lane("audit", pods)); known || err != nil {
		t.Errorf("a forgotten sink: known %v, %v", known, err)
	}
	delete(u.want.Views, nodes)
	delete(u.want.Lanes, lane("audit", pods))
	u.want.Views["never"] = View{Info: state.ViewInfo{Rules: "some"}, Objects: map[string]event.Object{}}
	u.check()
	u.commit(example())
	u.check()
	if err := u.Retain(nil, nil); err != nil {
		t.Fatal(err)
	}
	u.want = Content{Epoch: u.want.Epoch, Views: map[state.ViewID]View{}, Lanes: map[state.LaneID]Lane{}}
	u.check()
}

func receiverFails(t *testing.T, u *subject) {
	u.commit(example())
	enough := errors.New("enough")
	calls := 0
	if _, err := u.LoadView(pods, func(*event.Object) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("%d calls and %v", calls, err)
	}
	func() {
		defer func() {
			if p := recover(); p != "a bug of the receiver" {
				t.Errorf("its panic became %v", p)
			}
		}()
		_, err := u.LoadView(pods, func(*event.Object) error { panic("a bug of the receiver") })
		t.Errorf("its panic became an error: %v", err)
	}()
	u.check()
}

func sizes(_ *testing.T, u *subject) {
	objects := map[string]*event.Object{}
	for i := range 3000 {
		o := Object("shop", fmt.Sprint(i), fmt.Sprint("uid", i), "1")
		objects[state.Key("shop", o.Name)] = o
	}
	large := Object("shop", "large", "uid", "1")
	for i := range 1 << 20 {
		large.Body = append(large.Body, byte(i), byte(i>>8), byte(i*i>>3), byte(i>>16))
	}
	objects["shop/large"] = large
	u.commit(&state.Batch{Views: map[state.ViewID]*state.ViewChange{pods: {Objects: objects}}})
	u.check()
	half := map[string]*event.Object{}
	for key := range objects {
		if len(half) == len(objects)/2 {
			break
		}
		half[key] = nil
	}
	u.commit(&state.Batch{Views: map[state.ViewID]*state.ViewChange{pods: {Objects: half}}})
	u.check()
}

func refused(t *testing.T, u *subject) {
	u.commit(example())
	b := example()
	b.Views[pods].Info.Position = "9999"
	b.Views[pods].Objects["shop/a"] = nil
	b.Lanes[lane("audit", pods)].Behind[""] = &state.Behind{}
	if err := u.Commit(b); err == nil {
		t.Fatal("an empty key was stored")
	}
	u.check()
	delete(b.Lanes[lane("audit", pods)].Behind, "")
	u.commit(b)
	u.check()
}

// packed commits bodies that are packed with two dictionaries, the second of which the
// same object needs later.
func packed(t *testing.T, u *subject) {
	aside := spilltest.Open(t)
	for round, version := range []string{"7", "8"} {
		var samples []byte
		for n := range 40 {
			samples = append(samples, Object("shop", fmt.Sprint("sample-", n), "uid", fmt.Sprint(round)).Body...)
		}
		dictionary := event.NewDictionary(samples)
		pack := func(name string) *event.Object {
			o := Object("shop", name, "uid-"+name, version)
			o.Body, o.Dictionary = dictionary.Pack(o.Body), dictionary
			if name == "a" {
				return o.PutAside(aside)
			}
			return o
		}
		u.commit(&state.Batch{
			Views: map[state.ViewID]*state.ViewChange{pods: {Objects: map[string]*event.Object{"shop/a": pack("a"), "shop/b" + version: pack("b" + version), "shop/c": Object("shop", "c", "uid-c", version)}}},
			Lanes: map[state.LaneID]*state.LaneChange{lane("audit", pods): {Behind: map[string]*state.Behind{"shop/d" + version: {UID: "uid-d", Gone: pack("d")}}}},
		})
		u.check()
	}
}
