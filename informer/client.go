package informer

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client is the connection to one API server, shared by all informers: one HTTP
// transport, one rate limit.
type Client struct {
	config    *rest.Config
	http      *http.Client
	discovery *discovery.DiscoveryClient
}

// NewClient prepares a client from a rest.Config, without contacting the server.
// qps and burst bound lists and discovery for all informers together; watches do
// not count.
func NewClient(base *rest.Config, qps float32, burst int) (*Client, error) {
	config := rest.CopyConfig(base)
	config.Timeout = 0               // it would end every watch
	config.DisableCompression = true // or WatchList streams are gzipped for life
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the API server client: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("prepare the discovery client: %w", err)
	}
	return &Client{config: config, http: httpClient, discovery: discoveryClient}, nil
}

// Host is the API server's address, for messages.
func (c *Client) Host() string { return c.config.Host }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// restClient returns a client for one group and version that decodes with codec.
func (c *Client) restClient(gv schema.GroupVersion, codec runtime.NegotiatedSerializer) (*rest.RESTClient, error) {
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codec
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientForConfigAndClient(config, c.http)
	if err != nil {
		return nil, fmt.Errorf("prepare the client for %s: %w", gv, err)
	}
	return client, nil
}

// ClusterUID returns the UID of the kube-system namespace, which names a cluster
// for as long as it lives.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	namespaces := target{Version: "v1", Resource: "namespaces", Kind: "Namespace"}
	codec, err := newCodec(namespaces, nil, observer{})
	if err != nil {
		return "", err
	}
	client, err := c.restClient(namespaces.groupVersion(), codec)
	if err != nil {
		return "", err
	}
	obj, err := client.Get().Resource("namespaces").Name("kube-system").Do(ctx).Get()
	if err != nil {
		return "", fmt.Errorf("get namespace kube-system: %w", err)
	}
	ns, ok := obj.(*object)
	if !ok || ns.Object.UID == "" {
		return "", fmt.Errorf("get namespace kube-system: the server's answer has no uid")
	}
	return ns.Object.UID, nil
}
