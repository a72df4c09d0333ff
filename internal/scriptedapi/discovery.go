package scriptedapi

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers what the registered resources are, in the form that every client and server knows; it does not
// take up a client's offer of aggregated discovery.
func (s *Server) discover(b *body, req *Request) {
	s.mu.Lock()
	answer := s.discovery(strings.Split(strings.Trim(req.Path, "/"), "/"))
	s.mu.Unlock()
	if answer == nil {
		notServed(b.w)
		return
	}
	b.json(encode(answer))
}

// discovery returns the document at a path, nil where there is none. The caller holds mu.
func (s *Server) discovery(path []string) any {
	switch {
	case path[0] == "version":
		return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2", Platform: "linux/amd64"}
	case path[0] == "api" && len(path) == 1:
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path[0] == "api":
		return s.resourceList(schema.GroupVersion{Version: path[1]})
	case len(path) == 1:
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: s.groups()}
	case len(path) == 3:
		return s.resourceList(schema.GroupVersion{Group: path[1], Version: path[2]})
	}
	for _, g := range s.groups() {
		if g.Name == path[1] {
			g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return g
		}
	}
	return nil
}

// groups returns the named groups with their versions, in order of registration. The caller holds mu.
func (s *Server) groups() []metav1.APIGroup {
	groups := []metav1.APIGroup{}
	for _, gvr := range s.order {
		if gvr.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gvr.GroupVersion().String(), Version: gvr.Version}
		i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == gvr.Group })
		if i < 0 {
			i = len(groups)
			groups = append(groups, metav1.APIGroup{Name: gvr.Group, PreferredVersion: v})
		}
		if !slices.Contains(groups[i].Versions, v) {
			groups[i].Versions = append(groups[i].Versions, v)
		}
	}
	return groups
}

// resourceList returns the resources of a group and version, nil where there are none. The caller holds mu.
func (s *Server) resourceList(gv schema.GroupVersion) any {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, gvr := range s.order {
		if gvr.GroupVersion() == gv {
			r := s.resources[gvr]
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name:         gvr.Resource,
				SingularName: strings.ToLower(r.kind),
				Namespaced:   r.namespaced,
				Kind:         r.kind,
				Verbs:        metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
			})
		}
	}
	if list.APIResources == nil {
		return nil
	}
	return list
}
