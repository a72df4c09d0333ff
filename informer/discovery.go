package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is a resource as the server serves it.
type target struct {
	Group, Version, Resource, Kind string
	Namespaced                     bool
}

func (t target) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: t.Group, Version: t.Version}
}

// selectable says why the resource can not be selected in single namespaces, or nil.
func (t target) selectable(namespaces []string) error {
	if len(namespaces) > 0 && !t.Namespaced {
		return errClusterScoped
	}
	return nil
}

var errClusterScoped = errors.New("it is cluster-scoped and can not be selected by namespaces: leave `namespaces` out")

// ErrNotServed is what Err returns where the server does not have the resource, or not one
// that can be listed and watched: a CRD that is not installed yet, or a name misspelt.
var ErrNotServed = errors.New("not served")

type notServedError struct{ what string }

func (e *notServedError) Error() string        { return e.what }
func (e *notServedError) Is(target error) bool { return target == ErrNotServed }

// resolve asks the server for the resource's kind and scope and, where version is
// empty, for the version it prefers among those that serve the resource.
func (c *Client) resolve(ctx context.Context, group, version, resource string) (target, error) {
	versions := []string{version}
	if version == "" {
		var err error
		if versions, err = c.versions(ctx, group); err != nil {
			return target{}, err
		}
	}
	name := schema.GroupResource{Group: group, Resource: resource}.String()
	for _, v := range versions {
		gv := schema.GroupVersion{Group: group, Version: v}
		list, err := c.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return target{}, fmt.Errorf("discover %s%s: %w", gv, apiService(gv), err)
		}
		for _, r := range list.APIResources {
			if r.Name != resource {
				continue
			}
			if !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				return target{}, &notServedError{fmt.Sprintf("%s in version %s can not be listed and watched: it offers %v", name, v, r.Verbs)}
			}
			return target{Group: group, Version: v, Resource: resource, Kind: r.Kind, Namespaced: r.Namespaced}, nil
		}
	}
	if version != "" {
		return target{}, &notServedError{fmt.Sprintf("the server does not have %s in version %s", name, version)}
	}
	return target{}, &notServedError{fmt.Sprintf("the server does not have %s", name)}
}

// apiService names what registers a group and version with the API server. Where it can not
// be discovered that has mostly to do with a server behind it.
func apiService(gv schema.GroupVersion) string {
	if !strings.Contains(gv.Group, ".") {
		return "" // built in
	}
	return fmt.Sprintf(" (see the APIService %s.%s)", gv.Version, gv.Group)
}

// versions returns the versions that the server has of a group, the preferred one first.
func (c *Client) versions(ctx context.Context, group string) ([]string, error) {
	groups, err := c.discovery.ServerGroupsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("discover groups: %w", err)
	}
	i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	if i < 0 {
		return nil, nil
	}
	g := groups.Groups[i]
	versions := []string{g.PreferredVersion.Version}
	for _, v := range g.Versions {
		if v.Version != g.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}
