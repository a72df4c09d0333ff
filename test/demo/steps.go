//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

const (
	namespace   = "shop"
	widgetGroup = "demo.kbridge.dev"
)

var (
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crds        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	widgets     = schema.GroupVersionResource{Group: widgetGroup, Version: "v1", Resource: "widgets"}
)

// step is one change, and the one event that it must cause.
type step struct {
	what     string
	do       func(context.Context, *client) (version string, err error)
	event    string // the short type
	resource string
	name     string
	changed  string // what kbridge tail says about an update
	version  string // what the API server answered; empty for a deletion
}

// markers are what kbridge says when it begins to watch a resource: the begin and the
// end of a snapshot. It may begin with one resource before it is done with another.
var markers = func() (lines []string) {
	for _, resource := range []string{"deployments.apps", "configmaps", "secrets", "widgets." + widgetGroup} {
		lines = append(lines, resource+" started in "+namespace, resource+" completed in "+namespace+", 0 objects")
	}
	return lines
}()

// canary is a value that must be found where the Secret's must not: it shows that
// the search works.
const canary = "kbridge-demo-canary"

// steps are the changes. None of the objects has a controller here, so nobody else
// changes them.
func (d *demo) steps(secret secretValue) []step {
	deployment := object(deployments, "Deployment", "checkout", map[string]any{"spec": map[string]any{
		"replicas": 3,
		"selector": map[string]any{"matchLabels": map[string]any{"app": "checkout"}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "checkout"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "checkout:v1"}}},
		},
	}})
	settings := object(configMaps, "ConfigMap", "settings", map[string]any{"data": map[string]any{"mode": "slow", "canary": canary}})
	widget := object(widgets, "Widget", "gear", map[string]any{"spec": map[string]any{"teeth": 12}})
	return []step{
		{what: "create the Deployment shop/checkout with 3 replicas", do: create(deployments, deployment),
			event: "added", resource: "deployments.apps", name: "shop/checkout"},
		{what: "create the ConfigMap shop/settings", do: create(configMaps, settings),
			event: "added", resource: "configmaps", name: "shop/settings"},
		{what: "apply the Secret shop/db (as kubectl does, with a copy in an annotation)", do: create(secrets, secret.object()),
			event: "added", resource: "secrets", name: "shop/db"},
		{what: "create the Widget shop/gear, a custom resource", do: create(widgets, widget),
			event: "added", resource: "widgets.demo.kbridge.dev", name: "shop/gear"},
		{what: "scale the Deployment shop/checkout to 5 replicas", do: scale("checkout", 5),
			event: "updated", resource: "deployments.apps", name: "shop/checkout", changed: "spec.replicas: 3 → 5"},
		{what: "edit the ConfigMap shop/settings", do: patch(configMaps, "settings", `{"data":{"mode":"fast"}}`),
			event: "updated", resource: "configmaps", name: "shop/settings", changed: "data.mode: slow → fast"},
		{what: "label the Deployment shop/checkout", do: patch(deployments, "checkout", `{"metadata":{"labels":{"tier":"web"}}}`),
			event: "updated", resource: "deployments.apps", name: "shop/checkout", changed: "+metadata.labels.tier: web"},
		{what: "set a new image in the Deployment shop/checkout", do: setImage("checkout", "web", "checkout:v2"),
			event: "updated", resource: "deployments.apps", name: "shop/checkout", changed: "spec.template.spec.containers[web].image: checkout:v1 → checkout:v2"},
		{what: "add a key to the Secret shop/db", do: patch(secrets, "db", `{"stringData":{"user":"`+string(secret)+`"}}`),
			event: "updated", resource: "secrets", name: "shop/db", changed: "+data.user"},
		{what: "change that value in the Secret shop/db", do: patch(secrets, "db", `{"stringData":{"user":"new-`+string(secret)+`"}}`),
			event: "updated", resource: "secrets", name: "shop/db", changed: "(no visible change: values are not shown)"},
		{what: "edit the Widget shop/gear", do: patch(widgets, "gear", `{"spec":{"teeth":24}}`),
			event: "updated", resource: "widgets.demo.kbridge.dev", name: "shop/gear", changed: "spec.teeth: 12 → 24"},
		{what: "kill -9 kbridge, delete the ConfigMap shop/settings unseen, start it again", do: d.whileDown(remove(configMaps, "settings")),
			event: "deleted", resource: "configmaps", name: "shop/settings"},
		{what: "delete the Secret shop/db", do: remove(secrets, "db"),
			event: "deleted", resource: "secrets", name: "shop/db"},
		{what: "delete the Widget shop/gear", do: remove(widgets, "gear"),
			event: "deleted", resource: "widgets.demo.kbridge.dev", name: "shop/gear"},
		{what: "delete the Deployment shop/checkout", do: remove(deployments, "checkout"),
			event: "deleted", resource: "deployments.apps", name: "shop/checkout"},
	}
}

// secretValue is what must not leave the cluster.
type secretValue string

func newSecret() (secretValue, error) {
	random := make([]byte, 15) // a multiple of 3, so that its base64 form is found in that of a longer text too
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make a secret value: %w", err)
	}
	return secretValue(hex.EncodeToString(random)), nil
}

// forms are the ways in which the value could be written.
func (s secretValue) forms() []string {
	return []string{string(s), base64.StdEncoding.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte("new-" + s))}
}

// object is the Secret as kubectl apply makes it: the whole manifest in an annotation.
func (s secretValue) object() map[string]any {
	o := object(secrets, "Secret", "db", map[string]any{"stringData": map[string]any{"password": string(s)}})
	manifest, err := json.Marshal(o)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	o["metadata"].(map[string]any)["annotations"] = map[string]any{
		"kubectl.kubernetes.io/last-applied-configuration": string(manifest),
		"demo.kbridge.dev/copy":                            string(manifest),
	}
	return o
}

func object(gvr schema.GroupVersionResource, kind, name string, rest map[string]any) map[string]any {
	o := map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": name},
	}
	for k, v := range rest {
		o[k] = v
	}
	return o
}

// client changes the cluster.
type client struct{ dynamic dynamic.Interface }

// newClient returns a client, and makes the namespace.
func newClient(ctx context.Context, cluster *testcluster.Cluster) (*client, error) {
	d, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		return nil, err
	}
	c := &client{d}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
	if _, err := d.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the namespace %s: %w", namespace, err)
	}
	return c, nil
}

// defineWidgets defines the custom resource and waits until the server has it.
func (c *client) defineWidgets(ctx context.Context) error {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + widgetGroup},
		"spec": map[string]any{
			"group": widgetGroup, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := c.dynamic.Resource(crds).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("define widgets: %w", err)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, last = c.dynamic.Resource(widgets).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for widgets to be served: %w; %w", err, last)
	}
	return nil
}

type action = func(context.Context, *client) (version string, err error)

func create(gvr schema.GroupVersionResource, o map[string]any) action {
	return func(ctx context.Context, c *client) (string, error) {
		body, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(body); err != nil {
			return "", err
		}
		return version(c.dynamic.Resource(gvr).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{}))
	}
}

func patch(gvr schema.GroupVersionResource, name, body string) action {
	return func(ctx context.Context, c *client) (string, error) {
		return version(c.dynamic.Resource(gvr).Namespace(namespace).Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}))
	}
}

// setImage changes one container, as kubectl set image does.
func setImage(name, container, image string) action {
	return func(ctx context.Context, c *client) (string, error) {
		body := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, container, image)
		return version(c.dynamic.Resource(deployments).Namespace(namespace).
			Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}))
	}
}

// scale goes through the subresource, as kubectl scale does; its answer has the
// Deployment's version.
func scale(name string, replicas int) action {
	return func(ctx context.Context, c *client) (string, error) {
		body := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
		return version(c.dynamic.Resource(deployments).Namespace(namespace).
			Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, "scale"))
	}
}

func remove(gvr schema.GroupVersionResource, name string) action {
	return func(ctx context.Context, c *client) (string, error) {
		background := metav1.DeletePropagationBackground
		return "", c.dynamic.Resource(gvr).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
	}
}

func version(o *unstructured.Unstructured, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return o.GetResourceVersion(), nil
}
