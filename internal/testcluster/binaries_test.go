package testcluster

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

func TestTheServersOfKubebuilderAssetsAreUsed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		writeProgram(t, filepath.Join(dir, name))
	}
	t.Setenv(assetsVariable, dir)
	got, err := Binaries(t.Context(), nil)
	want := Paths{Etcd: filepath.Join(dir, "etcd"), KubeAPIServer: filepath.Join(dir, "kube-apiserver")}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestKubebuilderAssetsWithoutAServerIsAnErrorThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "etcd"))
	t.Setenv(assetsVariable, dir)
	_, err := Binaries(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), assetsVariable) || !strings.Contains(err.Error(), filepath.Join(dir, "kube-apiserver")) {
		t.Errorf("%v, want the variable and the missing file", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kube-apiserver"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Binaries(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "kube-apiserver is not a program") {
		t.Errorf("%v, want that the file cannot be run", err)
	}
}

func TestVersionsComeFromTheRequirementsAndNotFromReplacements(t *testing.T) {
	dir := t.TempDir()
	goMod := `module m
// k8s.io/kubernetes v0.0.1
require go.etcd.io/etcd/server/v3 v3.7.0 // indirect
require (
	k8s.io/kubernetes v1.37.2
)
replace k8s.io/kubernetes => example.com/fork v1.0.0
`
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(goMod), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readVersions(dir)
	if want := (versions{kubernetes: "v1.37.2", etcd: "v3.7.0"}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if flags := versionFlags(got.kubernetes); !strings.HasSuffix(flags, "gitMajor=1 -X k8s.io/component-base/version.gitMinor=37") {
		t.Errorf("flags %q", flags)
	}
}

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
	if err := b.compile(t.Context(), "good", good, "example.com/m/good", ""); err != nil {
		t.Fatal(err)
	}
	if err := executable(good); err != nil {
		t.Error(err)
	}
	err = b.compile(t.Context(), "bad", filepath.Join(dir, "bad"), "example.com/m/bad", "")
	if err == nil || !strings.Contains(err.Error(), "build bad") || !strings.Contains(err.Error(), "undefined: undefinedThing") {
		t.Errorf("%v, want the compiler's words", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Errorf("in the folder: %v, want only the good program", files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.compile(ctx, "late", filepath.Join(dir, "late"), "example.com/m/good", ""); !errors.Is(err, context.Canceled) {
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

func writeProgram(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
