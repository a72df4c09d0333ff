package config

import (
	"fmt"
	"slices"
	"strings"
)

// Warnings returns what is allowed and should be known before kbridge runs with
// it, each as one line that begins with a path. The configuration is a valid one.
func (c *Config) Warnings() []string {
	var lines []string
	for _, w := range c.warnings() {
		lines = append(lines, w.path+": "+w.text)
	}
	return lines
}

func (c *Config) warnings() []warning {
	var w warnings
	for i := range c.Resources {
		w.resource(item("resources", i), &c.Resources[i])
	}
	for i := range c.Sinks {
		w.sink(item("sinks", i), &c.Sinks[i], c)
	}
	w.server("server", &c.Server)
	if c.State == nil {
		w.add("state", "none, so nothing survives a restart: everything is announced again, and what was deleted meanwhile is not noticed")
	}
	return w
}

type warning struct{ path, text string }

type warnings []warning

func (w *warnings) add(path, format string, args ...any) {
	*w = append(*w, warning{path, fmt.Sprintf(format, args...)})
}

func (w *warnings) resource(path string, r *Resource) {
	if !r.SendsType(Synced) {
		if r.Resync > 0 {
			w.add(path+".resync", "types of %s has no synced, so a resync sends no object", r.GroupResource())
		}
		if r.OnStart == OnStartSnapshot {
			w.add(path+".onStart", "types of %s has no synced, so the snapshot of a start sends no object", r.GroupResource())
		}
	}
	if r.IncludesSecrets() {
		w.add(path+".secrets", "the values in Secrets leave the cluster as they are")
	}
}

func (w *warnings) sink(path string, s *Sink, c *Config) {
	var gets, shared, others []string
	for i := range c.Resources {
		r := &c.Resources[i]
		if !r.SendsTo(s.Name) {
			continue
		}
		gets = appendNew(gets, r.GroupResource())
		for _, o := range c.Sinks {
			if o.Name != s.Name && r.SendsTo(o.Name) {
				shared, others = appendNew(shared, r.GroupResource()), appendNew(others, o.Name)
			}
		}
	}
	if len(gets) == 0 {
		w.add(path, "no resource names %s, so it gets no event", s.Name)
	}
	if s.WhenFull == WhenFullBlock && len(others) > 0 {
		wait := "wait"
		if len(others) == 1 {
			wait = "waits"
		}
		w.add(path+".whenFull", "while %s is full, %s %s with it for %s", s.Name, strings.Join(others, ", "), wait, few(shared))
	}
	if n := s.NATS; n != nil && n.Stream.Create && n.Stream.Storage == StorageMemory {
		w.add(path+".nats.stream.storage", "what a stream keeps in memory is lost, though acknowledged, when its servers stop")
	}
	if s.Kafka != nil {
		w.kafka(path+".kafka", s.Kafka)
	}
	w.insecure(path, s)
}

// kafka warns of what loses events or their order, or keeps what should be forgotten.
func (w *warnings) kafka(path string, k *Kafka) {
	switch k.Acks {
	case AcksOne:
		w.add(path+".acks", "what only the leader has is lost, though acknowledged, when that broker fails")
	case AcksNone:
		w.add(path+".acks", "without acknowledgements events are lost unnoticed, and too large ones are not kept as dead letters")
	}
	if k.Compression != CompressionNone && k.Compression != CompressionGzip && slices.ContainsFunc(k.Brokers, isEventHubs) {
		w.add(path+".compression", "Azure Event Hubs does not take %s: set it to gzip, in the Premium and Dedicated tiers, or to none", k.Compression)
	}
	if k.TopicPolicy == TopicCreate && k.Replication == 1 {
		w.add(path+".replication", "what a topic without copies has is lost with its broker")
	}
	if k.TopicPolicy == TopicCreate && k.CleanupPolicy != CleanupDelete && !k.Tombstones {
		w.add(path+".tombstones", "without them a compacted topic keeps the last state of every object that was ever deleted")
	}
}

// isEventHubs says that the address is one of Azure Event Hubs, of any of Azure's clouds.
func isEventHubs(address string) bool { return strings.Contains(address, ".servicebus.") }

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// few lists the first few words: a configuration may have hundreds of resources.
func few(words []string) string {
	const most = 5
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}
