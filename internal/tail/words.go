package tail

import (
	"fmt"
	"slices"
	"strings"
)

// words are what a filter in words can name, and the event's attribute of each.
var words = []string{"cluster", "entry", "group", "kind", "name", "namespace", "resource", "type"}

// IsWords says that a filter is one in words, as in kind=Pod, and not one of subjects or
// topics, in which there is no equals sign.
func IsWords(filter string) bool { return strings.Contains(filter, "=") }

// Match returns what picks the events that fit each word of a filter, such as
// "kind=Deployment namespace=shop,billing type=deleted". Values are compared whole, without
// regard to upper and lower case, and of several one has to fit. An error says which word
// is none.
func Match(filter string) (func(*Event) bool, error) {
	wanted := map[string][]string{}
	for word := range strings.FieldsSeq(filter) {
		name, values, ok := strings.Cut(word, "=")
		if !ok || !slices.Contains(words, name) {
			return nil, fmt.Errorf("%q is none of %s with a value", word, strings.Join(words, ", "))
		}
		if _, twice := wanted[name]; twice {
			return nil, fmt.Errorf("%s is there twice: %s=a,b is either", name, name)
		}
		for value := range strings.SplitSeq(values, ",") {
			if value == "core" && name == "group" || value == "_" {
				value = "" // as subjects have it
			}
			wanted[name] = append(wanted[name], strings.ToLower(value))
		}
	}
	return func(e *Event) bool {
		for name, values := range wanted {
			has := e.Attribute(name)
			if name == "type" {
				has = e.typeName()
				if e.marker() != "" {
					has = e.marker()
				}
			}
			if !slices.Contains(values, strings.ToLower(has)) {
				return false
			}
		}
		return true
	}, nil
}
