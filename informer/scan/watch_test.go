package scan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

func TestAFrameIsSplitIntoTypeAndObject(t *testing.T) {
	for frame, want := range map[string][2]string{
		`{"type":"ADDED","object":{"a":1}}` + "\n":                 {Added, `{"a":1}`},
		`{"object":{"a":1},"type":"MODIFIED"}`:                     {Modified, `{"a":1}`},
		` { "x" : [1] , "type" : "DELETED" , "object" : { } } `:    {Deleted, `{ }`},
		`{"t\u0079pe":"BOOKMARK","\u006fbject":{}}`:                {Bookmark, `{}`},
		`{"type":"\u0045RROR","object":{"kind":"Status"}}`:         {Failure, `{"kind":"Status"}`},
		`{"type":"ADDED","object":{"a":1},"x":{}}`:                 {Added, `{"a":1}`},
		`{"type":"ADDED","object":{"a":1},"object":{"b":1}}`:       {Added, `{"b":1}`},
		`{"type":"ADDED","object":{"a":1},"type":"DELETED"}`:       {Deleted, `{"a":1}`},
		`{"type":"LATER","object":{}}`:                             {"LATER", `{}`},
		`{"type":"ADDED","Type":"DELETED","object":{},"OBJECT":1}`: {Added, `{}`},
	} {
		typ, object, err := WatchEvent([]byte(frame))
		if err != nil || typ != want[0] || string(object) != want[1] {
			t.Errorf("%s: got %s, %s, %v", frame, typ, object, err)
		}
		var m Meta
		typ, object, err = unruled.WatchEvent(nil, []byte(frame), &m)
		if err != nil || typ != want[0] || string(object) != want[1] {
			t.Errorf("%s: in one pass got %s, %s, %v", frame, typ, object, err)
		}
	}
}

func TestTheObjectOfAFrameIsNotCopied(t *testing.T) {
	frame := []byte(`{"type":"ADDED","object":{"a":1}}`)
	_, object, err := WatchEvent(frame)
	if err != nil || unsafe.SliceData(object) != &frame[25] {
		t.Errorf("got a copy, or %v", err)
	}
}

func TestAFrameThatIsNoneIsRefused(t *testing.T) {
	for frame, want := range map[string]string{
		``:                                    "offset 0: expected an object",
		`[]`:                                  "offset 0: expected an object",
		`{"type":"ADDED"}`:                    "offset 16: expected a member object",
		`{"object":{}}`:                       "offset 13: expected a member type",
		`{"type":1,"object":{}}`:              "type at offset 8: expected a string",
		`{"type":"ADDED","object":null}`:      "object at offset 25: expected an object",
		`{"type":"ADDED","object":[{}]}`:      "object at offset 25: expected an object",
		`{"type":"ADDED","object":{}}{}`:      "offset 28: expected the end of the document",
		`{"type":"ADDED","object":{"a":01}}`:  "offset 31: expected a comma or a closing brace",
		`{"type":"ADDED","object":{}`:         "offset 27: expected a comma or a closing brace",
		`{"type":"ADDED","object":{},}`:       "offset 28: expected a key in quotes",
		`{"type":"ADDED","object":{}],"x":1}`: "offset 27: expected a comma or a closing brace",
	} {
		if _, object, err := WatchEvent([]byte(frame)); err == nil || err.Error() != want || object != nil {
			t.Errorf("%s: got %s, %v, want %s", frame, object, err, want)
		}
		m := Meta{Name: "stale"}
		typ, out, err := unruled.WatchEvent(nil, []byte(frame), &m)
		if err == nil || typ != "" || out != nil || m != (Meta{}) {
			t.Errorf("%s: in one pass got %s, %s, %+v, %v", frame, typ, out, m, err)
		}
	}
}

func TestTheStatusOfAnErrorFramePassesUnchanged(t *testing.T) {
	r := rules(t, secretRules)
	status := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}`
	for _, frame := range []string{`{"type":"ERROR","object":` + status + "}", `{"object":` + status + `,"type":"ERROR"}`} {
		var m Meta
		typ, out, err := r.WatchEvent(nil, []byte(frame), &m)
		if err != nil || typ != Failure || string(out) != status || m != (Meta{}) {
			t.Errorf("%s: got %s, %s, %+v, %v", frame, typ, out, m, err)
		}
	}
}

func TestABookmarkTellsTheEndOfTheFirstEvents(t *testing.T) {
	frame := `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}`
	var m Meta
	typ, _, err := rules(t, benchmarks[0].options).WatchEvent(nil, []byte(frame), &m)
	want := Meta{APIVersion: "v1", Kind: "Pod", ResourceVersion: "9", InitialEventsEnd: true}
	if err != nil || typ != Bookmark || m != want {
		t.Errorf("got %s, %+v, %v", typ, m, err)
	}
}

func checkWatchEvent(t *testing.T, frame []byte) {
	t.Helper()
	typ, object, err := WatchEvent(frame)
	parsed, parseErr := parse(frame)
	wantTyp, wantObject, isEvent := "", any(nil), false
	if top, is := parsed.([]member); is && parseErr == nil && json.Valid(frame) {
		v := collapse(top).(map[string]any)
		wantTyp, isEvent = v["type"].(string)
		wantObject = v["object"]
		_, is := wantObject.(map[string]any)
		isEvent = isEvent && is
	}
	if isEvent != (err == nil) {
		t.Fatalf("%q: got %v, want an event %v", frame, err, isEvent)
	}
	if isEvent {
		got, err := decode(object)
		if err != nil || typ != wantTyp || !reflect.DeepEqual(got, wantObject) {
			t.Fatalf("%q: got %q, %q, %v", frame, typ, object, err)
		}
	}

	// One pass and two passes are the same.
	for _, o := range []Options{manyPaths, secretRules} {
		r := rules(t, o)
		var want, got Meta
		var wantOut []byte
		wantErr := err
		if err == nil && typ != Failure {
			wantOut, wantErr = r.Object(nil, object, &want)
		} else if err == nil {
			wantOut = object
		}
		gotTyp, out, err := r.WatchEvent(nil, frame, &got)
		if (err == nil) != (wantErr == nil) || got != want || !bytes.Equal(out, wantOut) || err == nil && gotTyp != typ {
			t.Fatalf("%q: in one pass got %q, %q, %+v, %v, want %q, %q, %+v, %v", frame, gotTyp, out, got, err, typ, wantOut, want, wantErr)
		}
	}
}

func (w *writer) frame() []byte {
	object := bytes.Clone(w.document("K"))
	w.b = w.b[:0]
	keys := []string{"type", "object"}
	if w.one(3) {
		keys = w.some("type", "object", "x")
	}
	w.object(keys, func(key string) {
		switch {
		case w.one(30):
			w.value(2)
		case key == "type":
			w.quoted([]string{Added, Modified, Deleted, Bookmark, Failure, "x"}[w.IntN(6)])
		case key == "object":
			w.b = append(w.b, object...)
		default:
			w.value(2)
		}
	})
	return w.b
}

func TestRandomFramesAreSplitAsTheModelSays(t *testing.T) {
	for seed := range uint64(800) {
		checkWatchEvent(t, newWriter(seed).frame())
	}
}

func FuzzWatchEvent(f *testing.F) {
	for _, bm := range benchmarks {
		f.Add([]byte(`{"type":"MODIFIED","object":` + string(sample(f, bm.file)) + "}\n"))
	}
	for seed := range uint64(20) {
		f.Add(bytes.Clone(newWriter(seed).frame()))
	}
	f.Fuzz(func(t *testing.T, frame []byte) { checkWatchEvent(t, frame) })
}

func items(body string) (items []string, m ListMeta, err error) {
	m, err = List([]byte(body), func(item []byte) error {
		items = append(items, string(item))
		return nil
	})
	return items, m, err
}

func TestAListIsWalkedItemByItem(t *testing.T) {
	five := int64(5)
	podList := ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "12", Items: true}
	for _, c := range []struct {
		body string
		meta ListMeta
		want []string
	}{
		{`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[{"a":1},{"b":[]}]}` + "\n", podList, []string{`{"a":1}`, `{"b":[]}`}},
		{`{"items":[ {"a":1} , { } ],"metadata":{"resourceVersion":"12"},"apiVersion":"v1","kind":"PodList"}`, podList, []string{`{"a":1}`, `{ }`}},
		{`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":null}`, podList, nil},
		{`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"},"items":[]}`, podList, nil},
		{`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"12"}}`, ListMeta{APIVersion: "v1", Kind: "PodList", ResourceVersion: "12"}, nil},
		{`{"metadata":{"continue":"abc","remainingItemCount":5,"selfLink":""},"x":{"items":[1]}}`, ListMeta{Continue: "abc", RemainingItemCount: &five}, nil},
		{`{"metadata":{"continue":"abc","remainingItemCount":5},"metadata":{"resourceVersion":"\u0031"}}`, ListMeta{ResourceVersion: "1"}, nil},
		{`{"metadata":{"resourceVersion":"1","resourceVersion":null,"remainingItemCount":null}}`, ListMeta{}, nil},
		{`{"metadata":null,"it\u0065ms":[{}]}`, ListMeta{Items: true}, []string{`{}`}},
	} {
		got, m, err := items(c.body)
		if err != nil || !reflect.DeepEqual(m, c.meta) || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %+v, %v", c.body, got, m, err)
		}
	}
}

func TestAListThatIsNoneIsRefused(t *testing.T) {
	for body, want := range map[string]string{
		``:                                    "offset 0: expected an object",
		`[]`:                                  "offset 0: expected an object",
		`{"items":{}}`:                        "items at offset 9: expected an array",
		`{"items":[1]}`:                       "items at offset 10: expected an object",
		`{"items":[null]}`:                    "items at offset 10: expected an object",
		`{"items":[{}],"items":[]}`:           "offset 22: expected items only once",
		`{"items":[{}]`:                       "offset 13: expected a comma or a closing brace",
		`{"items":[{},]}`:                     "items at offset 13: expected an object",
		`{"items":[{}]}}`:                     "offset 14: expected the end of the document",
		`{"kind":1}`:                          "kind at offset 8: expected a string",
		`{"apiVersion":{}}`:                   "apiVersion at offset 14: expected a string",
		`{"metadata":"x"}`:                    "metadata at offset 12: expected an object",
		`{"metadata":{"resourceVersion":12}}`: "metadata.resourceVersion at offset 31: expected a string",
		`{"metadata":{"continue":[]}}`:        "metadata.continue at offset 24: expected a string",
		`{"metadata":{"remainingItemCount":1.5}}`:                  "metadata.remainingItemCount at offset 34: expected an integer",
		`{"metadata":{"remainingItemCount":"5"}}`:                  "metadata.remainingItemCount at offset 34: expected an integer",
		`{"metadata":{"remainingItemCount":99999999999999999999}}`: "metadata.remainingItemCount at offset 34: expected an integer",
		`{"items":[{"a":tru}]}`:                                    "offset 15: expected true, false or null",
	} {
		if _, m, err := items(body); err == nil || err.Error() != want || m != (ListMeta{}) {
			t.Errorf("%s: got %+v, %v, want %s", body, m, err, want)
		}
	}
}

func TestAnErrorOfTheCallerEndsTheWalk(t *testing.T) {
	full, calls := errors.New("full"), 0
	_, err := List([]byte(`{"items":[{},{},{}`), func([]byte) error {
		if calls++; calls == 2 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || calls != 2 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

func TestAppendingToAnItemLeavesTheBodyAlone(t *testing.T) {
	body := []byte(`{"items":[{},{"a":1}]}`)
	before := string(body)
	if _, err := List(body, func(item []byte) error {
		_ = append(item, "xxxxxx"...)
		return nil
	}); err != nil || string(body) != before {
		t.Errorf("got %s, %v", body, err)
	}
}

func checkList(t *testing.T, body []byte) {
	t.Helper()
	var got []any
	m, err := List(body, func(item []byte) error {
		v, err := decode(item)
		if err != nil {
			t.Fatalf("%q: the item %q: %v", body, item, err)
		}
		got = append(got, v)
		return nil
	})
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || json.Valid(body) && body[spaces(body, 0)] == '{' && e.Path == "" && e.Want != wants[wantOneItems] {
			t.Fatalf("%q: got %v for a valid list", body, err)
		}
		return
	}
	v, err := decode(body)
	if err != nil || !json.Valid(body) {
		t.Fatalf("%q: an invalid list was accepted: %v", body, err)
	}
	top := v.(map[string]any)
	metadata, _ := top["metadata"].(map[string]any)
	text := func(v any) string {
		s, _ := v.(string)
		return s
	}
	// Items once an array and later null are the one case where the last key does not count.
	if items, _ := top["items"].([]any); !slices.EqualFunc(got, items, func(a, b any) bool { return reflect.DeepEqual(a, b) }) && top["items"] != nil {
		t.Fatalf("%q: got items %v, want %v", body, got, items)
	}
	count := ""
	if m.RemainingItemCount != nil {
		count = fmt.Sprint(*m.RemainingItemCount)
	}
	wantCount, _ := metadata["remainingItemCount"].(json.Number)
	if m.APIVersion != text(top["apiVersion"]) || m.Kind != text(top["kind"]) || m.ResourceVersion != text(metadata["resourceVersion"]) ||
		m.Continue != text(metadata["continue"]) || strings.TrimPrefix(count, "-") != strings.TrimPrefix(wantCount.String(), "-") {
		t.Fatalf("%q: got %+v", body, m)
	}
}

func (w *writer) list() []byte {
	var all [][]byte
	for range w.IntN(4) {
		all = append(all, bytes.Clone(w.document("K")))
	}
	w.b = w.b[:0]
	keys := append(w.some("kind", "apiVersion", "metadata", "x"), "items")
	w.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	w.object(keys, func(key string) {
		switch key {
		case "items":
			w.put("[")
			w.b = append(w.b, bytes.Join(all, []byte(","))...)
			w.put("]")
		case "metadata":
			w.object(w.some("resourceVersion", "continue", "remainingItemCount"), func(key string) {
				if key == "remainingItemCount" {
					w.put([]string{"0", "17", "null"}[w.IntN(3)])
				} else {
					w.stringOrNull()
				}
			})
		case "x":
			w.value(3)
		default:
			w.stringOrNull()
		}
	})
	return w.b
}

func TestRandomListsAreWalkedAsTheModelSays(t *testing.T) {
	for seed := range uint64(800) {
		body := newWriter(seed).list()
		if _, err := List(body, func([]byte) error { return nil }); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		checkList(t, body)
	}
}

func FuzzList(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"","remainingItemCount":7},"items":[` + string(sample(f, "pod.json")) + `]}`))
	f.Add([]byte(`{"items":null,"metadata":{}}`))
	for seed := range uint64(20) {
		f.Add(bytes.Clone(newWriter(seed).list()))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkList(t, body) })
}
