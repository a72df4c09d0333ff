package main

import "github.com/prometheus/client_golang/prometheus"

var (
	readyDesc      = prometheus.NewDesc("kbridge_ready", "1 while /readyz answers that all is well.", nil, nil)
	entryReadyDesc = prometheus.NewDesc("kbridge_entry_ready", "1 while the entry's objects are known, its watches are allowed, and it can be compared with the server.", []string{"entry", "resource"}, nil)
	sinkReadyDesc  = prometheus.NewDesc("kbridge_sink_ready", "1 while the sink can take events, and its dead letters can be written.", []string{"sink"}, nil)
)

// readiness tells in metrics what /readyz tells, and of what.
type readiness struct{ d *daemon }

var _ prometheus.Collector = readiness{}

func (readiness) Describe(descs chan<- *prometheus.Desc) {
	descs <- readyDesc
	descs <- entryReadyDesc
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
	for n, name := range r.d.names {
		gauge(entryReadyDesc, n < len(r.d.selected) && r.d.selected[n].informer.Err() == nil, name, r.d.cfg.Resources[n].GroupResource())
	}
}
