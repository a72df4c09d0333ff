package scan

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is encoding/json's limit of containers in containers.
const maxDepth = 10000

// spaces returns the offset of the first byte from i on that is not white space, which may be len(b).
func spaces(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && isSpace(b[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// special returns the offset of the first quote, backslash or control character from i on, or len(b).
//
// It looks at eight bytes at a time. In each of the three terms the lowest bit that is set is a true hit (a borrow
// only spreads upwards), and the lowest is the one that is used.
func special(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote := x ^ '"'*ones
		slash := x ^ '\\'*ones
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			break
		}
	}
	return i
}

// str returns the offset behind the closing quote of the string whose first byte is at i.
func str(b []byte, i int) (int, fault) {
	for {
		i = special(b, i)
		if i >= len(b) {
			return i, wantQuote
		}
		if b[i] == '"' {
			return i + 1, ok
		}
		if b[i] != '\\' {
			return i, wantNoControl
		}
		var f fault
		if i, f = escape(b, i); f != ok {
			return i, f
		}
	}
}

// escape returns the offset behind the escape that begins at i.
func escape(b []byte, i int) (int, fault) {
	if i+1 >= len(b) {
		return len(b), wantEscape
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, ok
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if j >= len(b) || hex[b[j]] < 0 {
				return j, wantHex
			}
		}
		return i + 6, ok
	}
	return i + 1, wantEscape
}

// hex holds the value of each hexadecimal digit, and -1 for every other byte.
var hex = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i := range 10 {
		t['0'+i] = int8(i)
	}
	for i := range 6 {
		t['a'+i], t['A'+i] = int8(10+i), int8(10+i)
	}
	return t
}()

// number returns the offset behind the number that begins at i with a digit or a minus sign.
func number(b []byte, i int) (int, fault) {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && isDigit(b[i]):
		i = digits(b, i)
	default:
		return i, wantDigit
	}
	if i < len(b) && b[i] == '.' {
		i++
		if i >= len(b) || !isDigit(b[i]) {
			return i, wantDigit
		}
		i = digits(b, i)
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i >= len(b) || !isDigit(b[i]) {
			return i, wantDigit
		}
		i = digits(b, i)
	}
	return i, ok
}

func isDigit(c byte) bool { return c-'0' <= 9 }

func digits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// literal returns the offset behind true, false or null at i.
func literal(b []byte, i int) (int, fault) {
	rest := b[i:]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true", len(rest) >= 4 && string(rest[:4]) == "null":
		return i + 4, ok
	case len(rest) >= 5 && string(rest[:5]) == "false":
		return i + 5, ok
	}
	return i, wantLiteral
}

// skip returns the offset behind the value at i, having checked all of it. depth is the number of containers
// around the value. It keeps its own stack, a bit for each open container, and allocates only where a value is
// nested deeper than 64.
func skip(b []byte, i, depth int) (int, fault) {
	var (
		kinds uint64   // the lowest bit is the innermost container: 1 for an object
		outer []uint64 // full words of kinds, the innermost last
		open  int
		f     fault
	)
value:
	if i >= len(b) {
		return i, wantValue
	}
	switch c := b[i]; c {
	case '"':
		if i, f = str(b, i+1); f != ok {
			return i, f
		}
	case '{', '[':
		if depth+open == maxDepth {
			return i, wantShallow
		}
		i = spaces(b, i+1)
		if i < len(b) && b[i] == c+2 { // '}' and ']' follow their openers at a distance of two
			i++
			break
		}
		if open&63 == 0 && open != 0 {
			outer = append(outer, kinds)
		}
		open++
		if kinds <<= 1; c == '[' {
			goto value
		}
		kinds |= 1
		goto key
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if i, f = number(b, i); f != ok {
			return i, f
		}
	case 't', 'f', 'n':
		if i, f = literal(b, i); f != ok {
			return i, f
		}
	default:
		return i, wantValue
	}
after:
	if open == 0 {
		return i, ok
	}
	i = spaces(b, i)
	if kinds&1 != 0 {
		switch {
		case i < len(b) && b[i] == ',':
			i = spaces(b, i+1)
			goto key
		case i >= len(b) || b[i] != '}':
			return i, wantCommaOrBrace
		}
	} else {
		switch {
		case i < len(b) && b[i] == ',':
			i = spaces(b, i+1)
			goto value
		case i >= len(b) || b[i] != ']':
			return i, wantCommaOrBracket
		}
	}
	i++
	open--
	if kinds >>= 1; open&63 == 0 && open != 0 {
		kinds = outer[len(outer)-1]
		outer = outer[:len(outer)-1]
	}
	goto after
key:
	if i >= len(b) || b[i] != '"' {
		return i, wantKey
	}
	if i, f = str(b, i+1); f != ok {
		return i, f
	}
	i = spaces(b, i)
	if i >= len(b) || b[i] != ':' {
		return i, wantColon
	}
	i = spaces(b, i+1)
	goto value
}

// first returns the offset of the first key or value in the container that opens at i, or, with more false, the
// offset behind the closing byte of an empty one.
func first(b []byte, i, depth int) (next int, more bool, f fault) {
	if depth == maxDepth {
		return i, false, wantShallow
	}
	closing := b[i] + 2
	i = spaces(b, i+1)
	if i < len(b) && b[i] == closing {
		return i + 1, false, ok
	}
	return i, true, ok
}

// key returns the key at i, without its quotes and with its escapes, and the offset of its value.
func key(b []byte, i int) (raw []byte, value int, f fault) {
	if i >= len(b) || b[i] != '"' {
		return nil, i, wantKey
	}
	from := i + 1
	if i, f = str(b, from); f != ok {
		return nil, i, f
	}
	raw = b[from : i-1]
	i = spaces(b, i)
	if i >= len(b) || b[i] != ':' {
		return nil, i, wantColon
	}
	return raw, spaces(b, i+1), ok
}

// following returns, from the offset behind a value, the offset of the next key or value in its container, or,
// with more false, the offset behind the closing byte.
func following(b []byte, i int, closing byte) (next int, more bool, f fault) {
	i = spaces(b, i)
	switch {
	case i < len(b) && b[i] == ',':
		return spaces(b, i+1), true, ok
	case i < len(b) && b[i] == closing:
		return i + 1, false, ok
	case closing == '}':
		return i, false, wantCommaOrBrace
	}
	return i, false, wantCommaOrBracket
}
