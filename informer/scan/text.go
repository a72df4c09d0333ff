package scan

import (
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Strings are handled raw: the checked bytes between the quotes, escapes and all. They are read as encoding/json
// reads them, where an invalid byte and a lone surrogate are each U+FFFD.

// plain reports whether raw stands for itself: ASCII without escapes.
func plain(raw []byte) bool {
	for _, c := range raw {
		if c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// appendText appends what raw stands for.
func appendText(dst, raw []byte) []byte {
	if plain(raw) {
		return append(dst, raw...)
	}
	for len(raw) > 0 {
		r, n := decodeRune(raw)
		dst = utf8.AppendRune(dst, r)
		raw = raw[n:]
	}
	return dst
}

// text returns what raw stands for.
func text(raw []byte) string {
	if plain(raw) {
		return string(raw)
	}
	return string(appendText(make([]byte, 0, len(raw)), raw))
}

// isText reports whether raw stands for s, which is valid UTF-8.
func isText(raw []byte, s string) bool {
	if plain(raw) {
		return string(raw) == s
	}
	for len(raw) > 0 {
		r, n := decodeRune(raw)
		want, size := utf8.DecodeRuneInString(s)
		if r != want || size == 0 {
			return false
		}
		raw, s = raw[n:], s[size:]
	}
	return s == ""
}

// decodeRune returns the first character of raw, which is not empty, and the number of bytes it takes.
func decodeRune(raw []byte) (rune, int) {
	if raw[0] != '\\' {
		return utf8.DecodeRune(raw) // U+FFFD and 1 for an invalid byte
	}
	switch raw[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := codeUnit(raw[2:])
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if pair := utf16.DecodeRune(r, codeUnit(raw[8:])); pair != unicode.ReplacementChar {
				return pair, 12
			}
		}
		return unicode.ReplacementChar, 6
	}
	return rune(raw[1]), 2
}

func codeUnit(digits []byte) (r rune) {
	for _, c := range digits[:4] {
		r = r<<4 | rune(hex[c])
	}
	return r
}
