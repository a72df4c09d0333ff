package event

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/internal/spill/spilltest"
)

func TestAnObjectWhoseBodyIsPutAsideSaysTheSame(t *testing.T) {
	f := spilltest.Open(t)
	dictionary := someDictionary()
	plain := &Object{UID: "u", ResourceVersion: "7", Body: someBody(3)}
	plain.Identify("shop/checkout", "shop", "checkout")
	packed := *plain
	packed.Body, packed.Dictionary = dictionary.Pack(plain.Body), dictionary
	for _, o := range []*Object{plain, &packed} {
		aside := o.PutAside(f)
		if aside == o || aside.Body != nil || o.Body == nil {
			t.Fatalf("it was not put aside: %+v", aside)
		}
		got, err := aside.JSON()
		if err != nil || !bytes.Equal(got, plain.Body) {
			t.Errorf("aside it is %s, error %v", got, err)
		}
		kept, err := aside.Packed(nil)
		if err != nil || !bytes.Equal(kept, o.Body) || aside.Kept() != len(o.Body) {
			t.Errorf("%q is kept, error %v, %d bytes", kept, err, aside.Kept())
		}
		if aside.Size() != len(plain.Body) || aside.Key() != "shop/checkout" || !aside.Same(plain) {
			t.Errorf("it is %s with %d bytes", aside.Key(), aside.Size())
		}
		if again := aside.PutAside(f); again != aside {
			t.Error("it was put aside twice")
		}
	}
	if o := plain.PutAside(nil); o != plain {
		t.Error("without a file it is another one")
	}
}

func TestAnEventWhoseBodyCanNotBeReadSaysWhatIsKnownAndThatItIsNotAll(t *testing.T) {
	f := spilltest.Open(t)
	o := (&Object{Namespace: "shop", Name: "checkout", UID: "u", ResourceVersion: "7", Body: someBody(3)}).PutAside(f)
	for o.Aside.Len() > 0 && f.Size() < 1<<20 { // until its segment is on the disk
		f.Put(make([]byte, 100<<10))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []bool{false, true} {
		r := NewResource(ResourceInfo{Cluster: "test", Version: "v1", Resource: "pods", Kind: "Pod", Change: change})
		for _, format := range []Format{Structured, Binary} {
			var e Event
			d := Delta{Type: Deleted, Resource: r, Object: o, Old: o, Inferred: true, Time: time.Unix(0, 0)}
			if err := d.Encode(&e, format, nil); err == nil || !e.Truncated {
				t.Fatalf("no error, truncated %t", e.Truncated)
			}
			text := string(e.AppendStructured(nil))
			for _, part := range []string{`"id":"u.deleted"`, `"truncated":true`, `"inferred":true`, `"kind":"Pod","metadata":{"name":"checkout","namespace":"shop","uid":"u"}`} {
				if !strings.Contains(text, part) {
					t.Errorf("change %t, format %d: %s is not in %s", change, format, part, text)
				}
			}
		}
	}
}
