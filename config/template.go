package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// placeholders are what a template may have in braces.
var placeholders = []string{"cluster", "group", "version", "resource", "kind", "namespace", "name", "type"}

// checkTemplate checks the braces of a template and what is in them.
func checkTemplate(s string) error {
	for rest := s; ; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			return nil
		}
		if rest[i] == '}' {
			return errors.New("} without {")
		}
		name, after, ok := strings.Cut(rest[i+1:], "}")
		if !ok || strings.Contains(name, "{") {
			return errors.New("{ without }")
		}
		if !slices.Contains(placeholders, name) {
			return fmt.Errorf("%s is unknown, it may be %s", show("{"+name+"}"), oneOf(placeholders))
		}
		rest = after
	}
}

// checkSubjectTemplate checks that every subject made from the template is one
// that NATS can publish to.
func checkSubjectTemplate(s string) error {
	if err := checkTemplate(s); err != nil {
		return err
	}
	return checkPublished(s)
}

// checkSubject checks a subject that NATS can publish to, where a template would
// not be filled in.
func checkSubject(s string) error {
	if strings.ContainsAny(s, "{}") {
		return errors.New("this is no template, braces are not allowed")
	}
	return checkPublished(s)
}

func checkPublished(s string) error {
	if strings.HasPrefix(s, "$") {
		return errors.New("subjects that begin with $ belong to the server")
	}
	if strings.ContainsAny(s, "*>") {
		return errors.New("wildcards cannot be published to")
	}
	return checkTokens(s)
}

// checkSubjectPattern checks a subject that a stream listens on.
func checkSubjectPattern(s string) error {
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		if strings.ContainsAny(t, "*>") && t != "*" && (t != ">" || i < len(tokens)-1) {
			return errors.New("* must be a whole token, > the whole last token")
		}
	}
	return checkTokens(s)
}

// checkTopicTemplate checks that topics made from the template are ones that Kafka
// can have. How long they become is only known with the event.
func checkTopicTemplate(s string) error {
	if err := checkTemplate(s); err != nil {
		return err
	}
	fixed := placeholder.ReplaceAllString(s, "")
	switch {
	case s == "":
		return errors.New("a topic has a name")
	case s == "." || s == "..":
		return errors.New(". and .. are no names")
	case len(fixed) > maxTopic:
		return fmt.Errorf("a topic's name has at most %d characters", maxTopic)
	case !topicName.MatchString(fixed):
		return errors.New("a topic's name has letters, digits, '.', '_' and '-'")
	}
	return nil
}

// maxTopic is Kafka's limit.
const maxTopic = 249

var (
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
	topicName   = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)
)

func checkTokens(s string) error {
	if slices.Contains(strings.Split(s, "."), "") {
		return errors.New("a token is empty")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar }) {
		return errors.New("spaces and control characters are not allowed")
	}
	return nil
}

// mayCover reports whether the pattern may match a subject made from the
// template. Where a literal of the pattern meets a placeholder, it may.
func mayCover(pattern, template string) bool {
	pat, tem := strings.Split(pattern, "."), strings.Split(template, ".")
	for i, p := range pat {
		if i >= len(tem) {
			return false
		}
		if p == ">" {
			return true
		}
		if p != "*" && !mayEqual(p, tem[i]) {
			return false
		}
	}
	return len(pat) == len(tem)
}

// mayEqual reports whether a token of a template may come out as the literal:
// what stands before its first and after its last placeholder must agree.
func mayEqual(literal, token string) bool {
	first, last := strings.IndexByte(token, '{'), strings.LastIndexByte(token, '}')
	if first < 0 {
		return literal == token
	}
	before, after := token[:first], token[last+1:]
	return len(literal) > len(before)+len(after) && strings.HasPrefix(literal, before) && strings.HasSuffix(literal, after)
}
