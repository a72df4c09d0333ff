package scriptedapi

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Namespaces is registered from the start, because clients know a cluster by the UID of its kube-system namespace.
var Namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// resource is one GVR with its objects, history and watches. Server.mu guards it.
type resource struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
	typedItems bool
	fields     []string // selectable beside metadata.name and metadata.namespace

	objects   map[key]*object
	events    []event // in order of version
	compacted int64   // events up to this version are forgotten

	watchers map[*watcher]struct{}
	mangle   func(frame []byte) []byte
	lists    func(body []byte) []byte
	cutNext  bool // the next event is cut inside its frame
}

// key names an object within its resource. Lists are in its order.
type key struct{ namespace, name string }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.name, o.name))
}

func (r *resource) apiVersion() string { return r.gvr.GroupVersion().String() }

// Register adds a resource, with no objects, to discovery and to the paths. The version that is registered first is
// its group's preferred one. Versions of one group share no objects.
func (s *Server) Register(gvr schema.GroupVersionResource, kind string, namespaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[gvr] != nil {
		panic(fmt.Sprintf("BUG: %v is registered already", gvr))
	}
	s.resources[gvr] = &resource{
		gvr:        gvr,
		kind:       kind,
		namespaced: namespaced,
		objects:    make(map[key]*object),
		compacted:  s.version,
		watchers:   make(map[*watcher]struct{}),
	}
	s.order = append(s.order, gvr)
}

// Unregister is the deletion of a CRD: its objects are deleted, with an event each, then its watches end, and its
// paths answer 404 until it is registered again. To have clients miss the events, call CutWatches first.
func (s *Server) Unregister(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resource(gvr)
	for _, o := range r.sorted(r.objects) {
		s.remove(r, o)
	}
	for w := range r.watchers {
		w.push(frame{last: true})
	}
	delete(s.resources, gvr)
	s.order = slices.DeleteFunc(s.order, func(o schema.GroupVersionResource) bool { return o == gvr })
}

// Move is a CRD of which another version is served from now on and the one before not any more: the objects keep their
// UIDs and versions, watches end, the paths of the version before answer 404, and there is no history.
func (s *Server) Move(from, to schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resource(from)
	for w := range r.watchers {
		w.push(frame{last: true})
	}
	moved := *r
	moved.gvr, moved.events, moved.compacted = to, nil, s.version
	moved.objects, moved.watchers = make(map[key]*object), make(map[*watcher]struct{})
	for k, o := range r.objects {
		created := metadata(o.content)["creationTimestamp"]
		moved.objects[k] = s.newObject(&moved, o.content, o.uid, created, o.version)
	}
	delete(s.resources, from)
	s.resources[to] = &moved
	s.order[slices.Index(s.order, from)] = to
}

// SetTypedItems says whether the items of lists carry apiVersion and kind, as those of custom resources do. Those of
// built-in resources do not, which is the default.
func (s *Server) SetTypedItems(gvr schema.GroupVersionResource, typed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resource(gvr).typedItems = typed
}

// SetSelectableFields names fields, as "spec.nodeName", that a fieldSelector may use beside metadata.name and
// metadata.namespace. All others answer 400.
func (s *Server) SetSelectableFields(gvr schema.GroupVersionResource, fields ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resource(gvr).fields = fields
}

// resource returns a registered resource; a test that names another has a mistake. The caller holds mu.
func (s *Server) resource(gvr schema.GroupVersionResource) *resource {
	r := s.resources[gvr]
	if r == nil {
		panic(fmt.Sprintf("BUG: %v is not registered", gvr))
	}
	return r
}

// chosen returns the resources named, or all. The caller holds mu.
func (s *Server) chosen(gvrs []schema.GroupVersionResource) []*resource {
	if len(gvrs) == 0 {
		gvrs = s.order
	}
	rs := make([]*resource, 0, len(gvrs))
	for _, gvr := range gvrs {
		rs = append(rs, s.resource(gvr))
	}
	return rs
}

func (r *resource) sorted(objects map[key]*object) []*object {
	list := make([]*object, 0, len(objects))
	for _, o := range objects {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *object) int { return a.key.compare(b.key) })
	return list
}
