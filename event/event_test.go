package event

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files again")

var (
	deployments = NewResource(ResourceInfo{Cluster: "prod-eu", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	changes     = NewResource(ResourceInfo{Cluster: "prod-eu", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Change: true})
	selected    = NewResource(ResourceInfo{Cluster: "prod-eu", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Selected: true,
		Scope: Scope{Entry: "checkout", Namespaces: []string{"shop"}, LabelSelector: "app=checkout"}})
	restored = NewResource(ResourceInfo{Cluster: "prod-eu", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", History: third()})
	nodes    = NewResource(ResourceInfo{Cluster: "prod-eu", Version: "v1", Resource: "nodes", Kind: "Node"})
	roles    = NewResource(ResourceInfo{Cluster: "prod_eu.1", Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles", Kind: "ClusterRole"})
)

// third is the history of a cluster that was restored twice.
func third() *History {
	h := &History{}
	h.Continue(2)
	return h
}

const uid = "6a04db51-f519-4deb-b29b-288aa52db18d"

func checkout(version, replicas string) *Object {
	return &Object{
		Namespace: "shop", Name: "checkout-api", UID: uid, ResourceVersion: version,
		Body: []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"checkout-api","namespace":"shop","uid":"` + uid +
			`","resourceVersion":"` + version + `"},"spec":{"replicas":` + replicas + `}}`),
	}
}

func inEpoch(epoch uint32, o *Object) *Object {
	o.Epoch = epoch
	return o
}

type sample struct {
	name  string
	delta Delta
	id    string
}

// samples are one delta of each kind that looks different on the wire.
func samples() []sample {
	at := time.Date(2026, 11, 30, 5, 18, 7, 123456789, time.FixedZone("", 3600))
	node := &Object{Name: "worker-1", UID: "n-1", ResourceVersion: "7", Body: []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker-1"}}`)}
	odd := "system:\"odd\" \\ é\u2028<&>\n\x01\xff"
	role := &Object{Name: odd, UID: "r-1", ResourceVersion: "8", Body: []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"é <&>"}}`)}
	list := []sample{
		{"added-in-snapshot", Delta{Type: Added, Resource: deployments, Object: checkout("1042", "2"), Snapshot: "dk3f9"}, uid + ".1042"},
		{"updated", Delta{Type: Updated, Resource: deployments, Object: checkout("1043", "3"), Old: checkout("1042", "2")}, uid + ".1043"},
		{"updated-change", Delta{Type: Updated, Resource: changes, Object: checkout("1043", "3"), Old: checkout("1042", "2")}, uid + ".1043"},
		{"updated-change-folded", Delta{Type: Updated, Resource: changes, Object: checkout("1043", "3"), Inferred: true}, uid + ".1043"},
		{"deleted-seen", Delta{Type: Deleted, Resource: deployments, Object: checkout("1050", "3"), Old: checkout("1043", "3")}, uid + ".deleted"},
		{"deleted-inferred", Delta{Type: Deleted, Resource: deployments, Object: checkout("1043", "3"), Old: checkout("1043", "3"), Inferred: true}, uid + ".deleted"},
		{"deleted-selected", Delta{Type: Deleted, Resource: selected, Object: checkout("1050", "3")}, uid + ".1050.deleted"},
		{"synced", Delta{Type: Synced, Resource: deployments, Object: checkout("1043", "3"), Snapshot: "dk3f9"}, uid + ".1043.dk3f9"},
		{"core-cluster-scoped", Delta{Type: Added, Resource: nodes, Object: node}, "n-1.7"},
		{"escaped", Delta{Type: Added, Resource: roles, Object: role}, "r-1.8"},
		{"updated-restored", Delta{Type: Updated, Resource: restored, Object: inEpoch(2, checkout("1043", "3"))}, uid + ".e2.1043"},
		{"deleted-restored", Delta{Type: Deleted, Resource: restored, Object: inEpoch(2, checkout("1043", "3"))}, uid + ".e2.deleted"},
	}
	for i := range list {
		list[i].delta.Time = at
	}
	return list
}

func encode(d *Delta, format Format) *Event {
	var e Event
	d.Encode(&e, format, nil)
	return &e
}

func attributes(e *Event) map[string]string {
	got := map[string]string{}
	e.Attributes(func(name, value string) { got[name] = value })
	return got
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestEventsLookAsTheGoldenFilesSay(t *testing.T) {
	for _, s := range samples() {
		golden(t, s.name+".structured.json", append(encode(&s.delta, Structured).Value, '\n'))
		e := encode(&s.delta, Binary)
		if !json.Valid(e.Value) {
			t.Errorf("%s: the binary event's value is no JSON: %s", s.name, e.Value)
		}
		message, err := json.MarshalIndent(map[string]any{"contentType": e.ContentType(), "attributes": attributes(e), "value": string(e.Value)}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, s.name+".binary.json", append(message, '\n'))
	}
}

func TestTheCloudEventsSDKReadsStructuredEvents(t *testing.T) {
	for _, s := range samples() {
		e := encode(&s.delta, Structured)
		var got ce.Event
		if err := json.Unmarshal(e.Value, &got); err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		// The binary form has the same attributes, those that the SDK found.
		found := map[string]string{
			"specversion": got.SpecVersion(), "id": got.ID(), "source": got.Source(), "type": got.Type(),
			"subject": got.Subject(), "time": got.Time().UTC().Format(timeLayout),
		}
		for name, value := range got.Extensions() {
			text, err := types.Format(value)
			if err != nil {
				t.Fatal(err)
			}
			found[name] = text
		}
		want := map[string]string{}
		for name, value := range attributes(encode(&s.delta, Binary)) {
			want[name] = strings.ToValidUTF8(value, "\ufffd")
			if value == "" {
				t.Errorf("%s: attribute %s is empty", s.name, name)
			}
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s (-binary +structured):\n%s", s.name, diff)
		}
		if got.ID() != s.id || e.ID != s.id {
			t.Errorf("%s has the id %s in the document and %s in the event, want %s", s.name, got.ID(), e.ID, s.id)
		}
		if got.DataContentType() != DataContentType {
			t.Errorf("%s: datacontenttype %q", s.name, got.DataContentType())
		}
		if data := encode(&s.delta, Binary).Value; string(got.Data()) != string(data) {
			t.Errorf("%s: data %s, want %s", s.name, got.Data(), data)
		}
		if !s.delta.Resource.Change && string(got.Data()) != string(s.delta.Object.Body) {
			t.Errorf("%s: the data is not the object: %s", s.name, got.Data())
		}
	}
}

func TestABinaryEventBecomesTheSameStructuredDocument(t *testing.T) {
	for _, s := range samples() {
		want := string(encode(&s.delta, Structured).Value)
		for _, format := range []Format{Structured, Binary} {
			if got := string(encode(&s.delta, format).AppendStructured([]byte("-"))); got != "-"+want {
				t.Errorf("%s: %s, want %s", s.name, got, want)
			}
		}
	}
}

func TestTheSameChangeHasTheSameIDHoweverItWasLearnt(t *testing.T) {
	seen := Delta{Type: Deleted, Resource: deployments, Object: checkout("1050", "3")}
	missed := Delta{Type: Deleted, Resource: deployments, Object: checkout("1043", "3"), Inferred: true}
	if seen.ID() != missed.ID() {
		t.Errorf("one deletion has the ids %s and %s", seen.ID(), missed.ID())
	}
	live := Delta{Type: Added, Resource: deployments, Object: checkout("1", "1")}
	listed := Delta{Type: Added, Resource: deployments, Object: checkout("1", "1"), Snapshot: "s"}
	folded := Delta{Type: Updated, Resource: deployments, Object: checkout("1", "1"), Inferred: true}
	if live.ID() != listed.ID() || live.ID() != folded.ID() {
		t.Errorf("one state has the ids %s, %s and %s", live.ID(), listed.ID(), folded.ID())
	}
	first := Delta{Type: Synced, Resource: deployments, Object: checkout("1", "1"), Snapshot: "s1"}
	second := Delta{Type: Synced, Resource: deployments, Object: checkout("1", "1"), Snapshot: "s2"}
	if first.ID() == second.ID() || first.ID() == live.ID() {
		t.Errorf("two snapshots share the id %s", first.ID())
	}
	left := Delta{Type: Deleted, Resource: selected, Object: checkout("5", "1")}
	leftAgain := Delta{Type: Deleted, Resource: selected, Object: checkout("9", "1")}
	if left.ID() == leftAgain.ID() {
		t.Errorf("leaving a selection twice has one id %s", left.ID())
	}
}

func TestDedupIDsDifferBetweenSources(t *testing.T) {
	e := encode(&samples()[1].delta, Binary)
	if want := "kubernetes://prod-eu/apis/apps/v1/deployments/" + uid + ".1043"; e.DedupID() != want {
		t.Errorf("DedupID() = %s, want %s", e.DedupID(), want)
	}
	node := encode(&samples()[8].delta, Binary)
	if want := "kubernetes://prod-eu/api/v1/nodes/n-1.7"; node.DedupID() != want {
		t.Errorf("DedupID() = %s, want %s", node.DedupID(), want)
	}
}

func TestWhatAFirstSnapshotAnnouncesIsNoRepeatOfWhatAnnouncedItBefore(t *testing.T) {
	live := encode(&Delta{Type: Added, Resource: deployments, Object: checkout("1", "1")}, Binary)
	ids := map[string]bool{live.DedupID(): true}
	for _, snapshot := range []string{"s1", "s2"} {
		for _, kind := range []Type{Added, Synced} {
			e := encode(&Delta{Type: kind, Resource: deployments, Object: checkout("1", "1"), Snapshot: snapshot}, Binary)
			if ids[e.DedupID()] {
				t.Errorf("%s in %s is recognised as a repeat by %s", kind, snapshot, e.DedupID())
			}
			ids[e.DedupID()] = true
			if kind == Added && e.ID != live.ID {
				t.Errorf("one state has the ids %s and %s", live.ID, e.ID)
			}
		}
	}
}

func TestAHistoryEndsOnceForAllWhoNoticeIt(t *testing.T) {
	h := third()
	if a, b, c := h.End(2), h.End(2), h.End(3); a != 3 || b != 3 || c != 4 || h.Epoch() != 4 {
		t.Errorf("the epochs are %d, %d and %d, then %d", a, b, c, h.Epoch())
	}
	if (*History)(nil).Epoch() != 0 {
		t.Error("without a history there is an epoch")
	}
}

func TestEncodingOverwritesAllOfAUsedEvent(t *testing.T) {
	list := samples()
	e := encode(&list[7].delta, Structured) // has a snapshot
	list[1].delta.Encode(e, Binary, nil)
	if diff := cmp.Diff(attributes(encode(&list[1].delta, Binary)), attributes(e)); diff != "" {
		t.Error(diff)
	}
}

func TestTypesHaveNamesAndBack(t *testing.T) {
	for typ, name := range map[Type]string{Added: "added", Updated: "updated", Deleted: "deleted", Synced: "synced"} {
		if got, ok := ParseType(name); typ.String() != name || got != typ || !ok {
			t.Errorf("%s: %d, %s", name, got, typ)
		}
	}
	if got := Type(0).String() + Type(99).String(); got != "unknownunknown" {
		t.Error(got)
	}
	for _, name := range []string{"", "Added", "unknown"} {
		if got, ok := ParseType(name); ok {
			t.Errorf("%q is type %d", name, got)
		}
	}
}

func TestSamenessIsUIDAndVersionAndNotBytes(t *testing.T) {
	a, b := checkout("1", "1"), checkout("1", "9")
	if !a.Same(b) {
		t.Error("the same version differs")
	}
	b = checkout("2", "1")
	b.Body = a.Body
	if a.Same(b) {
		t.Error("another version is the same")
	}
	b = checkout("1", "1")
	b.UID = "other"
	if a.Same(b) {
		t.Error("another uid is the same")
	}
}

// The lane takes a buffer of EncodedSize: the id is all that is allocated.
func TestEncodingAllocatesNoMoreThanTheID(t *testing.T) {
	for _, s := range samples() {
		for _, format := range []Format{Structured, Binary} {
			var e Event
			buf := make([]byte, 0, s.delta.EncodedSize(format))
			if n := testing.AllocsPerRun(100, func() { s.delta.Encode(&e, format, buf) }); n > 1 {
				t.Errorf("%s, format %d: %v allocations, want one at most", s.name, format, n)
			}
		}
	}
}

// Keeping the bodies apart from the buffers' capacity is the window's business; an
// estimate far above the truth would waste it.
func TestTheEstimateIsCloseForOrdinaryNames(t *testing.T) {
	for _, s := range samples()[:9] {
		e := encode(&s.delta, Structured)
		if over := s.delta.EncodedSize(Structured) - len(e.Value); over < 0 || over > 400 {
			t.Errorf("%s: the estimate is %d bytes above the length", s.name, over)
		}
	}
}

func FuzzEstimatesAreNotBelowTheLength(f *testing.F) {
	f.Add("shop", "checkout", uid, "1042", "s", "prod", "apps", byte(1), true, true)
	f.Add("", "\x00\xff\"\\é\u2028", "", "", "", "", "", byte(3), false, false)
	f.Add("\x01\x01", strings.Repeat("\xff", 253), "\"", "\n", strings.Repeat("\x1f", 60), "\x00\x00", "\xff", byte(4), true, true)
	f.Fuzz(func(t *testing.T, namespace, name, uid, version, snapshot, cluster, group string, kind byte, change, inferred bool) {
		o := &Object{Namespace: namespace, Name: name, UID: uid, ResourceVersion: version, Body: []byte(`{}`)}
		r := NewResource(ResourceInfo{Cluster: cluster, Group: group, Version: "v1", Resource: "things", Kind: "Thing", Change: change, Selected: inferred})
		d := Delta{Type: Type(1 + kind%4), Resource: r, Object: o, Old: o, Snapshot: snapshot, Inferred: inferred, Time: time.Now()}
		for _, format := range []Format{Structured, Binary} {
			e := encode(&d, format)
			if want := d.EncodedSize(format); len(e.Value) > want {
				t.Errorf("format %d: %d bytes, estimated at %d", format, len(e.Value), want)
			}
			if !json.Valid(e.Value) {
				t.Errorf("format %d: no JSON: %q", format, e.Value)
			}
		}
	})
}

func FuzzEscapedStringsAreReadBack(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\x00\x1f\x7f", "é\u2028\ufffd", "\xff\xc3", "a\xf0\x9f\x98"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc := append(appendEscaped([]byte(`"`), s), '"')
		var got, want string
		if err := json.Unmarshal(doc, &got); err != nil {
			t.Fatalf("%q becomes %s: %v", s, doc, err)
		}
		reference, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(reference, &want); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%q becomes %q, want %q", s, got, want)
		}
		if len(doc)-2 > escapedLen(s) {
			t.Errorf("%q takes %d bytes, estimated at %d", s, len(doc)-2, escapedLen(s))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	d := samples()[1].delta
	o := *d.Object
	o.Body = append(append([]byte(`{"filler":"`), strings.Repeat("x", 3<<10)...), `"}`...)
	d.Object = &o
	var e Event
	buf := make([]byte, 0, d.EncodedSize(Structured))
	for b.Loop() {
		_ = d.EncodedSize(Structured)
		d.Encode(&e, Structured, buf)
	}
	b.SetBytes(int64(len(e.Value)))
	b.ReportAllocs()
}
