package nats

import (
	"slices"
	"strings"
)

// stored says where the stream's subjects leave out some that the template can make. It
// is no reason not to publish: an account can map subjects, so that what is stored has
// another one, and the acknowledgement decides.
func stored(subjects []string, template string) []note {
	if slices.ContainsFunc(subjects, func(filter string) bool { return mayMatch(template, filter, always) }) {
		return nil
	}
	have := strings.Join(subjects, ", ")
	if !storesSome(subjects, template) {
		return []note{{"subjects", have, template, "none of them matches a subject of the sink: unless the account maps subjects, no event is stored"}}
	}
	return []note{{"subjects", have, template, "they leave out subjects of the sink: unless the account maps them, events to these are not stored"}}
}

// storesSome says that some subject that the template can make is one of the stream's.
func storesSome(subjects []string, template string) bool {
	return slices.ContainsFunc(subjects, func(filter string) bool { return mayMatch(template, filter, sometimes) })
}

// mayMatch reports whether subjects made from the template match the filter, where one
// says of a token with placeholders whether it does. No value makes two tokens.
func mayMatch(template, filter string, one func(made, want string) bool) bool {
	made, want := strings.Split(template, "."), strings.Split(filter, ".")
	for i, w := range want {
		switch {
		case w == ">":
			return len(made) > i
		case i >= len(made):
			return false
		case w != "*" && w != made[i] && !one(made[i], w):
			return false
		}
	}
	return len(made) == len(want)
}

// sometimes reports whether a token of the template can become the given one: text
// before its first placeholder and after its last must be there.
func sometimes(made, token string) bool {
	first, last := strings.IndexByte(made, '{'), strings.LastIndexByte(made, '}')
	if first < 0 || last < first {
		return false
	}
	before, after := made[:first], made[last+1:]
	return len(token) > len(before)+len(after) && strings.HasPrefix(token, before) && strings.HasSuffix(token, after)
}

// always reports whether a token can become the given one in all events of a
// configuration, as the cluster's name does: what depends on the object can not.
func always(made, token string) bool {
	for _, differs := range []string{"{namespace}", "{name}", "{type}"} {
		if strings.Contains(made, differs) {
			return false
		}
	}
	return sometimes(made, token)
}
