package testcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if flags := VersionFlags(got.kubernetes); !strings.HasSuffix(flags, "gitMajor=1 -X k8s.io/component-base/version.gitMinor=37") {
		t.Errorf("flags %q", flags)
	}
}

func writeProgram(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
