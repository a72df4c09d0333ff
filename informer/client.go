package informer

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kbridge-io/kbridge/internal/spill"
)

// Client is the connection to one API server, shared by all informers: one HTTP
// transport, one rate limit.
type Client struct {
	// MaxObject is how many bytes of an object are taken, also of one in a list or in a
	// watch. Set it before the client is used.
	MaxObject int

	config    *rest.Config
	http      *http.Client
	discovery *discovery.DiscoveryClient
	limit     flowcontrol.RateLimiter

	mu       turn   // held while the identity is asked for, so that many watches ask once
	cluster  string // the identity that is expected; empty: none is
	asked    time.Time
	lost     time.Time // when a request was not answered: another one may answer the next
	seen     string
	replaced func(error)

	verifying chan struct{} // holds a token while a watch is verified
}

// verifies waits until no other watch is verified, and returns how to say that this one
// is not any more.
func (c *Client) verifies(ctx context.Context) (done func(), err error) {
	select {
	case c.verifying <- struct{}{}:
		return func() { <-c.verifying }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// identityAge is for how long an answer to who the cluster is holds.
const identityAge = time.Second

// Expect has each list and each watch that begins look whether the cluster is still
// that of this UID: to compare another one's list would tell of deletes that never
// were. Where another one answers, replaced is called, once, and must not call back.
func (c *Client) Expect(uid string, replaced func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cluster, c.replaced = uid, replaced
}

// unanswered notes that a request got no answer.
func (c *Client) unanswered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = time.Now()
}

// sameCluster fails where another cluster answers behind the address than at the start.
func (c *Client) sameCluster(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster == "" {
		return nil
	}
	if now := time.Now(); now.Sub(c.asked) > identityAge || !c.asked.After(c.lost) {
		uid, err := c.ClusterUID(ctx)
		switch {
		case apierrors.IsForbidden(err):
			uid = c.cluster // said at the start
		case err != nil:
			return err
		}
		c.seen, c.asked = uid, now
	}
	if c.seen == c.cluster {
		return nil
	}
	err := fmt.Errorf("another cluster answers at %s: kube-system has the UID %s and had %s", c.config.Host, c.seen, c.cluster)
	if c.replaced != nil {
		c.replaced(err)
		c.replaced = nil
	}
	return err
}

// NewClient prepares a client from a rest.Config, without contacting the server.
// qps and burst bound lists, watches that begin with what is there, and discovery for all
// informers together; watches that go on from a version do not count. What the server
// warns of is logged once.
func NewClient(base *rest.Config, qps float32, burst int, log *slog.Logger) (*Client, error) {
	config := rest.CopyConfig(base)
	config.Timeout = 0               // it would end every watch
	config.DisableCompression = true // or WatchList streams are gzipped for life
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return patient{answers{inner}} })
	config.WarningHandlerWithContext = &warnings{log: log}
	limit := flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	config.RateLimiter = limit
	transport, err := transportFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the API server client: %w", err)
	}
	httpClient := &http.Client{Transport: transport}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("prepare the discovery client: %w", err)
	}
	return &Client{
		MaxObject: DefaultMaxObject, config: config, http: httpClient, discovery: discoveryClient, limit: limit,
		verifying: make(chan struct{}, 1),
	}, nil
}

// warnings logs what API servers warn of, such as versions that are to be removed, once
// each: it comes with each request.
type warnings struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]bool
}

// mostWarnings bounds what is remembered.
const mostWarnings = 1000

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _ string, text string) {
	if code != 299 || text == "" { // 299 is the only one that API servers send
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[text] || len(w.seen) >= mostWarnings {
		return
	}
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	w.seen[text] = true
	w.log.Warn("the API server warns", "warning", text)
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

// clients returns those that ask for a resource as it is served.
func (c *Client) clients(s *served, p *packer, aside *spill.File, o observer) (*clients, error) {
	codec, err := newCodec(s.target, s.rules, p, c.MaxObject, aside, o)
	if err != nil {
		return nil, err
	}
	watched, err := c.restClient(s.groupVersion(), codec)
	if err != nil {
		return nil, err
	}
	if codec, err = newCodec(s.target, nil, &packer{}, c.MaxObject, nil, observer{}); err != nil {
		return nil, err
	}
	plain, err := c.restClient(s.groupVersion(), codec)
	if err != nil {
		return nil, err
	}
	return &clients{target: s.target, watched: watched, plain: plain}, nil
}

// ClusterUID returns the UID of the kube-system namespace, which names a cluster
// for as long as it lives.
func (c *Client) ClusterUID(ctx context.Context) (string, error) {
	namespaces := target{Version: "v1", Resource: "namespaces", Kind: "Namespace"}
	codec, err := newCodec(namespaces, nil, &packer{}, c.MaxObject, nil, observer{})
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
