package config

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Error is everything that is wrong with a configuration.
type Error struct {
	File     string
	Problems []Problem // by line
}

// Problem is one thing that is wrong.
type Problem struct {
	Path  string // such as resources[1].namespaces[0]; empty for the file as a whole
	Line  int    // from 1; 0 where there is no file
	Value string // what is there, as it is shown: quoted if a string, never with a secret
	Want  string // what was expected
}

// Error returns one line a problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		where := e.File
		if p.Line > 0 {
			where += ":" + strconv.Itoa(p.Line)
		}
		lines[i] = where + ": " + p.String()
	}
	return strings.Join(lines, "\n")
}

// didYouMean begins what was expected where that is but a guess.
const didYouMean = "did you mean "

// String returns the problem without file and line.
func (p Problem) String() string {
	s := p.Value + ", expected " + p.Want
	if strings.HasPrefix(p.Want, didYouMean) {
		s = p.Value + ", " + p.Want
	}
	if p.Path == "" {
		return s
	}
	return p.Path + ": " + s
}

// source knows where in the file each path stands, and gathers problems. Its
// zero value is a configuration without a file.
type source struct {
	lines    map[string]int  // by path
	wrong    map[string]bool // paths of which decoding found the form wrong
	problems []Problem
}

// add notes a problem. value is shown as it is, see show.
func (s *source) add(path, value, want string) {
	s.addAt(s.line(path), path, value, want)
}

func (s *source) addAt(line int, path, value, want string) {
	s.problems = append(s.problems, Problem{path, line, printable(value), printable(want)})
}

// reject notes a problem of form: what the path then says is a default and not
// what the user meant, so no more is to be said about it.
func (s *source) reject(line int, path, value, want string) {
	s.wrong[path] = true
	s.addAt(line, path, value, want)
}

// line returns the line of the path, or of what holds it where the path is
// absent.
func (s *source) line(path string) int {
	for {
		if n, ok := s.lines[path]; ok || path == "" {
			return n
		}
		path = parent(path)
	}
}

// rejected reports whether the path, or what holds it, was.
func (s *source) rejected(path string) bool {
	for ; path != ""; path = parent(path) {
		if s.wrong[path] {
			return true
		}
	}
	return s.wrong[""]
}

// rejectedIn reports whether the path or anything in it was rejected.
func (s *source) rejectedIn(path string) bool {
	for p := range s.wrong {
		if rest, ok := strings.CutPrefix(p, path); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return s.rejected(path)
}

// err returns the problems by line, or nil without one.
func (s *source) err(file string) error {
	if len(s.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(s.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{File: file, Problems: s.problems}
}

// parent cuts the last key or index off a path.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// child appends a key to a path.
func child(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		// No path of ours: quoted, and without the signs that parent looks for.
		return path + "[" + strings.NewReplacer(".", "_", "[", "_").Replace(show(key)) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func item(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// show makes a value printable: quoted, cut where it is long, and without what
// stands before an @, which may be a password in a URL.
func show(s string) string {
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(s, "://")
		if !ok || !plainKey.MatchString(scheme) {
			scheme = ""
		} else {
			scheme += "://"
		}
		s = scheme + "***" + s[i:]
	}
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// shown is show for a value that may be left out.
func shown(s string) string {
	if s == "" {
		return "missing"
	}
	return show(s)
}

// printable keeps a text on its line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// oneOf lists words in a sentence.
func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}
