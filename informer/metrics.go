package informer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
)

// Metrics counts what the informers of a process do, by the configuration's entries: the
// watches of one entry add up.
type Metrics struct {
	deltas    *prometheus.CounterVec
	excluded  *prometheus.CounterVec
	unchanged *prometheus.CounterVec
	bookmarks *prometheus.CounterVec
	lists     *prometheus.CounterVec
	errors    *prometheus.CounterVec
	tooLarge  *prometheus.CounterVec
	silent    *prometheus.CounterVec
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
		deltas:        counter("kbridge_deltas_total", "Deltas that informers handed to the lanes.", "entry", "resource", "type"),
		excluded:      counter("kbridge_excluded_total", "Objects that the server sent and namespaces or excludeNamespaces left out.", "entry", "resource"),
		unchanged:     counter("kbridge_unchanged_total", "Objects that a relist found in the state already known.", "entry", "resource"),
		bookmarks:     counter("kbridge_bookmarks_total", "Bookmarks received.", "entry", "resource"),
		lists:         counter("kbridge_lists_total", "Lists begun, by what made them necessary: start, expired (the watch's version was too old), behind (the server's version is older than ours), differs (a verification found other objects than ours), failed (the list before failed), unversioned (the server gives no versions), moved (the server serves another version of the resource).", "entry", "resource", "reason"),
		errors:        counter("kbridge_list_watch_errors_total", "Lists and watches that failed.", "entry", "resource"),
		tooLarge:      counter("kbridge_too_large_total", "Objects in lists and frames of watches that were larger than kubernetes.maxObject.", "entry", "resource"),
		silent:        counter("kbridge_silent_watches_total", "Watches that were ended because nothing came on them any more, though their time was over.", "entry", "resource"),
		objects:       gauge("kbridge_objects", "Objects in the index.", "entry", "resource"),
		bytes:         gauge("kbridge_index_bytes", "Bytes of the objects in the index.", "entry", "resource"),
		verifications: counter("kbridge_verifications_total", "Comparisons of the objects that are known with those of the server, by outcome: same, differ, failed.", "entry", "resource", "outcome"),
		differences:   counter("kbridge_verify_differences_total", "Objects that a verification found different from the server's, and that were mended.", "entry", "resource"),
		synced:        gauge("kbridge_synced", "1 once the first list of each of the resource's watches has been handed to the lanes.", "entry", "resource"),
	}
}

// entryMetrics are an entry's own, looked up once. All are there from the start: an
// increase from nothing to one is seen by nobody.
type entryMetrics struct {
	view             viewCounters
	verifier         verifierMetrics
	lists            map[string]prometheus.Counter // by reason
	errors, tooLarge prometheus.Counter
	silent           prometheus.Counter
	synced           prometheus.Gauge
}

// verifierMetrics are what a verifier needs of these.
type verifierMetrics struct{ same, differ, failed, differences prometheus.Counter }

func (m *Metrics) entry(entry, resource string, t *tally) entryMetrics {
	e := entryMetrics{
		view: viewCounters{
			tally:     t,
			excluded:  m.excluded.WithLabelValues(entry, resource),
			unchanged: m.unchanged.WithLabelValues(entry, resource),
			bookmarks: m.bookmarks.WithLabelValues(entry, resource),
			objects:   m.objects.WithLabelValues(entry, resource),
			bytes:     m.bytes.WithLabelValues(entry, resource),
		},
		verifier: verifierMetrics{
			same:        m.verifications.WithLabelValues(entry, resource, "same"),
			differ:      m.verifications.WithLabelValues(entry, resource, "differ"),
			failed:      m.verifications.WithLabelValues(entry, resource, "failed"),
			differences: m.differences.WithLabelValues(entry, resource),
		},
		lists:    map[string]prometheus.Counter{},
		errors:   m.errors.WithLabelValues(entry, resource),
		tooLarge: m.tooLarge.WithLabelValues(entry, resource),
		silent:   m.silent.WithLabelValues(entry, resource),
		synced:   m.synced.WithLabelValues(entry, resource),
	}
	for _, t := range deltaTypes {
		e.view.deltas[t] = m.deltas.WithLabelValues(entry, resource, t.String())
	}
	for _, reason := range listReasons {
		e.lists[reason] = m.lists.WithLabelValues(entry, resource, reason)
	}
	return e
}

// deltaTypes are those that informers make.
var deltaTypes = []event.Type{event.Added, event.Updated, event.Deleted}
