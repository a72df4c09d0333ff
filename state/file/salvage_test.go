//go:build unix

package file

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"

	"github.com/kbridge-io/kbridge/event"
)

// secret is a value that is to go.
const secret = "correct horse battery staple"

// secretForms are what it is searched for as.
var secretForms = [][]byte{[]byte(secret), []byte(base64.StdEncoding.EncodeToString([]byte(secret)))}

func hasSecret(text []byte) bool {
	for _, form := range secretForms {
		if bytes.Contains(text, form) {
			return true
		}
	}
	return false
}

// salvage looks for the secret as somebody with the file and time would: in its bytes, and
// in all bodies and dictionaries of all pages, whether anything refers to them or not. It
// returns in how many places it is.
func salvage(file []byte) (places int) {
	codec := newCodec()
	var values [][]byte
	for at := 0; at+headerSize <= len(file); at += pageSize {
		leaves(file[at:], func(key, value []byte) {
			values = append(values, value)
			if len(value) > sealSize && len(key) == 8 {
				if d := event.NewDictionary(value[:len(value)-sealSize]); d != nil && dictionaryKey(d.ID()) == string(key) {
					codec.dictionaries[d.ID()] = d
				}
			}
		})
	}
	for _, value := range values {
		if hasSecret(value) {
			places++
			continue
		}
		if len(value) < sealSize {
			continue
		}
		record := value[:len(value)-sealSize]
		for _, f := range []*fields{{rest: record}, behindFields(record)} {
			if f == nil {
				continue
			}
			if o, err := codec.object(f); err == nil && hasSecret(o.Body) {
				places++
			} else if err == nil && o.Dictionary != nil {
				if body, err := o.JSON(); err == nil && hasSecret(body) {
					places++
				}
			}
		}
	}
	if places == 0 && hasSecret(file) {
		places++
	}
	return places
}

// behindFields are those of the object that a record may have.
func behindFields(record []byte) *fields {
	_, f, err := readBehind(record)
	if err != nil {
		return nil
	}
	return f
}

// leaves calls each with what looks like the elements of a leaf page, of one that is
// inline too.
func leaves(page []byte, each func(key, value []byte)) {
	if len(page) < headerSize || flags(page) != leafPage {
		return
	}
	for i := range count(page) {
		at := headerSize + i*elementSize
		if at+elementSize > len(page) {
			return
		}
		u32 := func(offset int) uint32 { return binary.NativeEndian.Uint32(page[at+offset:]) }
		both, err := part(page, at, u32(4), u32(8), u32(12))
		if err != nil {
			continue
		}
		key, value := both[:u32(8)], both[u32(8):]
		if u32(0) == 1 && len(value) > bucketSize {
			leaves(value[bucketSize:], each)
			continue
		}
		each(key, value)
	}
}
