package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// What the build sets: -ldflags "-X main.version=v1.2.3 -X main.commit=…".
var (
	version = "dev"
	commit  string // where the compiler does not see the repository, as in an image's build
)

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Prints the version",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return printVersion(stdout) },
	}
}

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "kbridge %s%s %s %s/%s\n", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// revision is the commit that the binary was built from, where the build recorded it.
func revision() string {
	if commit != "" {
		return abbreviated(commit)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return abbreviated(s.Value)
		}
	}
	return ""
}

func abbreviated(commit string) string { return " (" + commit[:min(12, len(commit))] + ")" }
