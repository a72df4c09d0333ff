package tail

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMapOfAnnotationsThatIsEmptyIsNoChange(t *testing.T) {
	for _, states := range [][2]string{
		{`{"metadata":{"name":"x"}}`, `{"metadata":{"name":"x","annotations":{},"labels":{}}}`},
		{`{"metadata":{"annotations":{}}}`, `{"metadata":{}}`},
	} {
		found, err := changes([]byte(states[0]), []byte(states[1]))
		if err != nil || len(found) > 0 {
			t.Errorf("%s to %s: %v, %v", states[0], states[1], found, err)
		}
	}
	found, err := changes([]byte(`{"spec":{"volumes":[{"name":"v"}]}}`), []byte(`{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}`))
	if err != nil || len(found) != 1 {
		t.Errorf("an empty map elsewhere: %v, %v", found, err)
	}
}

func TestChangedPathsAreNamedWithTheirShortValues(t *testing.T) {
	long := strings.Repeat("x", longestValue+1)
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"a number":           {`{"spec":{"replicas":3}}`, `{"spec":{"replicas":5}}`, []string{`spec.replicas: 3 → 5`}},
		"a large number":     {`{"n":9007199254740993}`, `{"n":9007199254740992}`, []string{`n: 9007199254740993 → 9007199254740992`}},
		"a string":           {`{"data":{"mode":"slow"}}`, `{"data":{"mode":"very fast"}}`, []string{`data.mode: slow → "very fast"`}},
		"a string of digits": {`{"v":1}`, `{"v":"1"}`, []string{`v: 1 → "1"`}},
		"a keyword":          {`{"v":true}`, `{"v":"true"}`, []string{`v: true → "true"`}},
		"null":               {`{"v":null}`, `{"v":""}`, []string{`v: null → ""`}},
		"a long value":       {`{"v":"a"}`, `{"v":"` + long + `"}`, []string{`v`}},
		"a scalar to a map":  {`{"v":"a"}`, `{"v":{"b":1}}`, []string{`v`}},
		"a new label":        {`{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"b","app.kubernetes.io/tier":"web"}}}`, []string{`+metadata.labels[app.kubernetes.io/tier]: web`}},
		"a first label":      {`{"metadata":{}}`, `{"metadata":{"labels":{"tier":"web"}}}`, []string{`+metadata.labels.tier: web`}},
		"the last label":     {`{"metadata":{"labels":{"tier":"web"}}}`, `{"metadata":{}}`, []string{`-metadata.labels.tier: web`}},
		"an empty map":       {`{}`, `{"spec":{}}`, []string{`+spec`}},
		"a named element": {
			`{"c":[{"name":"web","image":"web:1"},{"name":"log","image":"log:1"}]}`,
			`{"c":[{"name":"log","image":"log:1"},{"name":"web","image":"web:2"}]}`,
			[]string{`c[web].image: web:1 → web:2`},
		},
		"named elements that come and go": {`{"env":[{"name":"A"}]}`, `{"env":[{"name":"B"}]}`, []string{`-env[A]`, `+env[B]`}},
		"elements that share a name": {
			`{"m":[{"name":"v","mountPath":"/a"},{"name":"v","mountPath":"/b"}]}`,
			`{"m":[{"name":"v","mountPath":"/a","readOnly":true},{"name":"v","mountPath":"/b"}]}`,
			[]string{`+m[/a].readOnly: true`},
		},
		"elements without a name": {`{"args":["a","b"]}`, `{"args":["a","c","d"]}`, []string{`args[1]: b → c`, `+args[2]: d`}},
		"a condition": {
			`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
			[]string{`status.conditions[Ready].status: False → True`},
		},
		"what changes with everything": {
			`{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[{"manager":"a"}]},"status":{"observedGeneration":1}}`,
			`{"metadata":{"resourceVersion":"2","generation":2,"managedFields":[{"manager":"b"}]},"status":{"observedGeneration":2}}`,
			nil,
		},
		"managed fields that came": {`{"metadata":{}}`, `{"metadata":{"managedFields":[{"manager":"b"}]}}`, nil},
		"in the order of interest": {
			`{"metadata":{"labels":{"a":"1"}},"spec":{"b":1,"a":1},"status":{"phase":"A"}}`,
			`{"metadata":{"labels":{"a":"x"}},"spec":{"b":2,"a":2},"status":{"phase":"B"}}`,
			[]string{`spec.a: 1 → 2`, `spec.b: 1 → 2`, `metadata.labels.a: "1" → x`, `status.phase: A → B`},
		},
		"controls in keys and values": {`{}`, `{"data":{"\u001b[2J":"a\nb\u009b\u202e\"\\"}}`, []string{`+data[\x1b[2J]: "a\nb\u009b\u202e\"\\"`}},
		"no change":                   {`{"a":[1,{"b":null}]}`, `{"a":[1,{"b":null}]}`, nil},
	} {
		found, err := changes([]byte(c.before), []byte(c.after))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, f := range found {
			got = append(got, f.text(true))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestWithoutValuesOnlyPathsAreNamed(t *testing.T) {
	found, err := changes([]byte(`{"data":{"a":"s3cret","b":"s3cret"}}`), []byte(`{"data":{"a":"s3cret2","c":"s3cret"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.text(false))
	}
	if diff := cmp.Diff([]string{"+data.c", "-data.b", "data.a"}, sorted(got)); diff != "" {
		t.Error(diff)
	}
}

func TestTheMemoryForgetsWhatWasNotHeardOfForLongest(t *testing.T) {
	object := []byte(strings.Repeat("x", 100))
	m := newMemory(3 * (len("a") + len(object) + stateOverhead))
	for _, key := range []string{"a", "b", "c", "a", "d"} {
		m.put(key, object)
	}
	var got []string
	for _, key := range []string{"a", "b", "c", "d"} {
		if m.get(key) != nil {
			got = append(got, key)
		}
	}
	if diff := cmp.Diff([]string{"a", "c", "d"}, got); diff != "" {
		t.Error(diff)
	}
	m.put("large", make([]byte, m.limit))
	if m.get("large") != nil || m.get("a") == nil {
		t.Error("an object larger than the memory was kept, or took the place of others")
	}
	for _, key := range []string{"a", "c", "d", "unknown"} {
		m.forget(key)
	}
	if m.size != 0 || m.recent.Len() != 0 || len(m.byKey) != 0 {
		t.Errorf("%d bytes, %d states are left of an empty memory", m.size, m.recent.Len())
	}
}
