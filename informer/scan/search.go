package scan

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// leastValue is the least number of bytes that makes the appearance of a Secret's value in a text no accident. White
// space, quotes and what else is blank do not count. "true", "8080" and "admin" are shorter.
const leastValue = 6

// patience bounds the work for one text: all the forms that are looked into have at most so many times its bytes. Four
// encodings on top of each other take sixty times, one of them three or four; a text that takes more has been made to.
const patience = 128

// search finds values of a Secret in texts, however they were encoded on their way there: with the escapes of JSON,
// YAML and URLs, in base64 of any alignment, with line breaks put in, and all of these on top of each other.
//
// It decodes the text rather than encoding the values, since encoders have choices. Decoding guesses: what looks
// like an escape need not be one. So each step is one more form to look into and replaces none. All forms are
// compared without blank bytes, which encoders add and remove, and byte by byte, so that a value is found whatever
// is in front of it.
//
// The zero value finds nothing; reset makes it one that finds manifests.
type search struct {
	text    []byte    // the needles' bytes, one needle behind another
	needles []span    // of text; after prepare sorted, and none begins another
	first   [256]bool // what needles begin with
	longest int       // no text has more bytes that count
	forms   []byte    // a stack of forms of the text that is looked into
	left    int       // what remains of the patience
}

// manifest are keys of a Secret's own manifest. A text that has one of them holds a copy of the Secret, maybe with
// the values of an earlier version, which are not known.
var manifest = []string{"apiVersion", "stringData"}

// reset forgets all values. The texts to come have at most longest bytes in the document.
func (s *search) reset(longest int) {
	s.text, s.needles, s.forms = s.text[:0], s.needles[:0], s.forms[:0]
	s.longest = 3 * longest // a byte that is no UTF-8 is read as U+FFFD
	for _, key := range manifest {
		s.text = append(s.text, key...)
		s.needles = append(s.needles, span{len(s.text) - len(key), len(s.text)})
	}
}

// add makes value one to look for. It is to be found in each form that decoding may give it, too: where a value has
// backslashes or percent signs of its own, decoding does not stop at the value.
func (s *search) add(value []byte) {
	if !s.fits(value) {
		return
	}
	s.addForms(value)
	if utf8.Valid(value) {
		return
	}
	// What is left of it in a string of JSON.
	mark := len(s.forms)
	for _, r := range string(value) {
		s.forms = utf8.AppendRune(s.forms, r)
	}
	s.addForms(s.forms[mark:])
	s.forms = s.forms[:mark]
}

// fits reports whether value is long enough to be looked for, and can stand in a text: no encoding makes it shorter,
// but for blank bytes.
func (s *search) fits(value []byte) bool {
	n := s.count(value)
	return n >= leastValue && n <= s.longest
}

// count returns the number of bytes that count, or one that is larger than longest.
func (s *search) count(value []byte) (n int) {
	for _, c := range value {
		if blank[c] {
			continue
		}
		if n++; n > s.longest {
			break
		}
	}
	return n
}

func (s *search) addForms(value []byte) {
	mark := len(s.forms)
	for left, changed := patience*len(value), true; changed && left >= 0; left -= len(value) {
		s.needle(value)
		from := len(s.forms)
		s.forms, changed = unescape(s.forms, value)
		value = s.forms[from:]
	}
	s.forms = s.forms[:mark]
}

// needle adds one form of a value.
func (s *search) needle(form []byte) {
	from := len(s.text)
	if s.text = squeeze(s.text, form); len(s.text)-from < leastValue {
		s.text = s.text[:from]
		return
	}
	s.needles = append(s.needles, span{from, len(s.text)})
}

// prepare is called when all values have been added.
func (s *search) prepare() {
	slices.SortFunc(s.needles, func(a, b span) int { return bytes.Compare(s.bytes(a), s.bytes(b)) })
	s.first = [256]bool{}
	distinct := s.needles[:0]
	for _, n := range s.needles {
		if last := len(distinct) - 1; last >= 0 && bytes.HasPrefix(s.bytes(n), s.bytes(distinct[last])) {
			continue // where this one is, the other one is
		}
		distinct = append(distinct, n)
		s.first[s.text[n.from]] = true
	}
	s.needles = distinct
}

func (s *search) bytes(n span) []byte { return s.text[n.from:n.to] }

// finds reports whether text, which is no form of itself yet, holds a value or hides a document, or is too tangled
// to tell.
func (s *search) finds(text []byte) bool {
	s.left = patience * len(text)
	return s.look(text, true)
}

// look looks into text and everything that it can be decoded to. whole says that it is a form of the whole text, and
// not of what stands in base64 in it.
func (s *search) look(text []byte, whole bool) bool {
	mark := len(s.forms)
	for changed := true; changed; {
		if s.left -= len(text); s.left < 0 {
			return true
		}
		if s.contains(text) || whole && hides(text) || s.lookIntoBase64(text) || s.lookIntoQuery(text, whole) {
			return true
		}
		from := len(s.forms)
		s.forms, changed = unescape(s.forms, text)
		text = s.forms[from:]
	}
	s.forms = s.forms[:mark]
	return false
}

// contains reports whether a needle stands in text.
func (s *search) contains(text []byte) bool {
	mark := len(s.forms)
	s.forms = squeeze(s.forms, text)
	text, s.forms = s.forms[mark:], s.forms[:mark]
	for i, c := range text {
		if s.first[c] && s.begins(text[i:]) {
			return true
		}
	}
	return false
}

// begins reports whether a needle begins text. That can only be the last one in order that is not behind text, for
// what stands between a needle and a text that it begins is begun by it as well. So many values take hardly longer
// than one.
func (s *search) begins(text []byte) bool {
	i, exact := slices.BinarySearchFunc(s.needles, text, func(n span, text []byte) int { return bytes.Compare(s.bytes(n), text) })
	return exact || i > 0 && bytes.HasPrefix(text, s.bytes(s.needles[i-1]))
}

// lookIntoQuery looks into text once more with spaces where it has plus signs, as a URL's query has them.
func (s *search) lookIntoQuery(text []byte, whole bool) bool {
	if bytes.IndexByte(text, '+') < 0 {
		return false
	}
	mark := len(s.forms)
	for _, c := range text {
		if c == '+' {
			c = ' '
		}
		s.forms = append(s.forms, c)
	}
	found := s.look(s.forms[mark:], whole)
	s.forms = s.forms[:mark]
	return found
}

// leastRun is what leastValue bytes take in base64.
const leastRun = (leastValue*8 + 5) / 6

// lookIntoBase64 decodes what may be base64 in text. It may begin with any of four neighbouring characters, since it
// need not be set off from what is in front of it.
func (s *search) lookIntoBase64(text []byte) bool {
	for i := 0; i < len(text); i++ {
		if sextets[text[i]] == noSextet {
			continue
		}
		from := i
		digits := 0
		for ; i < len(text) && (sextets[text[i]] != noSextet || blank[text[i]]); i++ {
			if sextets[text[i]] != noSextet {
				digits++
			}
		}
		for skip := 0; skip < 4 && digits-skip >= leastRun; skip++ {
			mark := len(s.forms)
			s.forms = decodeBase64(s.forms, text[from:i], skip)
			found := s.look(s.forms[mark:], false)
			if s.forms = s.forms[:mark]; found {
				return true
			}
		}
	}
	return false
}
