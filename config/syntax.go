package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	syntaxLine    = regexp.MustCompile(`^line ([0-9]+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
	tabbed        = regexp.MustCompile(`^ *\t`)
)

// addSyntax notes an error of the YAML parser. Its text has the line, if at all, where the
// parser could not go on, and says nothing of what most often is the cause.
func addSyntax(src *source, data []byte, err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if m := syntaxLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	} else if m := unknownAnchor.FindStringSubmatch(text); m != nil {
		if before, _, ok := bytes.Cut(data, []byte("*"+m[1])); ok {
			line = 1 + bytes.Count(before, []byte("\n"))
		}
	}
	value, want := "YAML syntax: "+text, "valid YAML"
	switch at, open := unclosed(data); {
	case (strings.Contains(text, "cannot start any token") || strings.Contains(text, "tab character")) && indentedByTab(data) > 0:
		line, value, want = indentedByTab(data), "YAML syntax: a tab in the indentation", "spaces"
	case strings.Contains(text, "mapping values are not allowed"):
		want = "a value in quotes where it has a colon and a space, or another indentation"
	case open == '[' || open == '{':
		line, value, want = at, fmt.Sprintf("YAML syntax: %c is not closed", open), map[byte]string{'[': "a ]", '{': "a }"}[open]+" behind it"
	case open != 0:
		line, value, want = at, fmt.Sprintf("YAML syntax: %c is not closed", open), "another one behind it"
	}
	src.reject(line, "", value, want)
}

// indentedByTab is the first line that begins with a tab, or 0.
func indentedByTab(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if tabbed.Match(line) {
			return i + 1
		}
	}
	return 0
}

// unclosed finds the last bracket or quote that is opened and not closed, and its line; 0:
// there is none. It takes the text for YAML as people write it: a bracket counts where a
// value may begin, and inside of another one.
func unclosed(data []byte) (line int, open byte) {
	type opened struct {
		line int
		char byte
	}
	var stack []opened
	begins := true // a value may begin here
	at := 1
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case c == '\n':
			at++
			begins = true
			continue
		case c == '#' && (i == 0 || data[i-1] == ' ' || data[i-1] == '\n' || data[i-1] == '\t'):
			for i+1 < len(data) && data[i+1] != '\n' {
				i++
			}
			continue
		case (c == '"' || c == '\'') && begins:
			end := quoteEnd(data, i)
			if end < 0 {
				return at, c
			}
			at += bytes.Count(data[i:end], []byte("\n"))
			i = end
		case (c == '[' || c == '{') && (begins || len(stack) > 0):
			stack = append(stack, opened{at, c})
		case c == ']' || c == '}':
			if n := len(stack); n > 0 && stack[n-1].char == c-2 { // as ASCII has them
				stack = stack[:n-1]
			}
		}
		begins = c == ' ' && begins || c == ' ' && i > 0 && strings.IndexByte(":-,", data[i-1]) >= 0 || len(stack) > 0 && strings.IndexByte("[{,", c) >= 0
	}
	if n := len(stack); n > 0 {
		return stack[n-1].line, stack[n-1].char
	}
	return 0, 0
}

// quoteEnd is where the quote ends that begins at i, or -1.
func quoteEnd(data []byte, i int) int {
	quote := data[i]
	for i++; i < len(data); i++ {
		switch {
		case data[i] == '\\' && quote == '"':
			i++
		case data[i] == quote && quote == '\'' && i+1 < len(data) && data[i+1] == quote:
			i++
		case data[i] == quote:
			return i
		}
	}
	return -1
}
