package informer

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the informers of a process do.
type Metrics struct {
	deltas    *prometheus.CounterVec
	excluded  *prometheus.CounterVec
	unchanged *prometheus.CounterVec
	bookmarks *prometheus.CounterVec
	lists     *prometheus.CounterVec
	errors    *prometheus.CounterVec
	tooLarge  *prometheus.CounterVec
	objects   *prometheus.GaugeVec
	bytes     *prometheus.GaugeVec
	synced    *prometheus.GaugeVec

	verifications, differences *prometheus.CounterVec
}

// NewMetrics registers the informers' metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		reg.MustRegister(g)
		return g
	}
	return &Metrics{
		deltas:        counter("kbridge_deltas_total", "Deltas that informers handed to the lanes.", "resource", "type"),
		excluded:      counter("kbridge_excluded_total", "Objects that the server sent and excludeNamespaces left out.", "resource"),
		unchanged:     counter("kbridge_unchanged_total", "Objects that a relist found in the state already known.", "resource"),
		bookmarks:     counter("kbridge_bookmarks_total", "Bookmarks received.", "resource"),
		lists:         counter("kbridge_lists_total", "Lists begun, by what made them necessary: start, expired (the watch's version was too old), behind (the server's version is older than ours), differs (a verification found other objects than ours), failed (the list before failed).", "resource", "reason"),
		errors:        counter("kbridge_list_watch_errors_total", "Lists and watches that failed.", "resource"),
		tooLarge:      counter("kbridge_too_large_total", "Objects in lists and frames of watches that were larger than kubernetes.maxObject.", "resource"),
		objects:       gauge("kbridge_objects", "Objects in the index.", "resource"),
		bytes:         gauge("kbridge_index_bytes", "Bytes of the objects in the index.", "resource"),
		verifications: counter("kbridge_verifications_total", "Comparisons of the objects that are known with those of the server, by outcome: same, differ, failed.", "resource", "outcome"),
		differences:   counter("kbridge_verify_differences_total", "Objects that a verification found different from the server's, and that were mended.", "resource"),
		synced:        gauge("kbridge_synced", "1 once the first list of each of the resource's watches has been handed to the lanes.", "resource"),
	}
}

// verifierMetrics are a verifier's own, looked up once.
type verifierMetrics struct{ same, differ, failed, differences prometheus.Counter }

func newVerifierMetrics(m *Metrics, resource string) verifierMetrics {
	return verifierMetrics{
		same:        m.verifications.WithLabelValues(resource, "same"),
		differ:      m.verifications.WithLabelValues(resource, "differ"),
		failed:      m.verifications.WithLabelValues(resource, "failed"),
		differences: m.differences.WithLabelValues(resource),
	}
}
