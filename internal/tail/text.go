package tail

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns s with everything that is not to reach a terminal escaped:
// control characters, those that change the direction of text or take no room, and
// bytes that are no UTF-8.
func Printable(s string) string {
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return escaped(s)
		}
	}
	return s
}

func escaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + string("0123456789abcdef"[s[i]>>4]) + string("0123456789abcdef"[s[i]&15]))
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		i += size
	}
	return b.String()
}

// columns is how many columns of a terminal s takes, or a few more: where it is in
// doubt a character counts as a wide one.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	// From the CJK radicals on most characters are wide, and so are Hangul's initial letters.
	if r >= 0x2e80 || 0x1100 <= r && r <= 0x115f {
		return 2
	}
	return 1
}

// clip cuts s to at most so many columns, the last one an ellipsis where it was cut.
func clip(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	if most <= 0 {
		return ""
	}
	n := 0
	for i, r := range s {
		if n += runeColumns(r); n > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}
