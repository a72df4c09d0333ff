package testcluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/testserver"
)

const reportEvery = 15 * time.Second

// builder compiles the servers and says how it gets on. It belongs to one goroutine.
type builder struct {
	module string    // the folder of the tool module
	out    io.Writer // for the user
	note   *os.File  // for processes that wait for this build
	began  time.Time
	tick   <-chan time.Time // when to report; nil for never
}

func (b *builder) build(ctx context.Context, paths Paths, v versions) error {
	b.began = time.Now()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	b.tick = ticker.C
	b.say("building etcd %s and kube-apiserver %s, because tests run against a real API server. "+
		"This happens once for this user: about 11 minutes on two cores, a few GB for Go's build cache. The result: %s, %s",
		v.etcd, v.kubernetes, paths.Etcd, paths.KubeAPIServer)
	if err := b.compile(ctx, "etcd", paths.Etcd, etcdModule, ""); err != nil {
		return err
	}
	if err := b.compile(ctx, "kube-apiserver", paths.KubeAPIServer, kubernetesModule+"/cmd/kube-apiserver", versionFlags(v.kubernetes)); err != nil {
		return err
	}
	b.say("built in %s", time.Since(b.began).Round(time.Second))
	return nil
}

// versionFlags makes the server tell its version: without, it says v0.0.0-master, which kubectl and helm do not parse.
func versionFlags(version string) string {
	const pkg = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "-s -w -X " + pkg + "gitVersion=" + version + " -X " + pkg + "gitMajor=" + major + " -X " + pkg + "gitMinor=" + minor
}

// compile leaves a whole program at path, or nothing.
func (b *builder) compile(ctx context.Context, name, path, pkg, ldflags string) error {
	if executable(path) == nil {
		return nil
	}
	deps, err := b.run(ctx, name, "modules downloaded", 0, "list", "-deps", pkg)
	if err != nil {
		return fmt.Errorf("list the packages of %s: %w", name, err)
	}
	partial := path + ".partial" // the lock keeps others from it
	defer os.Remove(partial)
	args := []string{"build", "-v", "-o", partial}
	if ldflags != "" {
		args = append(args, "-ldflags", ldflags)
	}
	if _, err := b.run(ctx, name, "packages compiled", bytes.Count(deps, []byte("\n")), append(args, pkg)...); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	return nil
}

// run runs the go command and returns its standard output. Meanwhile it reports how many steps of at most total, where
// that is known, were done.
func (b *builder) run(ctx context.Context, name, steps string, total int, args ...string) ([]byte, error) {
	var stdout bytes.Buffer
	stderr := testserver.Output{Kind: goLine}
	cmd := exec.Command("go", args...)
	cmd.Dir = b.module
	cmd.Env = append(os.Environ(), "GOWORK=off") // a workspace would not know the tool module
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	proc, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("run go: %w", err)
	}
	for {
		select {
		case <-proc.Done():
			if err := proc.Wait(); err != nil {
				return nil, fmt.Errorf("go %s: %w; the end of its output:\n%s", args[0], err, stderr.Tail())
			}
			return stdout.Bytes(), nil
		case <-ctx.Done():
			proc.Kill()
			return nil, fmt.Errorf("%w (what was compiled so far is in Go's build cache, and the next build goes on from there)", context.Cause(ctx))
		case <-b.tick:
			switch n := stderr.Steps(); {
			case total == 0:
				b.say("%s: %d %s", name, n, steps)
			case n < total:
				b.say("%s: %d %s, of at most %d", name, n, steps, total)
			default:
				b.say("%s: all %s, linking", name, steps)
			}
		}
	}
}

func (b *builder) say(format string, args ...any) {
	elapsed := time.Since(b.began).Round(time.Second)
	line := fmt.Sprintf("[%d:%02d] %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, args...))
	fmt.Fprint(b.out, "testcluster: "+line)
	// Whoever waits reads the file without a lock: at worst it shows half a line.
	_ = b.note.Truncate(0)
	_, _ = b.note.WriteAt([]byte(line), 0)
}

// goLine says what the go command's lines are: a step names a package that it compiled or a module that it downloaded.
func goLine(line string) testserver.Line {
	if line != "" && !strings.ContainsAny(line, " \t:") || strings.HasPrefix(line, "go: downloading ") {
		return testserver.Step
	}
	return testserver.Other
}
