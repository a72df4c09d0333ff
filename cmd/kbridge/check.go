package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kbridge-io/kbridge/config"
)

func checkCommand(stdout io.Writer) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Validates the configuration",
		Long:  "Validates the configuration, contacts nothing, and says what it selects.\nExits with 2 and a list of all problems where it is wrong.",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			return describe(stdout, file, cfg)
		},
	}
	configFlag(cmd, &file)
	return cmd
}

// describe says in a few lines what the configuration means.
func describe(w io.Writer, file string, cfg *config.Config) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is valid\n", file)
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		where := "all namespaces"
		if len(r.Namespaces) > 0 {
			where = "namespaces " + strings.Join(r.Namespaces, ", ")
		} else if len(r.ExcludeNamespaces) > 0 {
			where = "all namespaces but " + strings.Join(r.ExcludeNamespaces, ", ")
		}
		fmt.Fprintf(&b, "  %s in %s", r.GroupResource(), where)
		if r.LabelSelector != "" {
			fmt.Fprintf(&b, ", labels %s", r.LabelSelector)
		}
		if r.FieldSelector != "" {
			fmt.Fprintf(&b, ", fields %s", r.FieldSelector)
		}
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
	for _, warning := range cfg.Warnings() {
		fmt.Fprintf(&b, "  warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
