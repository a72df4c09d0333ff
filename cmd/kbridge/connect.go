package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/internal/rbac"
)

// attempt is what is known of the cluster while a start is tried: what later checks depend
// on. A check that was left behind may learn something yet.
type attempt struct {
	cfg    *config.Config
	place  place
	limit  time.Duration
	client atomic.Pointer[informer.Client]   // nil: there is none, or it does not answer
	uid    atomic.Pointer[string]            // the cluster's, nil where it is not known
	served []atomic.Pointer[informer.Served] // by entry, nil where there is none
}

// tryStart looks, one group after the other, at what a start would need.
func (o *checkOptions) tryStart(ctx context.Context, cfg *config.Config) check.Report {
	a := &attempt{cfg: cfg, place: o.place, limit: o.limit, served: make([]atomic.Pointer[informer.Served], len(cfg.Resources))}
	var r check.Report
	r.Findings = append(r.Findings, a.configuration(o.config)...)
	r.Findings = append(r.Findings, check.Run(ctx, a.limit, check.Cluster, "kubeconfig", a.cluster)...)
	if client := a.client.Load(); client != nil {
		defer client.Close()
	}
	r.Findings = append(r.Findings, check.Each(len(cfg.Resources), func(i int) []check.Finding {
		return check.Run(ctx, a.limit, check.Resources, cfg.Resources[i].Entry(), func(ctx context.Context, found *check.Subject) { a.resource(ctx, i, found) })
	})...)
	grants := rbac.Needed(cfg).Grants()
	r.Findings = append(r.Findings, check.Each(len(grants), func(i int) []check.Finding {
		return check.Run(ctx, a.limit, check.Permissions, granted(grants[i]), func(ctx context.Context, found *check.Subject) { a.permission(ctx, grants[i], found) })
	})...)
	r.Findings = append(r.Findings, a.sinks(ctx)...)
	r.Findings = append(r.Findings, a.state(ctx)...)
	return check.Report{Findings: append(r.Findings, a.tracing(ctx)...)}
}

// configuration says what is allowed and should be known.
func (a *attempt) configuration(file string) []check.Finding {
	found := &check.Subject{Group: check.Config, Name: file}
	found.OK("valid")
	for _, warning := range a.cfg.Warnings() {
		found.Warn("%s", warning)
	}
	return found.Findings
}

// cluster finds the API server, and asks who it is and who we are.
func (a *attempt) cluster(ctx context.Context, found *check.Subject) {
	kube, err := kubeConfig(a.place.kubeconfig, a.place.kubeContext)
	if err != nil {
		found.Gap("%v", err)
		return
	}
	found.Name = kube.Host
	for _, warning := range insecureServer(kube) {
		if a.cfg.Strict {
			found.Gap("%s, expected nothing to warn of, as strict is true", warning)
		} else {
			found.Warn("%s", warning)
		}
	}
	client, err := informer.NewClient(kube, float32(a.cfg.Kubernetes.QPS), a.cfg.Kubernetes.Burst, slog.New(slog.DiscardHandler))
	if err != nil {
		found.Gap("%v", err)
		return
	}
	client.MaxObject = int(a.cfg.Kubernetes.MaxObject)
	version, err := client.ServerVersion(ctx)
	if err != nil {
		found.Gap("%v", check.Reason(ctx, err))
		client.Close()
		return
	}
	a.client.Store(client)
	as := ""
	if user, err := client.User(ctx); err == nil { // older servers do not say
		as = ", as " + user
	}
	found.OK("Kubernetes %s answers%s", version, as)
	a.identity(ctx, client, found)
}

// identity asks for the cluster's own.
func (a *attempt) identity(ctx context.Context, client *informer.Client, found *check.Subject) {
	uid, err := client.ClusterUID(ctx)
	switch {
	case err == nil:
		a.uid.Store(&uid)
		name := a.cfg.Cluster
		if name == "" {
			name = uid
		}
		found.OK("its identity is %s, and events name it %s", uid, name)
	case informer.IsForbidden(err) && a.cfg.Cluster != "":
		found.Warn("kbridge may not get the namespace kube-system: another cluster behind the same address will not be noticed")
	case informer.IsForbidden(err):
		found.Skip("its identity: kbridge may not get the namespace kube-system")
	default:
		found.Gap("its identity: %v", check.Reason(ctx, err))
	}
}

// name is the cluster's in events, empty where it is not known.
func (a *attempt) name() string {
	if uid := a.uid.Load(); uid != nil && a.cfg.Cluster == "" {
		return *uid
	}
	return a.cfg.Cluster
}

// noAnswer is why what depends on the cluster is skipped.
const noAnswer = "no API server answers"

// resource says what an entry is on the server, and how much it selects there.
func (a *attempt) resource(ctx context.Context, i int, found *check.Subject) {
	r, client := a.cfg.Resources[i], a.client.Load()
	if client == nil {
		found.Skip(noAnswer)
		return
	}
	served, err := client.Resolve(ctx, r)
	if err != nil {
		found.Gap("%v", check.Reason(ctx, err))
		return
	}
	a.served[i].Store(&served)
	scope := "cluster-scoped"
	if served.Namespaced {
		scope = "namespaced"
	} else if len(r.ExcludeNamespaces) > 0 {
		found.Warn("excludeNamespaces leaves nothing out: %s are cluster-scoped", r.GroupResource())
	}
	what := fmt.Sprintf("%s in %s, %s, %s", served.Kind, schema.GroupVersion{Group: served.Group, Version: served.Version}, scope, selects(&r))
	namespaces := r.Watches()
	if many := len(r.Namespaces); many > config.ManyNamespaces {
		a.manyNamespaces(ctx, client, &r, what, found)
		return
	}
	var counts []string
	for _, ns := range namespaces {
		count, err := client.Count(ctx, served, r, ns)
		switch {
		case informer.IsForbidden(err):
			counts = append(counts, in(ns)+"not counted, as it may not be listed")
		case err != nil:
			found.Gap("%s: %s%v", what, in(ns), check.Reason(ctx, err))
			return
		default:
			counts = append(counts, in(ns)+count.String())
		}
	}
	found.OK("%s; objects: %s", what, strings.Join(counts, ", "))
}

// manyNamespaces says how an entry with many namespaces is watched. What they have is not
// counted, which would take a request for each.
func (a *attempt) manyNamespaces(ctx context.Context, client *informer.Client, r *config.Resource, what string, found *check.Subject) {
	may, err := client.MayWatchAll(ctx, r.APIGroup(), r.Resource)
	switch {
	case err != nil:
		found.Gap("%s: whether it may be watched everywhere: %v", what, check.Reason(ctx, err))
	case may:
		found.OK("%s; one watch of all namespaces serves the %d that are named, as there are more than %d and it may be watched everywhere", what, len(r.Namespaces), config.ManyNamespaces)
	default:
		found.OK("%s; each of its %d namespaces has a watch: one of all of them would do where it may be listed and watched everywhere", what, len(r.Namespaces))
	}
}

// in names a namespace before what is said of it.
func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return namespace + " "
}

// granted is what a grant is for.
func granted(g rbac.Grant) string {
	resource := schema.GroupResource{Group: g.Rule.APIGroups[0], Resource: g.Rule.Resources[0]}.String()
	if len(g.Rule.ResourceNames) > 0 {
		resource += "/" + g.Rule.ResourceNames[0]
	}
	if g.Namespace != "" {
		resource += " in " + g.Namespace
	}
	return resource
}

// permission asks for each verb of a grant.
func (a *attempt) permission(ctx context.Context, g rbac.Grant, found *check.Subject) {
	group, resource, client := g.Rule.APIGroups[0], g.Rule.Resources[0], a.client.Load()
	switch {
	case client == nil:
		found.Skip(noAnswer)
		return
	case len(g.Rule.ResourceNames) == 0 && !a.isServed(group, resource):
		found.Skip("the resource was not found")
		return
	}
	attributes := authorizationv1.ResourceAttributes{Group: group, Resource: resource, Namespace: g.Namespace}
	if len(g.Rule.ResourceNames) > 0 {
		// As the API server has it for a namespace, which is in itself.
		attributes.Name, attributes.Namespace = g.Rule.ResourceNames[0], g.Rule.ResourceNames[0]
	}
	var missing, reasons []string
	for _, verb := range g.Rule.Verbs {
		attributes.Verb = verb
		may, reason, err := client.May(ctx, attributes)
		if err != nil {
			found.Gap("whether it may %s can not be found out: %v", verb, check.Reason(ctx, err))
			return
		}
		if !may {
			missing, reasons = append(missing, verb), append(reasons, reason)
		}
	}
	if len(missing) == 0 {
		found.OK("it may %s", strings.Join(g.Rule.Verbs, " and "))
		return
	}
	text := "it may not " + strings.Join(missing, " and ")
	if reasons[0] != "" {
		text += " (" + reasons[0] + ")"
	}
	found.GapMendedBy(g.Only(missing), "%s", text)
}

// isServed says that an entry's resource was found.
func (a *attempt) isServed(group, resource string) bool {
	for i := range a.served {
		if s := a.served[i].Load(); s != nil && s.Group == group && s.Resource == resource {
			return true
		}
	}
	return false
}
