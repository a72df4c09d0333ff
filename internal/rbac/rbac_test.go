package rbac

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/kbridge-io/kbridge/config"
)

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("kbridge.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func watch(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "watch"}}
}

func TestNothingIsNeededButWhatIsSelectedWhereItIs(t *testing.T) {
	kubeSystem := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}}
	for name, c := range map[string]struct {
		config string
		want   Permissions
	}{
		"one resource, and the cluster's name": {
			"resources: [{resource: pods}]",
			Permissions{Cluster: []rbacv1.PolicyRule{watch("", "pods"), kubeSystem}},
		},
		"a cluster with a name": {
			"cluster: c\nresources: [{resource: pods, group: core}]",
			Permissions{Cluster: []rbacv1.PolicyRule{watch("", "pods")}},
		},
		"groups, each resource once": {
			`{cluster: c, resources: [
  {resource: services, sinks: [a]}, {group: apps, resource: deployments}, {resource: pods}, {resource: services, sinks: [b]}],
 sinks: [{name: a, stdout: {}}, {name: b, nats: {urls: ['nats://n']}}]}`,
			Permissions{Cluster: []rbacv1.PolicyRule{watch("", "pods", "services"), watch("apps", "deployments")}},
		},
		"namespaces": {
			"{cluster: c, resources: [{resource: pods, namespaces: [a, b]}, {resource: secrets, namespaces: [b]}]}",
			Permissions{Namespaces: map[string][]rbacv1.PolicyRule{"a": {watch("", "pods")}, "b": {watch("", "pods", "secrets")}}},
		},
		"everywhere, and in a namespace": {
			"{cluster: c, resources: [{resource: pods, namespaces: [a]}, {resource: pods, excludeNamespaces: [a]}, {resource: secrets, namespaces: [a]}]}",
			Permissions{Cluster: []rbacv1.PolicyRule{watch("", "pods")}, Namespaces: map[string][]rbacv1.PolicyRule{"a": {watch("", "secrets")}}},
		},
		"a resource of the same name in another group": {
			"{cluster: c, resources: [{resource: events, namespaces: [a]}, {group: events.k8s.io, resource: events}]}",
			Permissions{Cluster: []rbacv1.PolicyRule{watch("events.k8s.io", "events")}, Namespaces: map[string][]rbacv1.PolicyRule{"a": {watch("", "events")}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Needed(parse(t, c.config))
			if c.want.Namespaces == nil {
				c.want.Namespaces = map[string][]rbacv1.PolicyRule{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestRolesAreBoundToTheAccount(t *testing.T) {
	p := Needed(parse(t, "resources: [{resource: pods, namespaces: [a, b]}]"))
	objects := p.Objects(Account{Name: "n", Namespace: "obs", ServiceAccount: "sa"})
	var got bytes.Buffer
	if err := WriteYAML(&got, objects[len(objects)-2:]); err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  labels:
    app.kubernetes.io/instance: "n"
    app.kubernetes.io/name: kbridge
  name: obs:n
  namespace: b
rules:
- apiGroups:
  - ""
  resources:
  - pods
  verbs:
  - list
  - watch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    app.kubernetes.io/instance: "n"
    app.kubernetes.io/name: kbridge
  name: obs:n
  namespace: b
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: obs:n
subjects:
- kind: ServiceAccount
  name: sa
  namespace: obs
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(objects) != 6 { // a ClusterRole, a Role in each of two namespaces, and their bindings
		t.Errorf("%d objects", len(objects))
	}
}

func TestAGrantSaysWhichRuleMendsItsAbsence(t *testing.T) {
	p := Needed(parse(t, "{resources: [{group: apps, resource: deployments}, {resource: pods}, {resource: services}, {resource: secrets, namespaces: [b, a]}]}"))
	var got []string
	for _, g := range p.Grants() {
		got = append(got, g.Only(g.Rule.Verbs[:1]).String())
		if rule := strings.SplitN(g.String(), ": ", 2)[1]; !cmp.Equal(ruleOf(t, rule), g.Rule) {
			t.Errorf("%s is read as %v, want %v", rule, ruleOf(t, rule), g.Rule)
		}
	}
	want := []string{
		`add to a ClusterRole: {apiGroups: [""], resources: [pods], verbs: [list]}`,
		`add to a ClusterRole: {apiGroups: [""], resources: [services], verbs: [list]}`,
		`add to a ClusterRole: {apiGroups: ["apps"], resources: [deployments], verbs: [list]}`,
		`add to a ClusterRole: {apiGroups: [""], resources: [namespaces], resourceNames: [kube-system], verbs: [get]}`,
		`add to a Role of the namespace a: {apiGroups: [""], resources: [secrets], verbs: [list]}`,
		`add to a Role of the namespace b: {apiGroups: [""], resources: [secrets], verbs: [list]}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func ruleOf(t *testing.T, text string) rbacv1.PolicyRule {
	t.Helper()
	var rule rbacv1.PolicyRule
	if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
		t.Fatal(err)
	}
	return rule
}
