package scan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// The forms of a text: what it may stand for, by each decoding that search knows, and what of it is compared.

// decodeBase64 appends what the characters of src say but for the first skip, up to the first one that is of neither
// alphabet nor blank.
func decodeBase64(dst, src []byte, skip int) []byte {
	var bits uint32
	have := 0
	for _, c := range src {
		v := sextets[c]
		switch {
		case v == noSextet && !blank[c]:
			return dst
		case v == noSextet:
			continue
		case skip > 0:
			skip--
			continue
		}
		bits = bits<<6 | uint32(v)
		if have += 6; have >= 8 {
			have -= 8
			dst = append(dst, byte(bits>>have))
		}
	}
	return dst
}

const noSextet = 0xff

// sextets has what the characters of base64 stand for, in both alphabets.
var sextets = func() (t [256]uint8) {
	for i := range t {
		t[i] = noSextet
	}
	for i, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		t[c] = uint8(i)
	}
	t['-'], t['_'] = t['+'], t['/']
	return t
}()

// blank are the bytes that do not count: white space and control characters, which line wrapping and indentation add
// and remove, and what quotes and escapes.
var blank = func() (t [256]bool) {
	for c := range byte(' ' + 1) {
		t[c] = true
	}
	t['"'], t['\''], t['\\'], t[0x7f] = true, true, true, true
	return t
}()

// squeeze appends src without blank bytes, and without U+FFFD, of which some readers put one in place of an invalid
// byte and some one in place of several.
func squeeze(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case c == '\xef' && i+2 < len(src) && src[i+1] == '\xbf' && src[i+2] == '\xbd':
			i += 2
		case !blank[c]:
			dst = append(dst, c)
		}
	}
	return dst
}

// unescape appends src with what looks like an escape of JSON, YAML or URLs decoded, and reports whether anything
// did.
func unescape(dst, src []byte) (out []byte, changed bool) {
	if bytes.IndexByte(src, '\\') < 0 && bytes.IndexByte(src, '%') < 0 {
		return dst, false
	}
	for i := 0; i < len(src); {
		n := 0
		switch src[i] {
		case '%':
			dst, n = percent(dst, src[i:])
		case '\\':
			dst, n = backslash(dst, src[i:])
		}
		if n > 0 {
			changed = true
			i += n
			continue
		}
		dst = append(dst, src[i])
		i++
	}
	return dst, changed
}

// percent appends what the percent sign at the start of b and the digits behind it stand for, and returns how many
// bytes that takes; 0 where they stand for nothing.
func percent(dst, b []byte) ([]byte, int) {
	c, is := hexNumber(b[1:], 2)
	if !is {
		return dst, 0
	}
	return append(dst, byte(c)), 3
}

// backslash is percent for a backslash.
func backslash(dst, b []byte) ([]byte, int) {
	if len(b) < 2 {
		return dst, 0
	}
	switch c := b[1]; c {
	case '"', '\'', '\\', '/':
		return append(dst, c), 2
	case 'n', 'r', 't', 'b', 'f', 'v', 'a', 'e', '0':
		return append(dst, '\n'), 2 // all of them are blank
	case '_':
		return append(dst, "\u00a0"...), 2
	case 'N':
		return append(dst, "\u0085"...), 2
	case 'L':
		return append(dst, "\u2028"...), 2
	case 'P':
		return append(dst, "\u2029"...), 2
	case 'x':
		if r, is := hexNumber(b[2:], 2); is {
			return append(dst, byte(r)), 4
		}
	case 'U':
		if r, is := hexNumber(b[2:], 8); is {
			return utf8.AppendRune(dst, r), 10
		}
	case 'u':
		if r, is := hexNumber(b[2:], 4); is {
			return codeUnits(dst, b, r)
		}
	}
	return dst, 0
}

// codeUnits appends the character of \uXXXX at the start of b, which is r, or that of a surrogate pair.
func codeUnits(dst, b []byte, r rune) ([]byte, int) {
	if utf16.IsSurrogate(r) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if low, is := hexNumber(b[8:], 4); is {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return utf8.AppendRune(dst, pair), 12
			}
		}
	}
	return utf8.AppendRune(dst, r), 6
}

// hexNumber reads n hexadecimal digits.
func hexNumber(b []byte, n int) (r rune, is bool) {
	if len(b) < n {
		return 0, false
	}
	for _, c := range b[:n] {
		if hex[c] < 0 {
			return 0, false
		}
		r = r<<4 | rune(hex[c])
	}
	return r, true
}
