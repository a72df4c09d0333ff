package scriptedapi

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Snapshot is a backup of a cluster's objects and version.
type Snapshot struct {
	version int64
	objects map[schema.GroupVersionResource]map[key]*object
}

// Snapshot takes a backup.
func (s *Server) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Snapshot{version: s.version, objects: make(map[schema.GroupVersionResource]map[key]*object)}
	for gvr, r := range s.resources {
		b.objects[gvr] = maps.Clone(r.objects)
	}
	return b
}

// Restore is etcd restored from a backup: objects and version go back, connections are cut, history is gone. Versions
// are then given out a second time. A watch from a version that is not there yet neither fails nor delivers until
// the cluster gets past it. Resources keep their registration.
func (s *Server) Restore(b *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset(b.version, b.objects)
}

// ReplaceCluster puts another cluster behind the address: same resources, no objects, other UIDs, also that of
// kube-system, and versions from the beginning. Connections are cut.
func (s *Server) ReplaceCluster() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster++
	s.reset(firstVersion, nil)
	s.bootstrap()
}

// ClusterUID returns the UID of the kube-system namespace.
func (s *Server) ClusterUID() string { return s.UID(Namespaces, "", "kube-system") }

// reset gives the cluster other objects and another version. The caller holds mu.
func (s *Server) reset(version int64, objects map[schema.GroupVersionResource]map[key]*object) {
	s.cutAll()
	s.version, s.zeroAt = version, 0
	for gvr, r := range s.resources {
		r.objects = maps.Clone(objects[gvr])
		if r.objects == nil {
			r.objects = make(map[key]*object)
		}
		clear(r.watchers) // their connections are cut, and what comes now is not for them
	}
	s.compact()
}

// bootstrap creates what a new cluster has. The caller holds mu.
func (s *Server) bootstrap() {
	r := s.resource(Namespaces)
	for _, name := range []string{"default", "kube-system"} {
		s.put(r, NewObject("", name, "kubernetes.io/metadata.name", name))
	}
}
