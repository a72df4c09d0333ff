// Package testprometheus gives tests Debian's Prometheus and its promtool: those in the PATH, or else what the package
// has, unpacked into the user's cache. Installing it would start a service.
package testprometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/internal/testbuild"
	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Programs are the paths of the programs.
type Programs struct {
	Prometheus, Promtool string
}

// Find returns the programs, if they are there.
func Find() (Programs, error) {
	var p Programs
	var prometheus, promtool error
	p.Prometheus, prometheus = exec.LookPath("prometheus")
	p.Promtool, promtool = exec.LookPath("promtool")
	if prometheus == nil && promtool == nil {
		return p, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return Programs{}, err
	}
	p = unpacked(cache)
	if errors.Join(testbuild.Executable(p.Prometheus), testbuild.Executable(p.Promtool)) != nil {
		return Programs{}, errors.New("there is no prometheus and promtool: run make prometheus on Debian, or install them")
	}
	return p, nil
}

func cacheDir() (string, error) { return testbuild.CacheDir("prometheus", "debian") }

func unpacked(cache string) Programs {
	bin := filepath.Join(cache, "root", "usr", "bin")
	return Programs{filepath.Join(bin, "prometheus"), filepath.Join(bin, "promtool")}
}

// Fetch is Find where the programs are, and else downloads and unpacks Debian's package first. Only root can bring
// apt's lists up to date where the package is not in them.
func Fetch(ctx context.Context, progress io.Writer) (Programs, error) {
	if p, err := Find(); err == nil {
		return p, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return Programs{}, err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Programs{}, err
	}
	lock, err := testserver.LockFile(ctx, filepath.Join(cache, "lock"), nil)
	if err != nil {
		return Programs{}, fmt.Errorf("wait for another process to fetch Prometheus: %w", err)
	}
	defer lock.Release()
	if p, err := Find(); err == nil {
		return p, nil
	}
	fmt.Fprintln(progress, "prometheus: downloading Debian's package")
	if err := unpack(ctx, cache); err != nil {
		return Programs{}, fmt.Errorf("fetch Debian's prometheus: %w", err)
	}
	return Find()
}

// unpack leaves the package's files in the folder root of the cache, whole or not at all.
func unpack(ctx context.Context, cache string) error {
	dir, err := os.MkdirTemp(cache, "package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	in := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	download := func() error { return in("apt-get", "download", "prometheus") }
	if err := download(); err != nil {
		if os.Geteuid() != 0 {
			return err
		}
		if err := in("apt-get", "-o", "DPkg::Lock::Timeout=300", "update", "-qq"); err != nil {
			return err
		}
		if err := download(); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "prometheus_*.deb"))
	if err != nil {
		return err
	}
	if len(packages) != 1 {
		return fmt.Errorf("apt-get has downloaded %q, want one package", packages)
	}
	root := filepath.Join(dir, "root")
	if err := in("dpkg-deb", "-x", packages[0], root); err != nil {
		return err
	}
	return os.Rename(root, filepath.Join(cache, "root"))
}

// Require returns the programs for a test, which is skipped where they are not there; with CI=true it fails.
func Require(t testing.TB) Programs {
	t.Helper()
	p, err := Find()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return p
}
