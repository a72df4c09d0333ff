// Package rbac owns what kbridge has to be allowed at the API server: the least
// permissions that a configuration needs, and the roles and bindings that grant them.
// Discovery is not among them: Kubernetes allows it to every account.
package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
)

// Permissions are rules for all namespaces and for single ones.
type Permissions struct {
	Cluster    []rbacv1.PolicyRule
	Namespaces map[string][]rbacv1.PolicyRule
}

// Needed returns the least permissions with which the configuration works. A resource
// that one entry selects everywhere is not granted again in the namespaces of another.
func Needed(cfg *config.Config) Permissions {
	everywhere := map[schema.GroupResource]bool{}
	for i := range cfg.Resources {
		if r := &cfg.Resources[i]; len(r.Namespaces) == 0 {
			everywhere[groupResource(r)] = true
		}
	}
	inside := map[string]map[schema.GroupResource]bool{}
	for i := range cfg.Resources {
		r := &cfg.Resources[i]
		if everywhere[groupResource(r)] {
			continue
		}
		for _, ns := range r.Namespaces {
			if inside[ns] == nil {
				inside[ns] = map[schema.GroupResource]bool{}
			}
			inside[ns][groupResource(r)] = true
		}
	}
	p := Permissions{Cluster: rules(everywhere), Namespaces: map[string][]rbacv1.PolicyRule{}}
	for ns, resources := range inside {
		p.Namespaces[ns] = rules(resources)
	}
	if cfg.Cluster == "" {
		p.Cluster = append(p.Cluster, identity())
	}
	return p
}

func groupResource(r *config.Resource) schema.GroupResource {
	return schema.GroupResource{Group: r.APIGroup(), Resource: r.Resource}
}

// identity lets kbridge name the cluster by the UID of its namespace kube-system.
func identity() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}}
}

// rules grants the resources, with one rule a group. A watch needs list too: servers
// that can not send a watch's initial events are listed, and before a watch goes on a
// list of one object tells the server's version.
func rules(resources map[schema.GroupResource]bool) []rbacv1.PolicyRule {
	groups := map[string][]string{}
	for r := range resources {
		groups[r.Group] = append(groups[r.Group], r.Resource)
	}
	var rules []rbacv1.PolicyRule
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{group}, Resources: slices.Sorted(slices.Values(groups[group])), Verbs: []string{"list", "watch"},
		})
	}
	return rules
}

// Account says who gets the permissions, and how the roles are called.
type Account struct {
	// Name is the installation's name.
	Name string
	// Namespace is where the service account is.
	Namespace string
	// ServiceAccount is the account's name.
	ServiceAccount string
}

// Objects returns the roles that grant the permissions, each followed by the binding
// that gives it to the account. Roles outside of the account's namespace carry that in
// their name, so that two installations do not share them.
func (p Permissions) Objects(a Account) []runtime.Object {
	meta := metav1.ObjectMeta{
		Name:   a.Namespace + ":" + a.Name,
		Labels: map[string]string{"app.kubernetes.io/name": "kbridge", "app.kubernetes.io/instance": a.Name},
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: a.ServiceAccount, Namespace: a.Namespace}}
	var objects []runtime.Object
	if len(p.Cluster) > 0 {
		objects = append(objects,
			&rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: meta, Rules: p.Cluster},
			&rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: meta, RoleRef: roleRef("ClusterRole", meta.Name), Subjects: subjects})
	}
	for _, ns := range slices.Sorted(maps.Keys(p.Namespaces)) {
		meta.Namespace = ns
		objects = append(objects,
			&rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: meta, Rules: p.Namespaces[ns]},
			&rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: meta, RoleRef: roleRef("Role", meta.Name), Subjects: subjects})
	}
	return objects
}

func kind(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func roleRef(kind, name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
}
