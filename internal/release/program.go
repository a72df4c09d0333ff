package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kbridge-io/kbridge/internal/licenses"
)

// components makes the list of what a program is linked from, which it reads from the program.
const components = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// program is kbridge for a platform.
type program struct {
	system, processor string
	binary, sbom      []byte
}

func (p program) file() string {
	if p.system == "windows" {
		return "kbridge.exe"
	}
	return "kbridge"
}

// reproducible are the settings of the go command that go into what it makes, whatever the user has set.
var reproducible = []string{"CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off", "GOWORK=off"}

// compile compiles kbridge for a platform, and lists its components.
func (o Options) compile(ctx context.Context, platform string) (program, error) {
	dir, err := os.MkdirTemp("", "kbridge-release-")
	if err != nil {
		return program{}, err
	}
	defer os.RemoveAll(dir)
	var p program
	p.system, p.processor, _ = strings.Cut(platform, "/")
	binary, sbom := filepath.Join(dir, p.file()), filepath.Join(dir, "sbom.json")
	// The flags of `make build`, so that both share what is compiled.
	flags := "-s -w -X main.version=" + o.Version + " -X main.commit=" + o.Commit
	env := append([]string{"GOOS=" + p.system, "GOARCH=" + p.processor}, reproducible...)
	if _, err := run(ctx, o.Source, env, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", binary, licenses.Program); err != nil {
		return program{}, fmt.Errorf("build for %s: %w", platform, err)
	}
	if _, err := run(ctx, dir, reproducible, "go", "run", components, "bin", "-json", "-std", "-noserial", "-notimestamp",
		"-version", o.Version, "-output", sbom, binary); err != nil {
		return program{}, fmt.Errorf("list the components for %s: %w", platform, err)
	}
	if p.binary, err = os.ReadFile(binary); err != nil {
		return program{}, err
	}
	p.sbom, err = os.ReadFile(sbom)
	return p, err
}

// run runs a program and returns its standard output.
func run(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), args[0], err, stderr.Bytes())
	}
	return out, nil
}
