package tail

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// change is one path at which two states of an object differ.
type change struct {
	path     string
	old, now any // absent where the path is not in that state
}

// absent is the value of what is not there; null is nil.
var absent any = missing{}

type missing struct{}

// hidden are paths whose changes say nothing: they change with every other change.
var hidden = []string{"metadata.resourceVersion", "metadata.managedFields", "metadata.generation", "status.observedGeneration"}

// keyed are maps that mean the same empty and absent.
var keyed = []string{"metadata.annotations", "metadata.labels"}

// changes compares two states of an object. What somebody asked for comes first,
// then metadata, then status.
func changes(before, after []byte) ([]change, error) {
	old, err := decodeJSON(before)
	if err != nil {
		return nil, err
	}
	now, err := decodeJSON(after)
	if err != nil {
		return nil, err
	}
	var c comparison
	c.compare("", old, now)
	slices.SortStableFunc(c.found, func(a, b change) int {
		return cmp.Or(cmp.Compare(rank(a.path), rank(b.path)), strings.Compare(a.path, b.path))
	})
	return c.found, nil
}

func decodeJSON(data []byte) (any, error) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("compare states: %w", err)
	}
	return v, nil
}

func rank(path string) int {
	switch first, _, _ := strings.Cut(path, "."); first {
	case "metadata":
		return 1
	case "status":
		return 2
	default:
		return 0
	}
}

type comparison struct{ found []change }

func (c *comparison) compare(path string, old, now any) {
	switch o := old.(type) {
	case map[string]any:
		if n, ok := now.(map[string]any); ok {
			c.compareMaps(path, o, n)
			return
		}
	case []any:
		if n, ok := now.([]any); ok {
			c.compareLists(path, o, n)
			return
		}
	default:
		if _, ok := scalar(now); ok && old == now {
			return
		}
	}
	if !slices.Contains(hidden, path) {
		c.found = append(c.found, change{path, old, now})
	}
}

func (c *comparison) compareMaps(path string, old, now map[string]any) {
	if slices.Contains(hidden, path) {
		return
	}
	keys := slices.Collect(maps.Keys(old))
	for key := range now {
		if _, ok := old[key]; !ok {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		o, inOld := old[key]
		n, inNow := now[key]
		switch at := below(path, key); {
		case !inOld:
			c.appeared(at, absent, n)
		case !inNow:
			c.appeared(at, o, absent)
		default:
			c.compare(at, o, n)
		}
	}
}

// appeared notes a key that only one of the states has. A map that came or went is
// told by its keys, so that a first label reads as a second one does.
func (c *comparison) appeared(path string, old, now any) {
	if slices.Contains(hidden, path) {
		return
	}
	whole := now
	if now == absent {
		whole = old
	}
	m, ok := whole.(map[string]any)
	if ok && len(m) == 0 && slices.Contains(keyed, path) {
		return // what is in it is told, and nothing is
	}
	if ok && len(m) > 0 {
		for key, v := range m {
			if now == absent {
				c.appeared(below(path, key), v, absent)
			} else {
				c.appeared(below(path, key), absent, v)
			}
		}
		return
	}
	c.found = append(c.found, change{path, old, now})
}

// compareLists pairs the elements by what names them, where something does, and
// else by their place.
func (c *comparison) compareLists(path string, old, now []any) {
	if slices.Contains(hidden, path) {
		return
	}
	if key := naming(old, now); key != "" {
		o, n := named(old, key), named(now, key)
		for name, element := range o {
			if other, ok := n[name]; ok {
				c.compare(path+"["+name+"]", element, other)
			} else {
				c.found = append(c.found, change{path + "[" + name + "]", element, absent})
			}
		}
		for name, element := range n {
			if _, ok := o[name]; !ok {
				c.found = append(c.found, change{path + "[" + name + "]", absent, element})
			}
		}
		return
	}
	for i := range max(len(old), len(now)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(old):
			c.found = append(c.found, change{at, absent, now[i]})
		case i >= len(now):
			c.found = append(c.found, change{at, old[i], absent})
		default:
			c.compare(at, old[i], now[i])
		}
	}
}

// namingKeys are the keys by which Kubernetes tells the elements of lists apart,
// in the order in which they are tried.
var namingKeys = []string{"name", "type", "mountPath", "devicePath", "containerPort", "port", "key", "uid", "ip", "hostname"}

// naming returns the key that tells the elements of both lists apart, or "".
func naming(old, now []any) string {
	for _, key := range namingKeys {
		if o, n := named(old, key), named(now, key); o != nil && n != nil && len(o)+len(n) > 0 {
			return key
		}
	}
	return ""
}

// named returns the elements by what they have under key, or nil where that does
// not tell them apart.
func named(elements []any, key string) map[string]any {
	byName := make(map[string]any, len(elements))
	for _, e := range elements {
		m, ok := e.(map[string]any)
		if !ok {
			return nil
		}
		name, ok := scalar(m[key])
		if _, twice := byName[name]; !ok || twice || m[key] == nil {
			return nil
		}
		byName[name] = e
	}
	return byName
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// below is the path of a map's key, as `drop` in the configuration has it.
func below(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + key + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

// longestValue is how long a value may be to be shown, in characters.
const longestValue = 48

// text tells the change: the path, and both values where they are short.
func (c change) text(values bool) string {
	old, showOld := shown(c.old)
	now, showNow := shown(c.now)
	path := Printable(c.path)
	switch {
	case c.old == absent && values && showNow:
		return "+" + path + ": " + now
	case c.old == absent:
		return "+" + path
	case c.now == absent && values && showOld:
		return "-" + path + ": " + old
	case c.now == absent:
		return "-" + path
	case values && showOld && showNow:
		return path + ": " + old + " → " + now
	}
	return path
}

// shown is a scalar's text, if it is short enough.
func shown(v any) (string, bool) {
	if v == absent {
		return "", false
	}
	s, ok := scalar(v)
	if !ok {
		return "", false
	}
	if text, isString := v.(string); isString && !readsAsString.MatchString(text) || isKeyword(v) {
		s = quoted(s)
	}
	return s, len([]rune(s)) <= longestValue
}

// readsAsString matches strings that nobody takes for something else without quotes.
var readsAsString = regexp.MustCompile(`^[A-Za-z/_*][A-Za-z0-9/_.:@*+=-]*$`)

func isKeyword(v any) bool { return v == "true" || v == "false" || v == "null" }

func quoted(s string) string {
	q := Printable(strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`))
	return `"` + q + `"`
}

func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}
