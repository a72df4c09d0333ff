package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ParsePath splits the path of an object's field into its keys. Keys are parted
// by dots; one that holds a dot stands in brackets:
// metadata.annotations[kubectl.kubernetes.io/last-applied-configuration].
//
// There are no indexes and no wildcards: a path that meets an array goes on in
// each of its elements.
func ParsePath(s string) ([]string, error) {
	if s == "" {
		return nil, errors.New("path is empty")
	}
	var keys []string
	for rest, first := s, true; rest != ""; first = false {
		var key string
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			if key, rest, ok = strings.Cut(inner, "]"); !ok {
				return nil, fmt.Errorf("bracket is not closed after %q", inner)
			}
			if isIndex(key) {
				return nil, fmt.Errorf("[%s] is an index: leave it out, a path into an array goes for each element", key)
			}
		} else {
			if !first {
				if rest, ok = strings.CutPrefix(rest, "."); !ok {
					return nil, fmt.Errorf("no dot before %q", rest)
				}
			}
			end := strings.IndexAny(rest, ".[")
			if end < 0 {
				end = len(rest)
			}
			key, rest = rest[:end], rest[end:]
			if strings.ContainsAny(key, "] \t\r\n") {
				return nil, fmt.Errorf("key %q needs brackets", key)
			}
		}
		switch key {
		case "":
			return nil, errors.New("a key is empty")
		case "*":
			return nil, errors.New("wildcards are not supported")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func isIndex(key string) bool {
	return key != "" && strings.Trim(key, "0123456789") == ""
}

// needed are the fields that events and their order rest on.
var needed = [][]string{
	{"apiVersion"},
	{"kind"},
	{"metadata"},
	{"metadata", "name"},
	{"metadata", "namespace"},
	{"metadata", "uid"},
	{"metadata", "resourceVersion"},
}

func isNeeded(path []string) bool {
	return slices.ContainsFunc(needed, func(n []string) bool { return slices.Equal(n, path) })
}
