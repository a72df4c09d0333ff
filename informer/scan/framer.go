package scan

// End returns the length of the first JSON document in buf, with the white space in front of it, or -1 where buf
// does not hold all of it. For a buffer that grows, use a Framer.
func End(buf []byte) int {
	var f Framer
	return f.End(buf)
}

// Framer finds the end of a document in a buffer that grows, and looks at each byte once however often it is
// asked. It is for streams whose server does not write a document a line. The zero value is ready; it is not safe
// for concurrent use.
//
// It counts brackets and checks nothing else: whoever reads the document has to. A document that is neither an
// object nor an array nor a string ends in front of the next byte that can not be part of a number or a literal,
// so it needs one byte more; a byte that can begin no document is one by itself.
type Framer struct {
	at    int // the next byte to look at
	depth int
	state frameState
}

type frameState uint8

const (
	beforeDocument frameState = iota
	betweenStrings
	inString
	inScalar
)

// End is given the bytes from the start of a document on, each time at least those of the time before. It returns
// the document's length, with the white space in front of it, or -1 where it goes on behind buf. After a length
// the next call begins another document.
func (f *Framer) End(buf []byte) int {
	i := f.at
	for i < len(buf) {
		switch f.state {
		case beforeDocument:
			switch class[buf[i]] {
			case classSpace:
			case classQuote:
				f.state = inString
			case classOpen:
				f.state, f.depth = betweenStrings, 1
			case classOther:
				f.state = inScalar
			default:
				return f.found(i + 1)
			}
			i++
		case inScalar:
			if class[buf[i]] != classOther {
				return f.found(i)
			}
			i++
		case inString:
			if i = special(buf, i); i == len(buf) {
				break
			}
			switch buf[i] {
			case '\\':
				i++ // the escaped byte, which may not be there yet
			case '"':
				if f.depth == 0 {
					return f.found(i + 1)
				}
				f.state = betweenStrings
			}
			i++
		case betweenStrings:
			switch class[buf[i]] {
			case classQuote:
				f.state = inString
			case classOpen:
				f.depth++
			case classClose:
				if f.depth--; f.depth == 0 {
					return f.found(i + 1)
				}
			}
			i++
		}
	}
	f.at = i
	return -1
}

// Reset forgets a document that was not finished.
func (f *Framer) Reset() { *f = Framer{} }

func (f *Framer) found(n int) int {
	f.Reset()
	return n
}

const (
	classOther = iota // what numbers and literals are made of, and what has no place in JSON
	classSpace
	classQuote
	classOpen
	classClose
	classSeparator
)

var class = [256]uint8{
	' ': classSpace, '\t': classSpace, '\n': classSpace, '\r': classSpace,
	'"': classQuote,
	'{': classOpen, '[': classOpen,
	'}': classClose, ']': classClose,
	':': classSeparator, ',': classSeparator,
}
