package testbuild

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

// builder compiles programs and says how it gets on. It belongs to one goroutine.
type builder struct {
	module string    // the folder of the tool module
	out    io.Writer // for the user
	note   *os.File  // for processes that wait for this build
	began  time.Time
	tick   <-chan time.Time // when to report; nil for never
}

func (b *builder) build(ctx context.Context, s Set) error {
	b.module, b.began = s.Module, time.Now()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	b.tick = ticker.C
	b.say("building %s into %s: %s", s.names(), s.Dir, s.Why)
	for _, p := range s.Programs {
		if err := b.compile(ctx, s.Path(p.Name), p); err != nil {
			return err
		}
	}
	b.say("built in %s", time.Since(b.began).Round(time.Second))
	return nil
}

// compile leaves a whole program at path, or nothing.
func (b *builder) compile(ctx context.Context, path string, p Program) error {
	if Executable(path) == nil {
		return nil
	}
	deps, err := b.run(ctx, p, "modules downloaded", 0, "list", "-deps", p.Package)
	if err != nil {
		return fmt.Errorf("list the packages of %s: %w", p.Name, err)
	}
	partial := path + ".partial" // the lock keeps others from it
	defer os.Remove(partial)
	args := []string{"build", "-v", "-o", partial}
	if p.LDFlags != "" {
		args = append(args, "-ldflags", p.LDFlags)
	}
	if _, err := b.run(ctx, p, "packages compiled", bytes.Count(deps, []byte("\n")), append(args, p.Package)...); err != nil {
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("build %s: %w", p.Name, err)
	}
	return nil
}

// run runs the go command and returns its standard output. Meanwhile it reports how many steps of at most total, where
// that is known, were done.
func (b *builder) run(ctx context.Context, p Program, steps string, total int, args ...string) ([]byte, error) {
	var stdout bytes.Buffer
	stderr := testserver.Output{Kind: goLine}
	cmd := exec.Command("go", args...)
	cmd.Dir = b.module
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), p.Env...) // a workspace would not know the tool module
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
				b.say("%s: %d %s", p.Name, n, steps)
			case n < total:
				b.say("%s: %d %s, of at most %d", p.Name, n, steps, total)
			default:
				b.say("%s: all %s, linking", p.Name, steps)
			}
		}
	}
}

func (b *builder) say(format string, args ...any) {
	elapsed := time.Since(b.began).Round(time.Second)
	line := fmt.Sprintf("[%d:%02d] %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, args...))
	fmt.Fprint(b.out, "testbuild: "+line)
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
