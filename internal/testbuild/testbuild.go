// Package testbuild builds the programs that tests run and that are not kbridge's own (etcd, kube-apiserver, helm, a
// node's) from tool modules of their own, so that kbridge does not depend on them. It owns the user's cache folder of
// such programs, in which all clones of the repository find them, and the wait for another process that builds them.
package testbuild

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Program is a command of a tool module.
type Program struct {
	Name    string
	Package string // as the go command names it from within the module
	LDFlags string
	Env     []string // in addition to the process's own
}

// Set is what is built together into one folder.
type Set struct {
	Module   string // the folder of the tool module
	Dir      string
	Programs []Program
	// Why is who needs them, and how long they take, for whoever waits.
	Why string
}

// Path is where a program of the set is, once it is built.
func (s Set) Path(program string) string { return filepath.Join(s.Dir, program) }

// Check says which programs are not there.
func (s Set) Check() error {
	var errs []error
	for _, p := range s.Programs {
		errs = append(errs, Executable(s.Path(p.Name)))
	}
	return errors.Join(errs...)
}

// Build builds what is not there. Of several processes one builds and the others wait. progress may be nil.
func (s Set) Build(ctx context.Context, progress io.Writer) error {
	if s.Check() == nil { // a file is there only when it is whole
		return nil
	}
	if progress == nil {
		progress = io.Discard
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return fmt.Errorf("create the folder for programs: %w", err)
	}
	lock, err := testserver.LockFile(ctx, filepath.Join(s.Dir, "lock"), reportOther(progress))
	if err != nil {
		return fmt.Errorf("wait for another process to build %s: %w", s.names(), err)
	}
	defer lock.Release()
	if s.Check() == nil { // the other process has built them
		return nil
	}
	b := builder{out: progress, note: lock.File}
	return b.build(ctx, s)
}

func (s Set) names() string {
	var names []string
	for _, p := range s.Programs {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// CacheDir returns the folder of the user's cache for programs of a kind that were built from one key.
func CacheDir(kind, key string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w", err)
	}
	return filepath.Join(cache, "kbridge", kind, key), nil
}

// ModuleKey returns a key that changes with what the module requires, and with further words.
func ModuleKey(module string, words ...string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read a tool module: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
	}
	fmt.Fprintf(h, "%q", words)
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// FindModule looks for the tool module test/NAME beside and above the working folder, which for a test is its package's.
func FindModule(name string) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "test", name)
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no test/%s/go.mod in or above %s", name, wd)
		}
	}
}

// Executable says why path is no program.
func Executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

// reportOther passes on what the building process says, each of its messages once.
func reportOther(progress io.Writer) func(*os.File) {
	began := time.Now()
	var last string
	return func(f *os.File) {
		note := make([]byte, 4<<10)
		n, _ := f.ReadAt(note, 0)
		if said := strings.TrimSpace(string(note[:n])); said != last {
			last = said
			fmt.Fprintf(progress, "testbuild: waited %s for another process's build; it says: %s\n",
				time.Since(began).Round(time.Second), said)
		}
	}
}
