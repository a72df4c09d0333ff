package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSizesAreReadInEveryUnit(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Size{
		"0": 0, "17": 17, "10B": 10, "1k": 1000, "1kB": 1000, "1KB": 1000, "64MB": 64000000, "64M": 64000000,
		"64MiB": 67108864, "64Mi": 67108864, "64 MiB": 67108864, "1Ki": 1024, "1.5GiB": 1610612736, "1G": 1000000000,
		"2T": 2000000000000, "1PiB": 1125899906842624, "9223372036854775807": 9223372036854775807,
	} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "-1", "1e3", "64m", "1ki", "ten", "0.5", "1.0001k", "9223372036854775808", "8192PiB", "1 0", "Mi", "1MiBB", "0x10", "NaN", "1\n"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q is %d, want an error", s, got)
		}
	}
	for n, want := range map[Size]string{0: "0", 1000: "1000", 1024: "1KiB", 67108864: "64MiB", 1610612736: "1536MiB", -1: "-1"} {
		if got := n.String(); got != want {
			t.Errorf("%d is shown as %s, want %s", int64(n), got, want)
		}
	}
}

func TestDurationsAreReadWithDays(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"0": 0, "10s": 10 * time.Second, "1.5h": 90 * time.Minute, "500ms": 500 * time.Millisecond, "7d": 168 * time.Hour,
		"1d12h30m": 36*time.Hour + 30*time.Minute, "365d": 8760 * time.Hour,
	} {
		if got, err := parseDuration(s); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "10", "-5s", "1.5d", "d", "12h1d", "1d5", "200000d", "99999999999999999999d", "106751d24h", "9999999999h", "soon", "1 s", "1d0"} {
		if got, err := parseDuration(s); err == nil {
			t.Errorf("%q is %s, want an error", s, got)
		}
	}
}

func TestPathsAreSplitIntoKeys(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][]string{
		"spec":                   {"spec"},
		"metadata.managedFields": {"metadata", "managedFields"},
		"metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]": {"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
		"a[b.c][d e].f": {"a", "b.c", "d e", "f"},
		"[a.b].c":       {"a.b", "c"},
		"data.0":        {"data", "0"},
	} {
		got, err := ParsePath(s)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", s, err, diff)
		}
	}
	for s, want := range map[string]string{
		"":          "path is empty",
		".a":        "a key is empty",
		"a.":        "a key is empty",
		"a..b":      "a key is empty",
		"a[]":       "a key is empty",
		"a.[b]":     "a key is empty",
		"a[b":       `bracket is not closed after "b"`,
		"a[b]c":     `no dot before "c"`,
		"a]b":       `key "a]b" needs brackets`,
		"a b":       `key "a b" needs brackets`,
		"spec.*":    "wildcards are not supported",
		"a[*]":      "wildcards are not supported",
		"a[0].name": "[0] is an index: leave it out, a path into an array goes for each element",
	} {
		if got, err := ParsePath(s); err == nil || err.Error() != want {
			t.Errorf("%q yields %q, %v, want the error %s", s, got, err, want)
		}
	}
}

func TestTemplatesAreChecked(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "k8s.{cluster}.{group}.{version}.{resource}.{kind}.{namespace}.{name}.{type}", "x-{name}-{type}.é"} {
		if err := checkSubjectTemplate(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for s, want := range map[string]string{
		"":          "a token is empty",
		"a..b":      "a token is empty",
		"a.":        "a token is empty",
		"a b":       "spaces and control characters are not allowed",
		"a\tb":      "spaces and control characters are not allowed",
		"a.*":       "wildcards cannot be published to",
		"a.>":       "wildcards cannot be published to",
		"a.{name":   "{ without }",
		"a.{{name}": "{ without }",
		"a.name}":   "} without {",
		"a.{}":      `"{}" is unknown, it may be one of cluster, group, version, resource, kind, namespace, name, type`,
		"a.{uid}":   `"{uid}" is unknown, it may be one of cluster, group, version, resource, kind, namespace, name, type`,
		"$JS.a":     "subjects that begin with $ belong to the server",
	} {
		if err := checkSubjectTemplate(s); err == nil || err.Error() != want {
			t.Errorf("%q yields %v, want %s", s, err, want)
		}
	}
	for s, ok := range map[string]bool{"k8s.>": true, ">": true, "*": true, "a.*.b": true, "a": true, "a.>.b": false, "a.b*": false, "a.b>": false, "a..b": false, "": false, "a b": false} {
		if err := checkSubjectPattern(s); (err == nil) != ok {
			t.Errorf("%q yields %v", s, err)
		}
	}
}

func TestASubjectIsMissedOnlyWhereThatIsCertain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, template string
		want              bool
	}{
		{"k8s.>", "k8s.{name}", true},
		{"k8s.>", "k8s", false},
		{"k8s.>", "kube.{name}", false},
		{">", "a", true},
		{"k8s.*", "k8s.{name}", true},
		{"k8s.*", "k8s.{name}.x", false},
		{"k8s.*.x", "k8s.{name}", false},
		{"k8s.prod", "k8s.{cluster}", true},
		{"k8s.prod", "k8s.c-{cluster}", false},
		{"k8s.c-prod", "k8s.c-{cluster}", true},
		{"k8s.c-", "k8s.c-{cluster}", false},
		{"k8s.prod", "k8s.prod", true},
	} {
		if got := mayCover(c.pattern, c.template); got != c.want {
			t.Errorf("%s may cover %s: %t", c.pattern, c.template, got)
		}
	}
}

func TestTheNearestKeyIsProposed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "abc", 3}, {"abc", "abc", 0}, {"namespace", "namespaces", 1}, {"kitten", "sitting", 3}, {"ab", "ba", 2}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%s to %s takes %d steps, want %d", c.a, c.b, got, c.want)
		}
	}
}
