//go:build unix

package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

const module = "github.com/kbridge-io/kbridge"

// programs are the paths of what runs.
type programs struct {
	kbridge, apiserver, baseline, bare string
	dir                                string
}

// build builds them. kbridge is built as `make build` does it. For profiles one file is
// added to it, which no build of the product has.
func build(ctx context.Context, dir string, profiles bool) (programs, error) {
	p := programs{
		kbridge: filepath.Join(dir, "kbridge"), apiserver: filepath.Join(dir, "apiserver"),
		baseline: filepath.Join(dir, "baseline"), bare: filepath.Join(dir, "bare"), dir: dir,
	}
	args := []string{"-trimpath", "-ldflags", "-s -w"}
	if profiles {
		overlay, err := profileOverlay(ctx, dir)
		if err != nil {
			return p, err
		}
		args = append(args, "-overlay", overlay)
	}
	if err := goBuild(ctx, p.kbridge, module+"/cmd/kbridge", args...); err != nil {
		return p, err
	}
	for path, pkg := range map[string]string{p.apiserver: "apiserver", p.baseline: "baseline", p.bare: "bare"} {
		if err := goBuild(ctx, path, module+"/bench/"+pkg); err != nil {
			return p, err
		}
	}
	return p, nil
}

func goBuild(ctx context.Context, out, pkg string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", out}, args...), pkg)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return nil
}
