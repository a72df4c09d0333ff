// Command kbridge turns a Kubernetes cluster into a stream: see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

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
	fmt.Fprintln(stderr, "kbridge: "+err.Error())
	var usage usageError
	var wrong *config.Error
	if errors.As(err, &usage) || errors.As(err, &wrong) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "kbridge",
		Short:         "Turns a Kubernetes cluster into a stream of CloudEvents",
		Long:          "kbridge watches the resources that its configuration selects and publishes every change\nas a CloudEvent to NATS JetStream or Kafka.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(runCommand(stdout, stderr), checkCommand(stdout, stderr), rbacCommand(stdout), readyCommand(stdout), tailCommand(stdout, stderr), versionCommand(stdout))
	return root
}

// noArgs refuses arguments as an error of the command line.
func noArgs(cmd *cobra.Command, args []string) error {
	if err := cobra.NoArgs(cmd, args); err != nil {
		return usageError{err}
	}
	return nil
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
