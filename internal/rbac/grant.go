package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Grant is one resource's part of the permissions: a rule, and the role that it goes into.
type Grant struct {
	// Kind is ClusterRole or Role.
	Kind string `json:"kind"`
	// Namespace is the Role's.
	Namespace string            `json:"namespace,omitempty"`
	Rule      rbacv1.PolicyRule `json:"rule"`
}

// Grants are the permissions one resource at a time, those for all namespaces first.
func (p Permissions) Grants() []Grant {
	grants := grantsOf(Grant{Kind: "ClusterRole"}, p.Cluster)
	for _, ns := range slices.Sorted(maps.Keys(p.Namespaces)) {
		grants = append(grants, grantsOf(Grant{Kind: "Role", Namespace: ns}, p.Namespaces[ns])...)
	}
	return grants
}

func grantsOf(in Grant, rules []rbacv1.PolicyRule) []Grant {
	var grants []Grant
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			g := in
			g.Rule = *rule.DeepCopy()
			g.Rule.Resources = []string{resource}
			grants = append(grants, g)
		}
	}
	return grants
}

// Only is the grant for some of its verbs.
func (g Grant) Only(verbs []string) Grant {
	g.Rule.Verbs = verbs
	return g
}

// String says what to add to which role, with the rule as YAML in one line.
func (g Grant) String() string {
	in := "a " + g.Kind
	if g.Namespace != "" {
		in += " of the namespace " + g.Namespace
	}
	rule := fmt.Sprintf("{apiGroups: [%q], resources: [%s]", g.Rule.APIGroups[0], strings.Join(g.Rule.Resources, ", "))
	if len(g.Rule.ResourceNames) > 0 {
		rule += fmt.Sprintf(", resourceNames: [%s]", strings.Join(g.Rule.ResourceNames, ", "))
	}
	return fmt.Sprintf("add to %s: %s, verbs: [%s]}", in, rule, strings.Join(g.Rule.Verbs, ", "))
}
