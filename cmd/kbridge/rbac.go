package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kbridge-io/kbridge/internal/rbac"
)

func rbacCommand(stdout io.Writer) *cobra.Command {
	var file, output string
	var account rbac.Account
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Prints the roles that the configuration needs",
		Long: `Prints the least roles with which the configuration works, and their bindings to a
service account; contacts nothing.

They are list and watch on each selected resource, in a ClusterRole, or in a Role of
each namespace where the entry has 'namespaces'; and get on the namespace kube-system
where the configuration does not set 'cluster'.`,
		Example: `  kbridge rbac --config kbridge.yaml --namespace observability | kubectl apply -f -
  kbridge rbac --config kbridge.yaml -o json | jq '.items[].rules'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if account.ServiceAccount == "" {
				account.ServiceAccount = account.Name
			}
			if err := checkAccount(account, output); err != nil {
				return usageError{err}
			}
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			objects := rbac.Needed(cfg).Objects(account)
			if output == "json" {
				return rbac.WriteJSON(stdout, objects)
			}
			return rbac.WriteYAML(stdout, objects)
		},
	}
	configFlag(cmd, &file)
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "yaml", "yaml, or json: one list")
	f.StringVar(&account.Name, "name", "kbridge", "what the roles are called, after the namespace")
	f.StringVarP(&account.Namespace, "namespace", "n", "default", "the namespace of the service account")
	f.StringVar(&account.ServiceAccount, "service-account", "", "the service account that kbridge runs with (default: the name)")
	return cmd
}

// checkAccount reports what no API server would take.
func checkAccount(a rbac.Account, output string) error {
	var problems []error
	wrong := func(flag, value, want string) {
		problems = append(problems, fmt.Errorf("--%s %q: expected %s", flag, value, want))
	}
	if output != "yaml" && output != "json" {
		wrong("output", output, "yaml or json")
	}
	for _, f := range []struct {
		flag, value string
		problems    []string
	}{
		{"name", a.Name, validation.IsDNS1123Label(a.Name)},
		{"namespace", a.Namespace, validation.IsDNS1123Label(a.Namespace)},
		{"service-account", a.ServiceAccount, validation.IsDNS1123Subdomain(a.ServiceAccount)},
	} {
		if len(f.problems) > 0 {
			wrong(f.flag, f.value, "a name ("+strings.Join(f.problems, "; ")+")")
		}
	}
	return errors.Join(problems...)
}
