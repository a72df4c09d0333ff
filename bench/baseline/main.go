// Command baseline is what a user would write in place of kbridge: client-go's dynamic
// shared informer, json.Marshal, and a broker's usual client. It has no state, no ids, no
// order across retries, and it does not notice what a broker refuses but counts it.
//
// It drops managedFields, as kbridge does by default, so that both send the same content.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kbridge-io/kbridge/bench/objects"
)

func main() {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // for as long as the process lives
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig file")
	resource := flag.String("resource", "pods", "what to watch")
	sink := flag.String("sink", "stdout", "stdout, nats or kafka")
	address := flag.String("address", "", "the broker's URL or address")
	name := flag.String("name", "", "the stream or topic, which is there")
	flag.Parse()
	if err := run(ctx, *kubeconfig, *resource, *sink, *address, *name); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

// sender sends one object. acknowledged moves when the broker has it.
type sender func(namespace, name string, value []byte) error

func run(ctx context.Context, kubeconfig, resource, sink, address, name string) error {
	kind, err := objects.ByResource(resource)
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	acknowledged := prometheus.NewCounter(prometheus.CounterOpts{Name: "baseline_acknowledged_total", Help: "Objects that the broker has."})
	failures := prometheus.NewCounter(prometheus.CounterOpts{Name: "baseline_failures_total", Help: "Objects that were not sent."})
	synced := prometheus.NewGauge(prometheus.GaugeOpts{Name: "baseline_synced", Help: "1 once the first list was handled."})
	reg.MustRegister(collectors.NewGoCollector(), acknowledged, failures, synced)

	send, err := open(ctx, sink, address, name, acknowledged.Inc, failures.Inc)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.DisableCompression = true // as kbridge does
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	informer := factory.ForResource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Resource}).Informer()
	if err := informer.SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(*unstructured.Unstructured); ok {
			unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
		}
		return obj, nil
	}); err != nil {
		return err
	}
	handle := func(obj any) {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			failures.Inc()
			return
		}
		value, err := json.Marshal(o)
		if err == nil {
			err = send(o.GetNamespace(), o.GetName(), value)
		}
		if err != nil {
			failures.Inc()
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }, DeleteFunc: handle,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "serving metrics address=%s\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // it ends with Close below

	factory.Start(ctx.Done())
	if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		synced.Set(1)
	}
	<-ctx.Done()
	factory.Shutdown()
	return server.Close()
}
