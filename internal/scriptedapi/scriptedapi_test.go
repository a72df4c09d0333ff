package scriptedapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

var (
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deploys = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// bench is a server with pods, deployments and widgets, and client-go's dynamic client before it.
type bench struct {
	*Server
	client dynamic.Interface
	t      *testing.T
}

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // client-go reports every fault that it meets
	os.Exit(m.Run())
}

// scripted runs f in a bubble, which fails the test if f leaves a goroutine.
func scripted(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		s.Register(pods, "Pod", true)
		s.Register(deploys, "Deployment", true)
		s.Register(widgets, "Widget", true)
		s.SetTypedItems(widgets, true)
		client, err := dynamic.NewForConfig(s.Config())
		if err != nil {
			t.Fatal(err)
		}
		f(t, &bench{s, client, t})
	})
}

func (b *bench) list(opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return b.client.Resource(pods).List(b.t.Context(), opts)
}

func (b *bench) mustList(opts metav1.ListOptions) *unstructured.UnstructuredList {
	b.t.Helper()
	l, err := b.list(opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

func (b *bench) watch(opts metav1.ListOptions) watch.Interface {
	b.t.Helper()
	w, err := b.client.Resource(pods).Watch(b.t.Context(), opts)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// read returns the body of an answer as it is on the wire.
func (b *bench) read(path string) string {
	b.t.Helper()
	client, err := rest.HTTPClientFor(b.Config())
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := client.Get(b.Config().Host + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(body)
}

// drain returns the events that have arrived, in short, and whether the watch has ended.
func drain(w watch.Interface) (events []string, ended bool) {
	for {
		synctest.Wait()
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return events, true
			}
			events = append(events, short(e))
		default:
			return events, false
		}
	}
}

// short is "TYPE name@version", or "ERROR code reason".
func short(e watch.Event) string {
	if st, ok := e.Object.(*metav1.Status); ok {
		return fmt.Sprintf("%s %d %s", e.Type, st.Code, st.Reason)
	}
	o := e.Object.(*unstructured.Unstructured)
	return fmt.Sprintf("%s %s@%s", e.Type, o.GetName(), o.GetResourceVersion())
}

func names(l *unstructured.UnstructuredList) string {
	var out []string
	for _, o := range l.Items {
		out = append(out, o.GetName())
	}
	return strings.Join(out, " ")
}

func wantEvents(t *testing.T, w watch.Interface, want ...string) {
	t.Helper()
	got, ended := drain(w)
	if ended {
		got = append(got, "END")
	}
	if !slices.Equal(got, want) {
		t.Errorf("events\n got %q\nwant %q", got, want)
	}
}

func TestAServerOutsideABubbleLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := New()
	s.Register(pods, "Pod", true)
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resource(pods).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	w, err := client.Resource(pods).Watch(t.Context(), metav1.ListOptions{ResourceVersion: s.Version()})
	if err != nil {
		t.Fatal(err)
	}
	v := s.Create(pods, NewObject("shop", "a"))
	if e := <-w.ResultChan(); short(e) != "ADDED a@"+v {
		t.Errorf("event %s", short(e))
	}
	s.Close()
	s.Close() // a second time does nothing
	for range w.ResultChan() {
	}
}

// mirror is the store of a Reflector: the objects by name, with their versions, and what was called.
type mirror struct {
	mu    sync.Mutex
	items map[string]string
	calls []string
}

func (m *mirror) set(call string, obj any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := obj.(*unstructured.Unstructured)
	m.calls = append(m.calls, fmt.Sprintf("%s %s@%s", call, o.GetName(), o.GetResourceVersion()))
	if call == "delete" {
		delete(m.items, o.GetName())
	} else {
		m.items[o.GetName()] = o.GetResourceVersion()
	}
	return nil
}

func (m *mirror) Add(obj any) error    { return m.set("add", obj) }
func (m *mirror) Update(obj any) error { return m.set("update", obj) }
func (m *mirror) Delete(obj any) error { return m.set("delete", obj) }
func (m *mirror) Resync() error        { return nil }

func (m *mirror) Replace(list []any, version string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = map[string]string{}
	for _, obj := range list {
		o := obj.(*unstructured.Unstructured)
		m.items[o.GetName()] = o.GetResourceVersion()
	}
	m.calls = append(m.calls, fmt.Sprintf("replace %d@%s", len(list), version))
	return nil
}

func (m *mirror) state() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprint(m.items)
}

// take returns the calls since the last take.
func (m *mirror) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

// reflect runs a Reflector for the pods over a mirror; stop ends it.
func (b *bench) reflect() (m *mirror, stop func()) {
	ri := b.client.Resource(pods)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return ri.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return ri.Watch(ctx, o)
		},
	}, b.client)
	m = &mirror{items: map[string]string{}}
	r := cache.NewReflectorWithOptions(lw, &unstructured.Unstructured{}, m, cache.ReflectorOptions{})
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.RunWithContext(ctx)
	}()
	synctest.Wait()
	return m, func() { cancel(); <-done }
}

// settles fails unless the mirror comes to hold what the server holds, within a minute of virtual time.
func (b *bench) settles(m *mirror) {
	b.t.Helper()
	want := map[string]string{}
	for _, o := range b.truth() {
		want[o[0]] = o[1]
	}
	for range 60 {
		synctest.Wait()
		if m.state() == fmt.Sprint(want) {
			return
		}
		time.Sleep(time.Second)
	}
	b.t.Fatalf("mirror has %v, server %v", m.state(), want)
}

func (b *bench) truth() (out [][2]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, o := range b.resources[pods].objects {
		out = append(out, [2]string{k.name, b.label(o.version)})
	}
	return out
}
