package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func matches(text, pattern string) []string {
	var found []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestTheMetricsInTheDocsAreThoseInTheCode(t *testing.T) {
	documented := matches(read(t, "docs/METRICS.md"), "(?m)^\\| `(kbridge_[a-z_]+)`")
	var source bytes.Buffer
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		source.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	implemented := matches(source.String(), `"(kbridge_[a-z_]+)"`)
	if !slices.Equal(documented, implemented) {
		t.Errorf("docs/METRICS.md and the code differ:\ndocs %q\ncode %q", documented, implemented)
	}
	for _, doc := range []string{"README.md", "docs/METRICS.md", "docs/OPERATIONS.md", "docs/SECURITY.md", "docs/STATUS.md"} {
		for _, name := range matches(read(t, doc), `(kbridge_[a-z_]+)`) {
			if !slices.Contains(implemented, name) {
				t.Errorf("%s names %s, which is no metric", doc, name)
			}
		}
	}
}

func TestTheCommandsAndFlagsInTheDocsExist(t *testing.T) {
	root := rootCommand(&bytes.Buffer{}, &bytes.Buffer{})
	root.InitDefaultCompletionCmd()
	flags := map[string]bool{"help": true}
	commands := map[string]bool{}
	for _, c := range root.Commands() {
		commands[c.Name()] = true
		c.Flags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = true })
	}
	for _, doc := range []string{"README.md", "docs/CONFIG.md", "docs/DESIGN.md", "docs/EVENTS.md", "docs/METRICS.md", "docs/SECURITY.md", "docs/STATUS.md", "examples/quickstart.yaml", "examples/nats.yaml"} {
		text := read(t, doc)
		for _, name := range matches(text, `(?:^|[\s'"`+"`"+`(\[])--([a-z][a-z-]+)`) {
			if !flags[name] && !slices.Contains([]string{"from-literal", "field-selector", "nkey", "create-namespace", "wait"}, name) { // of kubectl, nats and helm
				t.Errorf("%s names the flag --%s, which no command has", doc, name)
			}
		}
		for _, name := range matches(text, "(?m)(?:^#? +|`|cmd/)kbridge ([a-z]+)(?: --| \\[|`|$)") {
			if !commands[name] {
				t.Errorf("%s names `kbridge %s`, which is no command", doc, name)
			}
		}
	}
}

func TestTheFiguresOfTheComparisonAreThoseThatWereMeasured(t *testing.T) {
	_, costs, found := strings.Cut(read(t, "docs/COMPARISON.md"), "\n## What it costs\n")
	if !found {
		t.Fatal("docs/COMPARISON.md does not say what it costs")
	}
	measured := read(t, "docs/PERFORMANCE.md")
	figures := matches(costs, `(?:an event against|a second against|:|and) (\d[\d,.]*\d)`)
	if len(figures) != 4 {
		t.Errorf("docs/COMPARISON.md has the figures %q, want four", figures)
	}
	for _, figure := range figures {
		if !strings.Contains(measured, " "+figure+" (") {
			t.Errorf("docs/COMPARISON.md has the figure %s, which docs/PERFORMANCE.md has not", figure)
		}
	}
}

func TestTheFilesThatTheDocsLinkToExist(t *testing.T) {
	for _, doc := range documents(t) {
		if !strings.HasSuffix(doc, ".md") {
			continue
		}
		for _, link := range matches(read(t, doc), `\]\(([^)#]+)(?:#[^)]*)?\)`) {
			if strings.Contains(link, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join("..", "..", filepath.Dir(doc), filepath.FromSlash(link))); err != nil {
				t.Errorf("%s links to %s: %v", doc, link, err)
			}
		}
	}
}

func TestTheTestsThatTheDocsNameExist(t *testing.T) {
	source := testsOfTheRepository(t)
	for _, doc := range []string{"docs/CONSUMERS.md", "docs/GUARANTEES.md", "docs/INSTALL.md", "docs/SECURITY.md"} {
		for _, name := range matches(read(t, doc), "`((?:Test|Fuzz)[A-Za-z0-9]+)`") {
			if !strings.Contains(source, "func "+name+"(") {
				t.Errorf("%s names %s, which is no test", doc, name)
			}
		}
	}
	for _, promise := range regexp.MustCompile(`(?m)^## \d`).Split(read(t, "docs/GUARANTEES.md"), -1)[1:] {
		if len(matches(promise, "`((?:Test|Fuzz)[A-Za-z0-9]+)`")) == 0 {
			title, _, _ := strings.Cut(promise, "\n")
			t.Errorf("the promise %q names no test", title)
		}
	}
}
