package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/informer"
)

var (
	readyDesc      = prometheus.NewDesc("kbridge_ready", "1 while /readyz answers that all is well.", nil, nil)
	entryReadyDesc = prometheus.NewDesc("kbridge_entry_ready", "1 while the entry's objects are known, its watches are allowed, and it can be compared with the server.", []string{"entry", "resource"}, nil)
	watchUpDesc    = prometheus.NewDesc("kbridge_watch_up", "1 while all of the entry's watches go on. A watch that ends goes on within a second or two.", []string{"entry", "resource"}, nil)
	watchDownDesc  = prometheus.NewDesc("kbridge_watches_down", "Watches of the entry that do not go on, by what keeps them from it.", []string{"entry", "resource", "reason"}, nil)
	watchHeardDesc = prometheus.NewDesc("kbridge_watch_heard_seconds", "Seconds since the API server sent something on the entry's watch of which nothing was heard for longest: a change or a bookmark, of which there is one a minute.", []string{"entry", "resource"}, nil)
	sinkReadyDesc  = prometheus.NewDesc("kbridge_sink_ready", "1 while the sink can take events, and its dead letters can be written.", []string{"sink"}, nil)
)

// readiness tells in metrics what /readyz tells, and of what.
type readiness struct{ d *daemon }

var _ prometheus.Collector = readiness{}

func (readiness) Describe(descs chan<- *prometheus.Desc) {
	descs <- readyDesc
	descs <- entryReadyDesc
	descs <- watchUpDesc
	descs <- watchDownDesc
	descs <- watchHeardDesc
	descs <- sinkReadyDesc
}

func (r readiness) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, is bool, labels ...string) {
		value := 0.0
		if is {
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(readyDesc, unready(r.d.problems()) == 0)
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for _, o := range r.d.outputs {
		gauge(sinkReadyDesc, unready(o.problems()) == 0, o.entry.Name)
	}
	now := time.Now()
	for n, name := range r.d.names {
		var w informer.Watches
		ready := false
		if n < len(r.d.selected) {
			w, ready = r.d.selected[n].informer.Watches(), r.d.selected[n].informer.Err() == nil
		}
		resource := r.d.cfg.Resources[n].GroupResource()
		gauge(entryReadyDesc, ready, name, resource)
		gauge(watchUpDesc, w.All > 0 && w.Up == w.All, name, resource)
		for _, reason := range informer.Reasons {
			metrics <- prometheus.MustNewConstMetric(watchDownDesc, prometheus.GaugeValue, float64(w.Down[reason]), name, resource, string(reason))
		}
		if !w.Heard.IsZero() {
			metrics <- prometheus.MustNewConstMetric(watchHeardDesc, prometheus.GaugeValue, now.Sub(w.Heard).Seconds(), name, resource)
		}
	}
}
