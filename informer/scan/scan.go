// Package scan reads the JSON of Kubernetes objects in one pass over its bytes.
//
// It owns what happens between a frame of the API server and the bytes that kbridge keeps: splitting watch frames
// and list bodies, reading the few metadata fields that are needed, leaving out the paths that the configuration
// drops, and redacting Secrets. It knows nothing of requests, stores or events, and it never builds a map.
//
// What it accepts is what encoding/json accepts, to the byte: the same grammar, the same nesting limit, the same
// reading of escapes, of invalid UTF-8 and of duplicate keys (the last one wins). What it keeps it copies unread,
// so numbers, key order and escapes of the document stay as the server wrote them; bytes that are no UTF-8, which
// many parsers refuse, are replaced.
//
// The files, in the order of a document's way: framer.go finds its end in a stream, header.go tells what it is,
// watch.go and list.go split it, object.go walks it by the Rules of rules.go, skip.go passes over what is of no
// interest, text.go reads strings. Of a Secret, secret.go takes out the annotations that hold a copy: search.go finds
// its values in them, in each of the forms that forms.go decodes, and hidden.go documents that may have them.
package scan

import "strconv"

// Error says where a document is not what was expected. It never holds a part of the document, which may be a
// secret.
type Error struct {
	Path   string // of the field, where it is one of those that are read; "" otherwise
	Offset int    // in bytes from the start of the slice that was handed in
	Want   string // what was expected there
}

func (e *Error) Error() string {
	at := "offset " + strconv.Itoa(e.Offset)
	if e.Path != "" {
		at = e.Path + " at " + at
	}
	return at + ": expected " + e.Want
}

// fault is what the inner loops return instead of an error: it fits a register and nothing is built unless the
// document is wrong.
type fault uint8

const (
	ok fault = iota
	wantValue
	wantObject
	wantKey
	wantColon
	wantCommaOrBrace
	wantCommaOrBracket
	wantDigit
	wantLiteral
	wantQuote
	wantNoControl
	wantEscape
	wantHex
	wantShallow
	wantEnd
	wantString
	wantInteger
	wantArray
	wantType
	wantObjectKey
	wantOneItems
	wantKind
)

var wants = [...]string{
	wantValue:          "a value",
	wantObject:         "an object",
	wantKey:            "a key in quotes",
	wantColon:          "a colon",
	wantCommaOrBrace:   "a comma or a closing brace",
	wantCommaOrBracket: "a comma or a closing bracket",
	wantDigit:          "a digit",
	wantLiteral:        "true, false or null",
	wantQuote:          "a closing quote",
	wantNoControl:      "an escape in place of a control character",
	wantEscape:         "one of the escapes of JSON",
	wantHex:            "four hexadecimal digits",
	wantShallow:        "at most 10000 levels",
	wantEnd:            "the end of the document",
	wantString:         "a string",
	wantInteger:        "an integer",
	wantArray:          "an array",
	wantType:           "a member type",
	wantObjectKey:      "a member object",
	wantOneItems:       "items only once",
	wantKind:           "the kind that the rules are for",
}

func newError(path string, offset int, f fault) error {
	return &Error{Path: path, Offset: offset, Want: wants[f]}
}

// span is a range of the document. The zero span stands for a field that is absent.
type span struct{ from, to int }
