//go:build unix

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// profileVariable is the environment's variable that tells a kbridge built for profiles
// where to write them.
const profileVariable = "KBRIDGE_BENCH_PROFILE"

//go:embed profile.go.txt
var profileSource []byte

// profileOverlay writes what makes the go command see one more file in cmd/kbridge.
func profileOverlay(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", module+"/cmd/kbridge").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of kbridge: %w", err)
	}
	source := filepath.Join(dir, "profile.go")
	if err := os.WriteFile(source, profileSource, 0o600); err != nil {
		return "", err
	}
	added := filepath.Join(string(root[:len(root)-1]), "bench_profile.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {added: source}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

func (s *subject) profiled() bool { return s.bench.profile != "" && !s.baseline && s.profile != "" }

// beginProfile begins a profile, where one is to be taken. There is one in the life of a
// program.
func (s *subject) beginProfile(ctx context.Context) error { return s.profiling(ctx, "profile begun") }

// endProfile ends it, and returns when it is written.
func (s *subject) endProfile(ctx context.Context) error {
	return s.profiling(ctx, "profile written")
}

// profiling sends the signal and waits until the program has said so. Two signals that
// come too fast would be one.
func (s *subject) profiling(ctx context.Context, said string) error {
	if !s.profiled() {
		return nil
	}
	s.Signal(syscall.SIGUSR1)
	return until(ctx, said, time.Minute, func() (bool, error) {
		return strings.Contains(s.Log(), said), s.Ended()
	})
}

// profileName is a subject's, as a file's name. Profiles of later runs replace earlier
// ones.
func (b *bench) profileName(subject string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, b.current.Name+"-"+subject)
}
