package scriptedapi

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Create adds an object and returns its resourceVersion. The server sets type, uid, resourceVersion and
// creationTimestamp. The object must not exist.
func (s *Server) Create(gvr schema.GroupVersionResource, content map[string]any) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resource(gvr)
	if k := keyOf(content); r.objects[k] != nil {
		panic(fmt.Sprintf("BUG: create %v: %v exists", gvr, k))
	}
	return s.label(s.put(r, content))
}

// Put creates the object or replaces its content, keeping uid and creationTimestamp, and returns its new
// resourceVersion.
func (s *Server) Put(gvr schema.GroupVersionResource, content map[string]any) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.label(s.put(s.resource(gvr), content))
}

// Update changes an object by patch, which gets a copy to modify, and returns its new resourceVersion. A nil patch
// gives it a new version and nothing else. The object must exist. patch must not call the server.
func (s *Server) Update(gvr schema.GroupVersionResource, namespace, name string, patch func(content map[string]any)) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resource(gvr)
	content := clone(s.existing(r, namespace, name).content)
	if patch != nil {
		patch(content)
	}
	if k := keyOf(content); k != (key{namespace, name}) {
		panic(fmt.Sprintf("BUG: update %v: patch renames the object to %v", gvr, k))
	}
	return s.label(s.put(r, content))
}

// Delete removes an object and returns the version of the deletion, which is also in the object of its event. A
// later Create under the name has another uid.
func (s *Server) Delete(gvr schema.GroupVersionResource, namespace, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resource(gvr)
	return s.label(s.remove(r, s.existing(r, namespace, name)))
}

// Get returns a copy of an object, nil where there is none.
func (s *Server) Get(gvr schema.GroupVersionResource, namespace, name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.resource(gvr).objects[key{namespace, name}]
	if o == nil {
		return nil
	}
	return clone(o.content)
}

// UID returns the uid of an object that exists.
func (s *Server) UID(gvr schema.GroupVersionResource, namespace, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.existing(s.resource(gvr), namespace, name).uid
}

// existing returns an object that the test says exists. The caller holds mu.
func (s *Server) existing(r *resource, namespace, name string) *object {
	o := r.objects[key{namespace, name}]
	if o == nil {
		panic(fmt.Sprintf("BUG: %v has no %s/%s", r.gvr, namespace, name))
	}
	return o
}

// put stores a new state and tells the watches. The caller holds mu.
func (s *Server) put(r *resource, content map[string]any) int64 {
	old := r.objects[keyOf(content)]
	var o *object
	if old == nil {
		o = s.newObject(r, content, s.newUID(), now(), s.version+1)
	} else {
		o = s.newObject(r, content, old.uid, metadata(old.content)["creationTimestamp"], s.version+1)
	}
	s.version++
	r.objects[o.key] = o
	s.commit(r, event{version: s.version, old: old, new: o})
	return s.version
}

// remove deletes an object and tells the watches. The caller holds mu.
func (s *Server) remove(r *resource, old *object) int64 {
	s.version++
	delete(r.objects, old.key)
	s.commit(r, event{version: s.version, old: old})
	return s.version
}
