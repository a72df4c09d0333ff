package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/check"
)

// checkOptions are the flags of `kbridge check`.
type checkOptions struct {
	place   place
	config  string
	connect bool
	limit   time.Duration
	output  string
}

// errGaps says that a check has found gaps, which it has printed.
var errGaps = errors.New("a start would not do all that the configuration asks for")

func checkCommand(stdout, stderr io.Writer) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validates the configuration, and tries what a start would",
		Long: `Validates the configuration, contacts nothing, and says what it selects.
Exits with 2 and a list of all problems where it is wrong.

With --connect it then tries what a start would: the cluster, what each entry of
resources is there and how many objects it selects, the permissions, the sinks with
their streams or topics, and the state. It reads only: it creates nothing, publishes
nothing, and may run beside a kbridge. It prints one line for each finding (ok, warning,
gap, skipped), and exits with 1 where there is a gap.`,
		Example: `  kbridge check kbridge.yaml
  kbridge check kbridge.yaml --connect
  kbridge check --config kbridge.yaml --connect -o json | jq '.findings[] | select(.outcome == "gap")'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(o.file(args), o.validate()); err != nil {
				return usageError{err}
			}
			cfg, err := loadConfig(o.config)
			if err != nil {
				return err
			}
			if !o.connect {
				return describe(stdout, o.config, cfg)
			}
			if _, err := newLogger(stderr, "text", slog.LevelError); err != nil { // client-go's
				return err
			}
			return o.report(stdout, o.tryStart(cmd.Context(), cfg))
		},
	}
	configFlag(cmd, &o.config)
	f := cmd.Flags()
	f.BoolVar(&o.connect, "connect", false, "also try what a start would")
	f.DurationVar(&o.limit, "timeout", 10*time.Second, "with --connect: how long each of the checks may take")
	f.StringVarP(&o.output, "output", "o", "text", "with --connect: text, or json: one document")
	o.place.flags(cmd)
	return cmd
}

// file takes the configuration's name as an argument, beside --config.
func (o *checkOptions) file(args []string) error {
	switch {
	case len(args) > 1, len(args) == 1 && o.config != "" && o.config != args[0]:
		return errors.New("expected one configuration file, as an argument or with --config")
	case len(args) == 1:
		o.config = args[0]
	}
	return nil
}

func (o *checkOptions) validate() error {
	switch {
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("--output %q: expected text or json", o.output)
	case o.output == "json" && !o.connect:
		return errors.New("--output json: only with --connect")
	case o.limit <= 0:
		return fmt.Errorf("--timeout %s: expected more than 0", o.limit)
	}
	return nil
}

// report prints what was found, and returns errGaps where there are gaps.
func (o *checkOptions) report(stdout io.Writer, r check.Report) error {
	write := r.WriteText
	if o.output == "json" {
		write = r.WriteJSON
	}
	if err := write(stdout); err != nil {
		return err
	}
	if r.Gaps() > 0 {
		return errGaps
	}
	return nil
}

// describe says in a few lines what the configuration means.
func describe(w io.Writer, file string, cfg *config.Config) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is valid\n", file)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		fmt.Fprintf(&b, "  %s in %s", r.GroupResource(), selects(r))
		if r.APIGroup() == "" && r.Resource == "secrets" && r.Secrets == config.SecretsInclude {
			b.WriteString(", VALUES INCLUDED")
		}
		to := []string{embeddedSink}
		if len(cfg.Sinks) > 0 {
			to = nil
			for _, s := range cfg.Sinks {
				if r.SendsTo(s.Name) {
					to = append(to, s.Name)
				}
			}
		}
		fmt.Fprintf(&b, " -> %s\n", strings.Join(to, ", "))
	}
	if len(cfg.Sinks) == 0 {
		b.WriteString("  no sinks: kbridge run starts a NATS server of its own, on 127.0.0.1, and publishes there\n")
	}
	for _, warning := range cfg.Warnings() {
		fmt.Fprintf(&b, "  warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// selects says which objects of its resource an entry selects.
func selects(r *config.Resource) string {
	where := "all namespaces"
	if len(r.Namespaces) > 0 {
		where = "namespaces " + strings.Join(r.Namespaces, ", ")
	} else if len(r.ExcludeNamespaces) > 0 {
		where = "all namespaces but " + strings.Join(r.ExcludeNamespaces, ", ")
	}
	if r.LabelSelector != "" {
		where += ", labels " + r.LabelSelector
	}
	if r.FieldSelector != "" {
		where += ", fields " + r.FieldSelector
	}
	return where
}
