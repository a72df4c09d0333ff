package tail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbridge-io/kbridge/event"
)

func TestEachEventIsOneAlignedLine(t *testing.T) {
	first := delta(event.Added, deployments, object("shop/web", "1", `,"spec":{"replicas":3}`))
	first.Snapshot = "s1"
	folded := delta(event.Updated, deployments, object("shop/web", "12", `,"spec":{"a":1,"b":1,"c":1,"d":1,"replicas":5}`))
	folded.Inferred = true
	withOld := delta(event.Updated, changed, object("shop/settings", "15", `,"data":{"mode":"fast"}`))
	withOld.Old = object("shop/settings", "14", `,"data":{"mode":"slow"}`)
	next := delta(event.Added, nodes, object("node-with-a-long-name-that-moves-the-column", "16", ""))
	next.Time = noon.Add(24 * time.Hour)
	events := []*event.Delta{
		first,
		delta(event.Updated, deployments, object("shop/web", "2", `,"spec":{"replicas":5}`)),
		folded,
		delta(event.Updated, deployments, object("shop/unseen", "13", ``)),
		delta(event.Updated, deployments, object("shop/unseen", "14", ``)),
		withOld,
		delta(event.Added, secrets, object("shop/db", "16", `,"data":{"password":"c2VjcmV0"}`)),
		delta(event.Updated, secrets, object("shop/db", "17", `,"data":{"password":"c2VjcmV0"}`)),
		delta(event.Updated, secrets, object("shop/db", "18", `,"data":{"password":"b3RoZXI=","user":"YQ=="}`)),
		delta(event.Deleted, deployments, object("shop/web", "19", ``)),
		delta(event.Updated, deployments, object("shop/web", "20", ``)),
		delta(event.Synced, nodes, object("node-1", "21", ``)),
		next,
		delta(event.Added, elsewhere, object("node-1", "3", ``)),
	}
	want := strings.TrimPrefix(`
12:00:00.123  added     deployments.apps  shop/web                  rv 1  snapshot
12:00:00.123  updated   deployments.apps  shop/web                  rv 2  spec.replicas: 3 → 5
12:00:00.123  updated   deployments.apps  shop/web                  rv 12  inferred  +spec.a: 1, +spec.b: 1, +spec.c: 1, +1 more
12:00:00.123  updated   deployments.apps  shop/unseen               rv 13  (earlier state not seen)
12:00:00.123  updated   deployments.apps  shop/unseen               rv 14  (no visible change)
12:00:00.123  updated   configmaps        shop/settings             rv 15  data.mode: slow → fast
12:00:00.123  added     secrets           shop/db                   rv 16
12:00:00.123  updated   secrets           shop/db                   rv 17  (no visible change: values are not shown)
12:00:00.123  updated   secrets           shop/db                   rv 18  data.password, +data.user
12:00:00.123  deleted   deployments.apps  shop/web                  rv 19
12:00:00.123  updated   deployments.apps  shop/web                  rv 20  (earlier state not seen)
12:00:00.123  synced    nodes             node-1                    rv 21
-- 2026-12-01
12:00:00.123  added     nodes             node-with-a-long-name-that-moves-the-column  rv 16
-- 2026-11-30
12:00:00.123  added     nodes             node-1                                       rv 3  cluster other
`, "\n")
	for _, format := range []event.Format{event.Structured, event.Binary} {
		var got strings.Builder
		p := Printer{Out: &got, Zone: time.UTC, Today: "2026-11-30"}
		for _, d := range events {
			if err := p.Print(decoded(t, d, format)); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("format %d (-want +got):\n%s", format, diff)
		}
	}
}

func TestMarkersAndTruncatedEventsReadAsWhatTheyAre(t *testing.T) {
	marker := func(m event.Marker) func(event.Format) *event.Event {
		return func(f event.Format) *event.Event {
			var e event.Event
			m.Time = noon
			m.Encode(&e, f)
			return &e
		}
	}
	object := func(d *event.Delta, truncated bool) func(event.Format) *event.Event {
		return func(f event.Format) *event.Event {
			var e event.Event
			d.Encode(&e, f, nil)
			if truncated {
				if err := e.Truncate(); err != nil {
					t.Fatal(err)
				}
			}
			return &e
		}
	}
	first := delta(event.Added, deployments, object1("1"))
	first.Snapshot = "s1"
	withOld := delta(event.Updated, changed, object1("9"))
	withOld.Old = object1("8")
	want := strings.TrimPrefix(`
12:00:00.123  snapshot  deployments.apps  started
12:00:00.123  added     deployments.apps  shop/web                  rv 1  snapshot
12:00:00.123  snapshot  deployments.apps  completed, 312 objects    rv 1042
12:00:00.123  snapshot  configmaps        started in shop
12:00:00.123  snapshot  configmaps        completed in shop, 1 object
12:00:00.123  updated   deployments.apps  shop/web                  rv 2  truncated
12:00:00.123  updated   deployments.apps  shop/web                  rv 3  (earlier state not seen)
12:00:00.123  updated   deployments.apps  shop/web                  rv 4  (no visible change)
12:00:00.123  updated   configmaps        shop/web                  rv 9  truncated
12:00:00.123  snapshot  nodes             completed, 0 objects
12:00:00.123  verified  configmaps        1 object in shop, 0 differed  rv 1042
`, "\n")
	for _, format := range []event.Format{event.Structured, event.Binary} {
		var got strings.Builder
		p := Printer{Out: &got, Zone: time.UTC, Today: "2026-11-30"}
		for _, make := range []func(event.Format) *event.Event{
			marker(event.Marker{Type: event.SnapshotStarted, Resource: deployments, Snapshot: "s1"}),
			object(first, false),
			marker(event.Marker{Type: event.SnapshotCompleted, Resource: deployments, Snapshot: "s1", Count: 312, ResourceVersion: "1042"}),
			marker(event.Marker{Type: event.SnapshotStarted, Resource: changed, Namespace: "shop", Snapshot: "s2"}),
			marker(event.Marker{Type: event.SnapshotCompleted, Resource: changed, Namespace: "shop", Snapshot: "s2", Count: 1}),
			object(delta(event.Updated, deployments, object1("2")), true),
			object(delta(event.Updated, deployments, object1("3")), false),
			object(delta(event.Updated, deployments, object1("4")), false),
			object(withOld, true),
			marker(event.Marker{Type: event.SnapshotCompleted, Resource: nodes, Snapshot: "s3"}),
			marker(event.Marker{Type: event.Verified, Resource: changed, Namespace: "shop", Verification: "v1", Compared: 1, ResourceVersion: "1042"}),
		} {
			if err := p.Print(read(t, make(format))); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("format %d (-want +got):\n%s", format, diff)
		}
	}
}

// object1 is a state of one object.
func object1(version string) *event.Object { return object("shop/web", version, `,"spec":{"a":1}`) }

func TestTimesAreLocal(t *testing.T) {
	var got strings.Builder
	p := Printer{Out: &got, Zone: time.FixedZone("", 13*60*60), Today: "2026-12-01"}
	if err := p.Print(decoded(t, delta(event.Added, nodes, object("n", "1", "")), event.Structured)); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.String(), "01:00:00.123  ") {
		t.Error(got.String())
	}
}

func TestALineFitsTheTerminal(t *testing.T) {
	before := delta(event.Added, deployments, object("shop/web", "1", `,"spec":{"a":"1","b":"1","c":"1","d":"1"}`))
	after := delta(event.Updated, deployments, object("shop/web", "2", `,"spec":{"a":"2","b":"2","c":"2","d":"2","日本語日本語":1}`))
	for width, want := range map[int][]string{
		0:   {`12:00:00.123  updated   deployments.apps  shop/web                  rv 2  spec.a: "1" → "2", spec.b: "1" → "2", spec.c: "1" → "2", +2 more`},
		200: {`12:00:00.123  updated   deployments.apps  shop/web                  rv 2  spec.a: "1" → "2", spec.b: "1" → "2", spec.c: "1" → "2", +2 more`},
		125: {`12:00:00.123  updated   deployments.apps  shop/web                  rv 2  spec.a: "1" → "2", spec.b: "1" → "2", +3 more`},
		102: {`12:00:00.123  updated   deployments.apps  shop/web                  rv 2  spec.a: "1" → "2", +4 more`},
		80: {
			`12:00:00.123  updated   deployments.apps  shop/web              rv 2`,
			`              spec.a: "1" → "2", spec.b: "1" → "2", spec.c: "1" → "2", +2 more`,
		},
		47: {
			`12:00:00.123  updated   deployments…  shop/web`,
			`              spec.a: "1" → "2", +4 more`,
		},
		30: {
			`12:00:00.123  updated   deplo…`,
			`              spec.a: "1" → "…`,
		},
		20: {`12:00:00.123  updat…`},
		1:  {`…`},
	} {
		for _, colour := range []bool{false, true} {
			var out strings.Builder
			p := Printer{Out: &out, Zone: time.UTC, Today: "2026-11-30", Width: func() int { return width }, Colour: colour}
			for _, d := range []*event.Delta{before, after} {
				if err := p.Print(decoded(t, d, event.Structured)); err != nil {
					t.Fatal(err)
				}
			}
			lines := strings.Split(strings.TrimRight(uncoloured(out.String()), "\n"), "\n")[1:]
			for i := range lines {
				lines[i] = strings.TrimRight(lines[i], " ")
			}
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("%d columns (-want +got):\n%s", width, diff)
			}
		}
	}
}

func TestOneLongNameDoesNotPushOutTheVersionAndTheChange(t *testing.T) {
	long := "observability/a-controller-with-a-very-long-name-indeed-7d9f8b6c5d-x2x4q"
	var out strings.Builder
	p := Printer{Out: &out, Zone: time.UTC, Today: "2026-11-30", Width: func() int { return 80 }}
	for _, d := range []*event.Delta{
		delta(event.Added, deployments, object(long, "1", `,"spec":{"replicas":3}`)),
		delta(event.Updated, deployments, object(long, "2", `,"spec":{"replicas":5}`)),
		delta(event.Added, deployments, object("shop/web", "3", `,"spec":{"replicas":3}`)),
		delta(event.Updated, deployments, object("shop/web", "4", `,"spec":{"replicas":5}`)),
	} {
		if err := p.Print(decoded(t, d, event.Structured)); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.TrimPrefix(`
12:00:00.123  added     deployments.apps  observability/a-controller-with…  rv 1
12:00:00.123  updated   deployments.apps  observability/a-controller-with…  rv 2
              spec.replicas: 3 → 5
12:00:00.123  added     deployments.apps  shop/web              rv 3
12:00:00.123  updated   deployments.apps  shop/web              rv 4
              spec.replicas: 3 → 5
`, "\n")
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func uncoloured(s string) string {
	for _, c := range []colour{"0", dim, bold, red, green, yellow, blue} {
		s = strings.ReplaceAll(s, fmt.Sprintf("\x1b[%sm", c), "")
	}
	return s
}

func TestEachTypeHasItsColour(t *testing.T) {
	var got strings.Builder
	p := Printer{Out: &got, Zone: time.UTC, Today: "2026-11-30", Colour: true}
	for _, d := range []event.Type{event.Added, event.Updated, event.Deleted, event.Synced} {
		if err := p.Print(decoded(t, delta(d, nodes, object("n", "1", "")), event.Structured)); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{"\x1b[32madded\x1b[0m  ", "\x1b[33mupdated\x1b[0m  ", "\x1b[31mdeleted\x1b[0m  ", "\x1b[34msynced\x1b[0m  "} {
		if line := strings.Split(got.String(), "\n")[i]; !strings.Contains(line, want) {
			t.Errorf("%q has no %q", line, want)
		}
	}
}

func TestControlCharactersDoNotReachTheTerminal(t *testing.T) {
	var got strings.Builder
	p := Printer{Out: &got, Zone: time.UTC, Today: "2026-11-30"}
	e, err := Decode(map[string][]string{
		"ce-specversion": {"1.0"}, "ce-type": {"dev.kbridge.object.a\r"}, "ce-time": {"\x1b]0;x\x07"}, "ce-resource": {"r\u0085"},
		"ce-name": {"n\u202eame\n"}, "ce-namespace": {"\xff"}, "ce-resourceversion": {"\x1b[1A"}, "ce-cluster": {"c\x00"},
	}, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Print(e); err != nil {
		t.Fatal(err)
	}
	want := `\x1b]0;x\a  a\r       r\u0085           \xff/n\u202eame\n         rv \x1b[1A` + "\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}
