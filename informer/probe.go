package informer

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	clientauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/informer/scan"
)

// What follows asks the API server what a start would find, and starts nothing.

// Served is a resource as the server serves it.
type Served = target

// ServerVersion is the API server's, as in v1.37.2.
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	v, err := c.discovery.ServerVersionWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the server's version: %w", err)
	}
	return v.GitVersion, nil
}

// User is who the API server takes the client for. Servers before Kubernetes 1.28 do not
// say.
func (c *Client) User(ctx context.Context) (string, error) {
	client, err := clientauthenticationv1.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return "", fmt.Errorf("ask who the client is: %w", err)
	}
	review, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask who the client is: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// May asks whether the client may do something, and for the server's reason if not.
func (c *Client) May(ctx context.Context, a authorizationv1.ResourceAttributes) (may bool, reason string, err error) {
	client, err := clientauthorizationv1.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return false, "", fmt.Errorf("ask for a permission: %w", err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	if review, err = client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{}); err != nil {
		return false, "", fmt.Errorf("ask for a permission: %w", err)
	}
	if reason = review.Status.Reason; reason == "" {
		reason = review.Status.EvaluationError
	}
	return review.Status.Allowed, reason, nil
}

// MayWatchAll says whether the client may list and watch a resource in all namespaces. A
// server that knows no such questions, or lets nobody ask them, says no.
func (c *Client) MayWatchAll(ctx context.Context, group, resource string) (bool, error) {
	for _, verb := range []string{"list", "watch"} {
		may, _, err := c.May(ctx, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Verb: verb})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsMethodNotSupported(err):
			return false, nil
		case err != nil:
			return false, err
		case !may:
			return false, nil
		}
	}
	return true, nil
}

// Resolve finds what an entry's resource is on the server. What can not be selected is an
// error, which says what is meant perhaps.
func (c *Client) Resolve(ctx context.Context, r config.Resource) (Served, error) {
	t, err := c.resolve(ctx, r.APIGroup(), r.Version, r.Resource)
	if errors.Is(err, ErrNotServed) {
		return Served{}, c.suggest(ctx, r, err)
	}
	if err != nil {
		return Served{}, err
	}
	if err := t.selectable(r.Namespaces); err != nil {
		return Served{}, err
	}
	return t, nil
}

// Count is how many objects there are, or at least are.
type Count struct {
	Objects int64
	AtLeast bool // the time was over before all were counted
}

// String is the number in words.
func (c Count) String() string {
	if c.AtLeast {
		return fmt.Sprintf("at least %d", c.Objects)
	}
	return fmt.Sprint(c.Objects)
}

// Count counts the objects that an entry selects, without their bodies, and where the
// server knows the number without them at all. namespace is one of the entry's, or empty.
func (c *Client) Count(ctx context.Context, s Served, r config.Resource, namespace string) (Count, error) {
	lw, err := c.counting(s)
	if err != nil {
		return Count{}, err
	}
	lw.namespace, lw.labelSelector, lw.fieldSelector = namespace, r.LabelSelector, r.FieldSelector
	total, err := lw.count(ctx)
	if err != nil || !s.Namespaced {
		return total, err
	}
	for _, ns := range r.ExcludeNamespaces {
		lw.namespace = ns
		excluded, err := lw.count(ctx)
		if err != nil {
			return Count{}, err
		}
		total.Objects -= excluded.Objects
		total.AtLeast = total.AtLeast || excluded.AtLeast
	}
	total.Objects = max(total.Objects, 0) // they were counted one after the other
	return total, nil
}

// counting makes requests that are observed by nobody.
func (c *Client) counting(s Served) (*listWatch, error) {
	codec, err := newCodec(s, nil, &packer{}, c.MaxObject, nil, observer{})
	if err != nil {
		return nil, err
	}
	client, err := c.restClient(s.groupVersion(), codec)
	if err != nil {
		return nil, err
	}
	lw := &listWatch{}
	lw.served.Store(&clients{target: s, plain: client})
	return lw, nil
}

// count asks for one object and for how many more there are. With a selector the server
// does not say, and metadata is listed page by page, until ctx ends.
func (lw *listWatch) count(ctx context.Context) (Count, error) {
	var c Count
	for o := (metav1.ListOptions{Limit: 1}); ; o.Limit = pageObjects {
		body, err := lw.metadataBody(ctx, o)
		if next := continues(err); next != "" {
			o.Continue = next
			continue
		}
		switch {
		case err != nil && c.Objects > 0 && ctx.Err() != nil:
			c.AtLeast = true
			return c, nil
		case err != nil:
			return c, fmt.Errorf("list: %w", err)
		}
		list, err := scan.List(body, func([]byte) error { c.Objects++; return nil })
		switch {
		case err != nil:
			return c, fmt.Errorf("decode a list of metadata: %w", err)
		case list.RemainingItemCount != nil:
			c.Objects += *list.RemainingItemCount
			return c, nil
		case list.Continue == "":
			return c, nil
		}
		o.Continue = list.Continue
	}
}

// IsForbidden says that the server does not allow what has failed.
func IsForbidden(err error) bool { return apierrors.IsForbidden(err) }
