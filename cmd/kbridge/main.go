// Command kbridge turns a Kubernetes cluster into a stream: see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kbridge-io/kbridge/config"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2 // the command line or the configuration is wrong; nothing was contacted
)

// usageError is an error of the command line or the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	// The first signal begins an orderly stop, a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// A reader of stdout that goes away is an error to report, not a reason to vanish.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand(stdout, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var usage usageError
	var wrong *config.Error
	if errors.As(err, &wrong) {
		// A line a problem, each with its place, as compilers have it.
		fmt.Fprintln(stderr, wrong.Error())
		return exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(stderr, "kbridge: "+line)
	}
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand(stdout, stderr io.Writer) *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:           "kbridge",
		Short:         "Turns a Kubernetes cluster into a stream of CloudEvents",
		Long:          "kbridge watches the resources that its configuration selects and publishes every change\nas a CloudEvent to NATS JetStream or Kafka.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(stdout)
			}
			return cmd.Help()
		},
	}
	// Not cobra's own, whose template needs text/template: where that is used the linker keeps
	// each method of each type, 11 MB of them.
	root.Flags().BoolVar(&showVersion, "version", false, "print the version")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{knownFlag(cmd, err)} })
	root.AddCommand(runCommand(stdout, stderr), checkCommand(stdout, stderr), rbacCommand(stdout), readyCommand(stdout), tailCommand(stdout, stderr), versionCommand(stdout))
	addMan(root)
	return root
}

// noArgs refuses arguments as an error of the command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if ext := filepath.Ext(args[0]); cmd.Flags().Lookup("config") != nil && (ext == ".yaml" || ext == ".yml") {
		hint = fmt.Sprintf(": is --config %s meant?", args[0])
	}
	return usageError{fmt.Errorf("%q: %s takes flags and nothing else%s", args[0], cmd.CommandPath(), hint)}
}

// knownCommand refuses what is no command, and says which one is meant perhaps.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usageError{fmt.Errorf("unknown command: %q%s (kbridge --help shows all)", args[0], perhaps("", config.Nearest(args[0], names)))}
}

// knownFlag adds to the error of a flag that there is not which one is meant perhaps.
func knownFlag(cmd *cobra.Command, err error) error {
	var absent *pflag.NotExistError
	if !errors.As(err, &absent) {
		return err
	}
	word := absent.GetSpecifiedName()
	if letters := absent.GetSpecifiedShortnames(); letters != "" {
		word, _, _ = strings.Cut(letters, "=") // one dash where there should be two
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if slices.Contains(names, word) {
		return fmt.Errorf("%w%s", err, perhaps("--", word))
	}
	return fmt.Errorf("%w%s", err, perhaps("--", config.Nearest(word, names)))
}

func perhaps(dashes, word string) string {
	if word == "" {
		return ""
	}
	return ", perhaps " + dashes + word + " is meant"
}

// configFlag adds the flag that names the configuration.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "the configuration file (required)")
	if err := cmd.MarkFlagFilename("config", "yaml", "yml"); err != nil {
		panic("BUG: " + err.Error())
	}
}

// loadConfig reads the configuration; its errors are the user's to mend.
func loadConfig(file string) (*config.Config, error) {
	if file == "" {
		return nil, usageError{errors.New("--config is required: see examples/quickstart.yaml for a first one")}
	}
	cfg, err := config.Load(file)
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}
