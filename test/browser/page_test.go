package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	_ "image/png" // the format of screenshots
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

var update = flag.Bool("update", false, "write the screenshot "+screenshot)

const screenshot = "../../docs/images/page.png"

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// TestThePageShowsAClusterAndABrokenSinkLive is the page's day: changes come, a broker goes and comes back, kbridge ends.
func TestThePageShowsAClusterAndABrokenSinkLive(t *testing.T) {
	b := open(t, 1200, 900)
	cluster := testcluster.New(t) // its namespaces are seen in the picture
	broker, spare := natsserver.New(t, ""), natsserver.New(t, "")
	create(t, cluster, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", "Namespace", "shop")
	d := run(t, cluster, fmt.Sprintf(`
cluster: prod-eu
resources:
  - {resource: namespaces}
  - {resource: configmaps}
  - {resource: services}
  - {group: rbac.authorization.k8s.io, resource: clusterroles}
sinks:
  - {name: audit, nats: {urls: ['%s']}}
  - {name: live, nats: {urls: ['%s']}}
state: {file: {dir: var/lib/kbridge}}
`, broker.URL(), spare.URL()))
	b.do(chromedp.Navigate(d.origin + "/"))
	b.reads("#problems", "Nothing.")
	b.reads("#about", "prod-eu", "v0.9.0")
	b.reads("#link", "live")
	b.reads("#resources", "configmaps", "clusterroles.rbac.authorization.k8s.io", "start 1", "none")
	b.reads("#sinks", "audit", broker.URL(), "of 65,536", "no")
	b.reads("#state", "Last stored", "ago")
	b.reads("#events", "None since this page is open.")

	for i := range 8 {
		create(t, cluster, configMaps, "shop", "ConfigMap", fmt.Sprintf("checkout-%d", i))
	}
	b.reads("#events", "shop/checkout-7", "added", "configmaps", "audit", "live")
	if err := cluster.Dynamic(t).Resource(configMaps).Namespace("shop").Delete(t.Context(), "checkout-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.reads("#events", "shop/checkout-3", "deleted")
	b.reads("#resources", "now") // of the last change

	broker.Kill()
	create(t, cluster, configMaps, "shop", "ConfigMap", "basket-1")
	b.reads("#problems", "Not ready. sink audit", "connection refused", "does the broker run", "for ", "\u00a0s")
	b.reads("#announcer", "Problem. sink audit")
	b.reads("#events", "shop/basket-1")
	b.reads("#sinks", "1 of 65,536")
	take(t, b)
	if title := eval[string](b, "document.title"); title != "(1) kbridge prod-eu" {
		t.Errorf("the title is %q", title)
	}
	if text := b.text("#problems"); strings.Contains(text, "sink live") || strings.Contains(text, "Nothing.") {
		t.Errorf("what is wrong is told as\n%s", text)
	}
	broker.Start()
	b.reads("#problems", "Nothing.")
	b.reads("#announcer", "Over: sink audit")
	b.reads("#sinks", "last error", "connection refused")
	if text := b.text("body"); strings.Contains(text, "a-value-of-the-body") {
		t.Error("the page shows a body")
	}
	b.quiet(d.origin)

	d.stop() // though the stream is open
	b.reads("#problems", "Not ready. This page: kbridge does not answer.", "as it was before")
	b.reads("#link", "no answer for")
	b.reads("#resources", "configmaps")
}

// create makes an object with a body that no page may show.
func create(t *testing.T, cluster *testcluster.Cluster, gvr schema.GroupVersionResource, namespace, kind, name string) {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "annotations": map[string]any{"shows": "a-value-of-the-body"}},
	}}
	if _, err := cluster.Dynamic(t).Resource(gvr).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// take takes the picture for the README, and writes it down where that is asked for.
func take(t *testing.T, b *tab) {
	t.Helper()
	b.media("prefers-color-scheme", "light")
	b.do(chromedp.EmulateViewport(1200, min(eval[int64](b, "document.documentElement.scrollHeight"), 1000)))
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	cfg, kind, err := image.DecodeConfig(bytes.NewReader(picture))
	if err != nil || kind != "png" || cfg.Width != 1200 || len(picture) > 200_000 {
		t.Errorf("the picture is a %s of %d×%d pixels and %d bytes, %v", kind, cfg.Width, cfg.Height, len(picture), err)
	}
	if *update {
		if err := os.WriteFile(screenshot, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
