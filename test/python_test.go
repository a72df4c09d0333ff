package test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kbridge-io/kbridge/internal/testbuild"
)

var pythonExample = filepath.Join("..", "examples", "consumer", "python")

// python returns a Python and a folder with the packages that the example requires, which pip puts into the user's cache
// once. Without Python 3.9 or pip the test is skipped; with CI=true it fails.
func python(t *testing.T) (path, packages string) {
	t.Helper()
	path, packages, err := findPython()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return path, packages
}

func findPython() (path, packages string, err error) {
	if path, err = exec.LookPath("python3"); err != nil {
		return "", "", fmt.Errorf("the example in Python needs Python 3.9 or newer with pip: %w", err)
	}
	version, err := exec.Command(path, "-c", "import sys, pip; assert sys.version_info >= (3, 9); print(sys.version)").CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("the example in Python needs Python 3.9 or newer with pip: %w: %s", err, version)
	}
	file := filepath.Join(pythonExample, "requirements.txt")
	required, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	packages, err = testbuild.CacheDir("python", fmt.Sprintf("%x", sha256.Sum256(append(version, required...)))[:16])
	if err != nil {
		return "", "", err
	}
	if _, err := os.Stat(packages); err == nil {
		return path, packages, nil
	}
	if err := os.MkdirAll(filepath.Dir(packages), 0o755); err != nil {
		return "", "", err
	}
	partial, err := os.MkdirTemp(filepath.Dir(packages), "partial-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(partial)
	if out, err := exec.Command(path, "-m", "pip", "install", "--quiet", "--target", partial, "--requirement", file).CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("install what the example in Python requires: %w\n%s", err, out)
	}
	// Where another process was faster, its folder is as good.
	if err := os.Rename(partial, packages); err != nil && !errors.Is(err, os.ErrExist) {
		return "", "", err
	}
	return path, packages, nil
}
