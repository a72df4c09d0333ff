package testbuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

func TestABuildLeavesTheProgramOrTheCompilersWordsAndNothingHalf(t *testing.T) {
	module := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(module, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\ngo 1.26\n")
	write("good/main.go", "package main\nfunc main() {}\n")
	write("bad/main.go", "package main\nfunc main() { undefinedThing() }\n")
	note, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer note.Close()
	var progress bytes.Buffer
	b := builder{module: module, out: &progress, note: note, began: time.Now()}
	dir := t.TempDir()

	good := filepath.Join(dir, "good")
	if err := b.compile(t.Context(), good, Program{Name: "good", Package: "example.com/m/good"}); err != nil {
		t.Fatal(err)
	}
	if err := Executable(good); err != nil {
		t.Error(err)
	}
	err = b.compile(t.Context(), filepath.Join(dir, "bad"), Program{Name: "bad", Package: "example.com/m/bad"})
	if err == nil || !strings.Contains(err.Error(), "build bad") || !strings.Contains(err.Error(), "undefined: undefinedThing") {
		t.Errorf("%v, want the compiler's words", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("in the folder: %v, want only the good program", files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.compile(ctx, filepath.Join(dir, "late"), Program{Name: "late", Package: "example.com/m/good"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that it was canceled", err)
	}
}

func TestTheGoCommandsLinesAreStepsOrWorthKeeping(t *testing.T) {
	for line, want := range map[string]testserver.Line{
		"go: downloading example.com/x v1.0.0": testserver.Step, "unicode/utf8": testserver.Step, "k8s.io/api": testserver.Step,
		"# k8s.io/api": testserver.Other, "file.go:1:2: oh no": testserver.Other, "exit": testserver.Step, "": testserver.Other,
	} {
		if got := goLine(line); got != want {
			t.Errorf("%q is %d, want %d", line, got, want)
		}
	}
}

func TestASecondProcessWaitsForTheBuildAndShowsItsProgress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := testserver.LockFile(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	var builds, waits bytes.Buffer
	(&builder{out: &builds, note: first.File, began: time.Now()}).say("etcd: %d of at most %d packages compiled", 3, 9)

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := testserver.LockFile(ctx, path, reportOther(&waits)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want that it waited until its deadline", err)
	}
	if got := waits.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[0:00] etcd: 3 of at most 9 packages compiled") {
		t.Errorf("it showed %q", got)
	}
	first.Release()
	second, err := testserver.LockFile(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}

func TestTheKeyOfAModuleChangesWithWhatItRequires(t *testing.T) {
	module := t.TempDir()
	key := func(goMod, goSum string, words ...string) string {
		t.Helper()
		for name, text := range map[string]string{"go.mod": goMod, "go.sum": goSum} {
			if err := os.WriteFile(filepath.Join(module, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		key, err := ModuleKey(module, words...)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := key("a", "b")
	if again := key("a", "b"); again != first {
		t.Errorf("the same module has the keys %s and %s", first, again)
	}
	for name, other := range map[string]string{"go.mod": key("A", "b"), "go.sum": key("a", "B"), "a word": key("a", "b", "w")} {
		if other == first {
			t.Errorf("another %s has the same key", name)
		}
	}
}
