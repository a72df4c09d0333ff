// Command build makes a release of kbridge, from the repository that it is run in, in a folder that it makes:
//
//	go run ./internal/release/build dist
//
// With -tree it makes the files of the image for one platform instead, for the Dockerfile. What git does not tell, as in
// an image's build, has to be said; the time of the commit is SOURCE_DATE_EPOCH, where that is set.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/internal/licenses"
	"github.com/kbridge-io/kbridge/internal/release"
	"github.com/kbridge-io/kbridge/internal/testhelm"
)

func main() {
	o := release.Options{Source: ".", Log: os.Stderr}
	flag.StringVar(&o.Version, "version", "", "the version; without, what git describe says")
	flag.StringVar(&o.Commit, "commit", "", "the commit; without, git's HEAD")
	platforms := flag.String("platforms", strings.Join(licenses.Platforms, ","), "what to build for")
	tree := flag.Bool("tree", false, "make the files of the image for one platform")
	flag.Parse()
	o.Platforms = strings.Split(*platforms, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := build(ctx, o, flag.Args(), *tree)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a release:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, o release.Options, args []string, tree bool) (err error) {
	if len(args) != 1 {
		return errors.New("name the folder to make")
	}
	o.Out = args[0]
	if o.Version, err = orGit(o.Version, "describe", "--tags", "--always", "--dirty"); err != nil {
		return err
	}
	if tree { // an image's build may not know its commit
		return release.Write(ctx, o, o.Out)
	}
	if o.Commit, err = orGit(o.Commit, "rev-parse", "HEAD"); err != nil {
		return err
	}
	epoch, err := orGit(os.Getenv("SOURCE_DATE_EPOCH"), "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	o.Time = time.Unix(seconds, 0).UTC()
	if strings.HasSuffix(o.Version, "-dirty") {
		fmt.Fprintln(o.Log, "release: the source has changes that are not committed, and the version says so")
	}
	if o.Helm, err = testhelm.Path(ctx, o.Log); err != nil {
		return err
	}
	return release.Build(ctx, o)
}

// orGit returns the value, or what git says where there is none.
func orGit(value string, args ...string) (string, error) {
	if value != "" {
		return value, nil
	}
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
