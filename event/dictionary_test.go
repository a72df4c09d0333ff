package event

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func someBody(n int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"checkout-%d","namespace":"shop"},"spec":{"nodeName":"worker-%d","containers":[{"name":"app","image":"registry.example/checkout:%d"}]}}`, n, n%7, n%3)
}

func someDictionary() *Dictionary {
	var samples []byte
	for n := range 30 {
		samples = append(samples, someBody(n)...)
	}
	return NewDictionary(samples)
}

func TestAPackedObjectIsTheSameWhereverItGoes(t *testing.T) {
	dictionary := someDictionary()
	long := append(bytes.TrimSuffix(someBody(1), []byte("}")), `,"data":"`+strings.Repeat("A long value. ", 20_000)+`"}`...)
	for _, body := range [][]byte{someBody(1000), long} {
		packed := dictionary.Pack(body)
		if len(packed) == 0 || len(packed) > len(body)/2 {
			t.Fatalf("%d bytes are packed into %d", len(body), len(packed))
		}
		o := &Object{Namespace: "shop", Name: "checkout", UID: "u", ResourceVersion: "7", Body: packed, Dictionary: dictionary}
		plain := *o
		plain.Body, plain.Dictionary = body, nil
		if o.Size() != len(body) || plain.Size() != len(body) {
			t.Errorf("the size of %d bytes is %d, and %d packed", len(body), plain.Size(), o.Size())
		}
		for _, room := range []int{0, 10, len(body), 2 * len(body)} {
			dst := append(make([]byte, 0, room+4), "data"...)
			if got, err := o.Unpack(dst); err != nil || !bytes.Equal(got, append([]byte("data"), body...)) {
				t.Errorf("with room for %d bytes, %d are unpacked as %.80s", room, len(body), got)
			}
		}
		for _, change := range []bool{false, true} {
			r := NewResource(ResourceInfo{Cluster: "test", Version: "v1", Resource: "pods", Kind: "Pod", Change: change})
			for _, format := range []Format{Structured, Binary} {
				var got, want Event
				(&Delta{Type: Updated, Resource: r, Object: o, Old: o}).Encode(&got, format, nil)
				(&Delta{Type: Updated, Resource: r, Object: &plain, Old: &plain}).Encode(&want, format, nil)
				if !bytes.Equal(got.Value, want.Value) {
					t.Errorf("format %d: the packed object's event is %.200s", format, got.Value)
				}
			}
		}
	}
}

func TestWhatDoesNotGetSmallerIsNotPacked(t *testing.T) {
	if packed := someDictionary().Pack([]byte("x")); packed != nil {
		t.Errorf("one byte is packed into %d", len(packed))
	}
}

func TestADictionaryIsNamedByItsSamples(t *testing.T) {
	samples := bytes.Repeat(someBody(5), 1000)
	a, b := NewDictionary(samples), NewDictionary(samples[7:])
	if len(a.Bytes()) != MaxDictionary || a.ID() != b.ID() || a.ID() == someDictionary().ID() {
		t.Errorf("%d bytes: %x, the same: %x, others: %x", len(a.Bytes()), a.ID(), b.ID(), someDictionary().ID())
	}
	again := NewDictionary(bytes.Clone(a.Bytes()))
	o := &Object{Body: a.Pack(someBody(9)), Dictionary: again}
	if got, err := o.JSON(); err != nil || !bytes.Equal(got, someBody(9)) {
		t.Errorf("with the stored dictionary it is %s, error %v", got, err)
	}
	if NewDictionary([]byte("short")) != nil {
		t.Error("five bytes make a dictionary")
	}
}

func TestABodyThatIsDamagedIsAnErrorAndNoJSON(t *testing.T) {
	d := someDictionary()
	packed := d.Pack(someBody(3))
	for _, bad := range [][]byte{nil, packed[:len(packed)-1], append([]byte{0xff, 0xff, 0xff, 0xff, 0xff}, packed...)} {
		if got, err := (&Object{Body: bad, Dictionary: d}).Unpack(nil); err == nil {
			t.Errorf("%x is unpacked as %q", bad, got)
		}
	}
}
