// Package licenses knows the modules that are linked into kbridge and the licenses that they come under. It owns
// docs/THIRD_PARTY_LICENSES.md, the texts that a release and the image carry, and which kinds of license are taken.
// What tests, benchmarks and tools need besides is not kbridge and is not in it.
package licenses

//go:generate go test -run Generated -update .

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Platforms are those that kbridge is released for. What any of them links is listed.
var Platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// Program is the package that is released.
const Program = "./cmd/kbridge"

// standardLibrary stands in for the path of the module that Go's own packages have not got.
const standardLibrary = "Go"

// Module is a module of which at least one package is linked.
type Module struct {
	Path, Version string // the version of Go is the compiler's, and left empty
	Files         []File // sorted by name
}

// File is a license or a notice.
type File struct {
	Name string // with slashes, from the module's folder
	Text []byte
}

// legal are the names of files that a distribution has to carry, and license of those that grant the license. PATENTS
// grants more, and NOTICE is to be passed on.
var (
	legal   = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|notice|patents)([._-][a-z0-9._-]*)?$`)
	license = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)`)
)

// linkedPackage is what `go list` says of a package.
type linkedPackage struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// Linked returns the modules that the program of the source in root is linked from, for all platforms, by path. It runs
// the go command, which downloads modules that are missing.
func Linked(ctx context.Context, root string) ([]Module, error) {
	found := map[string]*gathered{}
	for _, platform := range Platforms {
		packages, err := list(ctx, root, platform)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if p.Module != nil && p.Module.Main {
				continue
			}
			if err := gather(found, p); err != nil {
				return nil, err
			}
		}
	}
	var modules []Module
	for _, g := range found {
		slices.SortFunc(g.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
		modules = append(modules, g.Module)
	}
	slices.SortFunc(modules, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// gathered is a module, and which of its folders were looked at.
type gathered struct {
	Module
	seen map[string]bool
}

// gather adds the files of a package: those in its folder and in the folders above, up to the module's. What stands
// beside a package that is not linked does not concern kbridge.
func gather(found map[string]*gathered, p linkedPackage) error {
	m, root := Module{Path: standardLibrary}, strings.TrimSuffix(p.Dir, filepath.FromSlash("/src/"+p.ImportPath))
	if p.Standard {
		p.Dir = root // what stands deeper is of BoringCrypto, which a build has to ask for
	} else {
		if p.Module == nil || p.Module.Dir == "" {
			return fmt.Errorf("package %s belongs to no module", p.ImportPath)
		}
		m, root = Module{Path: p.Module.Path, Version: p.Module.Version}, p.Module.Dir
	}
	g := found[m.Path]
	if g == nil {
		g = &gathered{m, map[string]bool{}}
		found[m.Path] = g
	}
	for dir := p.Dir; !g.seen[dir]; dir = filepath.Dir(dir) {
		g.seen[dir] = true
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("look for licenses of %s: %w", p.ImportPath, err)
		}
		for _, e := range entries {
			if e.IsDir() || !legal.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return fmt.Errorf("read a license of %s: %w", p.ImportPath, err)
			}
			name, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
			if err != nil {
				return fmt.Errorf("name a license of %s: %w", p.ImportPath, err)
			}
			g.Files = append(g.Files, File{filepath.ToSlash(name), text})
		}
		if dir == root {
			break
		}
	}
	return nil
}

// list lists what is linked on a platform.
func list(ctx context.Context, root, platform string) ([]linkedPackage, error) {
	system, processor, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Dir,Standard,Module", Program)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list what is linked for %s: %w\n%s", platform, err, stderr.Bytes())
	}
	var packages []linkedPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linkedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what is linked for %s: %w", platform, err)
		}
		packages = append(packages, p)
	}
}
