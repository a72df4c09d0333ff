package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/rbac"
)

func TestTheRolesAreThoseThatKbridgePrints(t *testing.T) {
	for name, resources := range map[string]string{
		"one":                       "[{resource: pods}]",
		"groups":                    "[{resource: pods}, {group: apps, resource: deployments}, {group: apps.example.com, resource: deployments}, {group: apps, resource: statefulsets}]",
		"the core group by name":    "[{group: core, resource: pods}, {resource: services}, {group: '', resource: secrets}]",
		"an excluded namespace":     "[{resource: pods, excludeNamespaces: [kube-system]}]",
		"namespaces":                "[{resource: pods, namespaces: [b, a]}, {group: apps, resource: deployments, namespaces: [b]}]",
		"everywhere and in one":     "[{resource: pods, namespaces: [a]}, {resource: pods, excludeNamespaces: [a]}, {resource: secrets, namespaces: [a]}]",
		"in one and everywhere":     "[{resource: secrets, namespaces: [a]}, {resource: pods, excludeNamespaces: [a]}, {resource: pods, namespaces: [a]}]",
		"twice in one":              "[{resource: pods, namespaces: [a], sinks: [out]}, {resource: pods, namespaces: [a], sinks: [live]}]",
		"the same name in two":      "[{resource: events, namespaces: [a]}, {group: events.k8s.io, resource: events}]",
		"the same name in two, too": "[{resource: events}, {group: events.k8s.io, resource: events, namespaces: [a]}]",
	} {
		for _, cluster := range []string{"", "prod"} {
			t.Run(name+", cluster "+cluster, func(t *testing.T) {
				t.Parallel()
				text := fmt.Sprintf("{cluster: %q, resources: %s, sinks: [{name: out, stdout: {}}, {name: live, nats: {urls: ['nats://n:4222']}}]}", cluster, resources)
				cfg, err := config.Parse("values", []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				var want []*unstructured.Unstructured
				for _, o := range rbac.Needed(cfg).Objects(rbac.Account{Name: "kbridge", Namespace: "obs", ServiceAccount: "kbridge"}) {
					object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, &unstructured.Unstructured{Object: object})
				}
				if diff := cmp.Diff(grants(t, want), grants(t, objects(t, "config: "+text))); diff != "" {
					t.Errorf("-kbridge rbac +chart\n%s", diff)
				}
			})
		}
	}
}

func TestSecretsAreGrantedOnlyWhereTheyAreNamed(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"{}", "config: {resources: [{group: apps, resource: deployments}]}"} {
		for _, grant := range grants(t, objects(t, values)) {
			if strings.Contains(grant, " secrets") || strings.Contains(grant, "*") {
				t.Errorf("%s: %s", values, grant)
			}
		}
	}
}

// grants returns what the roles let the account do which they are bound to, a sorted line for each verb and resource.
func grants(t *testing.T, list []*unstructured.Unstructured) []string {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{} // by kind, namespace and name
	for _, o := range list {
		if kind := o.GetKind(); kind == "ClusterRole" || kind == "Role" {
			rules[kind+" "+o.GetNamespace()+"/"+o.GetName()] = convert[rbacv1.Role](t, o).Rules
		}
	}
	var lines []string
	for _, o := range list {
		kind := strings.TrimSuffix(o.GetKind(), "Binding")
		if kind == o.GetKind() {
			continue
		}
		binding := convert[rbacv1.RoleBinding](t, o)
		role := kind + " " + o.GetNamespace() + "/" + binding.RoleRef.Name
		if binding.RoleRef.Kind != kind || rules[role] == nil || len(binding.Subjects) != 1 {
			t.Fatalf("%s %s binds %+v to %+v", o.GetKind(), o.GetName(), binding.RoleRef, binding.Subjects)
		}
		s := binding.Subjects[0]
		for _, rule := range rules[role] {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						lines = append(lines, fmt.Sprintf("%s %s/%s in %q: %s %s %q %q", s.Kind, s.Namespace, s.Name, o.GetNamespace(), verb, resource, group, rule.ResourceNames))
					}
				}
			}
		}
		delete(rules, role)
	}
	for role := range rules {
		t.Errorf("%s is not bound", role)
	}
	slices.Sort(lines)
	return lines
}
