package tail

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/event"
)

var (
	deployments = event.NewResource(event.ResourceInfo{Cluster: "test", Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"})
	nodes       = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "nodes", Kind: "Node"})
	secrets     = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "secrets", Kind: "Secret"})
	changed     = event.NewResource(event.ResourceInfo{Cluster: "test", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Change: true})
	elsewhere   = event.NewResource(event.ResourceInfo{Cluster: "other", Version: "v1", Resource: "nodes", Kind: "Node"})
)

// object makes a state. rest is what follows metadata.
func object(name, version, rest string) *event.Object {
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "", namespace
	}
	return &event.Object{
		Namespace: namespace, Name: name, UID: "uid-of-" + name, ResourceVersion: version,
		Body: []byte(`{"apiVersion":"v1","kind":"K","metadata":{"name":"` + name + `","resourceVersion":"` + version + `"}` + rest + `}`),
	}
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 123456000, time.UTC)

func delta(t event.Type, r *event.Resource, o *event.Object) *event.Delta {
	return &event.Delta{Type: t, Resource: r, Object: o, Time: noon}
}

// decoded is the delta's event as a reader gets it.
func decoded(t *testing.T, d *event.Delta, format event.Format) *Event {
	t.Helper()
	var e event.Event
	d.Encode(&e, format, nil)
	return read(t, &e)
}

// read is the event as a reader gets it.
func read(t *testing.T, e *event.Event) *Event {
	t.Helper()
	headers := map[string][]string{"content-type": {e.ContentType()}}
	if e.Format == event.Binary {
		headers["ce-datacontenttype"] = []string{event.DataContentType}
		e.Attributes(func(name, value string) { headers["ce-"+name] = []string{value} })
	}
	got, err := Decode(headers, e.Value)
	if err != nil {
		t.Fatalf("decode %s: %v", e.ID, err)
	}
	return got
}

var discard = slog.New(slog.DiscardHandler)

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
