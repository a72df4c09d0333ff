package scan

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hides reports whether text is a document, or can hide one: it begins as JSON or as something compressed, or a word
// of it does so in base64. What such a document holds is not looked into: it may be an earlier version of the Secret,
// whose values are not known.
func hides(text []byte) bool {
	if opens(text, false) {
		return true
	}
	inWord := false
	for i, c := range text {
		is := sextets[c] != noSextet
		if is && !inWord && armoured(text[i:], 3) {
			return true
		}
		inWord = is
	}
	return false
}

// armoured reports whether text begins with base64 of a document, at most depth times over.
func armoured(text []byte, depth int) bool {
	var room [48]byte
	head := decodeBase64(room[:0], text[:min(len(text), len(room)*8/6)], 0)
	return len(head) >= leastValue && (opens(head, true) || depth > 1 && armoured(head, depth-1))
}

// opens reports whether text begins as JSON or as something compressed, maybe behind white space, quotes, byte order
// marks and the like. Where it is to be certain a lone brace is not enough: what is decoded by guess may begin with
// any byte.
func opens(text []byte, certain bool) bool {
	for len(text) > 0 {
		if compressed(text) {
			return true
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '{' || r == '[':
			return !certain || opensJSON(text)
		case unicode.IsGraphic(r) && !unicode.IsSpace(r) && !strings.ContainsRune("\"'`\\", r):
			return false
		}
		text = text[n:]
	}
	return false
}

// opensJSON reports whether text, which begins with a brace or a bracket, goes on as JSON does, and as text.
func opensJSON(text []byte) bool {
	next := `"}`
	if text[0] == '[' {
		next = `"{[]-0123456789tfn`
	}
	text = bytes.TrimLeft(text[1:], " \t\r\n\\")
	if len(text) == 0 || strings.IndexByte(next, text[0]) < 0 {
		return false
	}
	for text = text[:min(len(text), 12)]; utf8.FullRune(text); {
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError && n == 1 || r < ' ' && !isSpace(byte(r)) {
			return false
		}
		text = text[n:]
	}
	return true
}

// magics are what compressed data begins with: gzip, zip, zstd, bzip2 and xz, each as bytes and, where it is no valid
// UTF-8, as a string of JSON may have it, with U+FFFD or with a character for each byte.
var magics = []string{
	"\x1f\x8b\x08", "\x1f\ufffd", "\x1f\u008b",
	"PK\x03\x04",
	"\x28\xb5\x2f\xfd", "(\ufffd/\ufffd", "(\u00b5/\u00fd",
	"BZh",
	"\xfd7zXZ", "\ufffd7zXZ", "\u00fd7zXZ",
}

func compressed(text []byte) bool {
	for _, magic := range magics {
		if len(text) >= len(magic) && string(text[:len(magic)]) == magic {
			return true
		}
	}
	return false
}
