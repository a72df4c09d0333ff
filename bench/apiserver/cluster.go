package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/bench/objects"
)

// clusterUID is that of the namespace kube-system: one cluster for the whole bench.
const clusterUID = "7d1ef6c4-0d4c-4e0f-9c39-6d3f0b7a1c55"

// cluster answers clients of the cluster. All kinds are served; those that the cluster
// does not hold are empty.
func (s *server) cluster() http.Handler {
	mux := http.NewServeMux()
	answer := func(path string, document any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, document) })
	}
	answer("/api/v1/namespaces/kube-system", metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: clusterUID, ResourceVersion: "4"},
	})
	answer("/api", metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	lists := map[string]*metav1.APIResourceList{}
	for _, k := range objects.Kinds {
		gv := schema.GroupVersion{Group: k.Group, Version: k.Version}
		list := lists[gv.String()]
		if list == nil {
			list = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
			lists[gv.String()] = list
			if k.Group != "" {
				version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: k.Version}
				groups.Groups = append(groups.Groups, metav1.APIGroup{Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
			}
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.Resource, Kind: k.Name, Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"},
		})
		mux.HandleFunc("GET "+k.Path(), func(w http.ResponseWriter, r *http.Request) { s.resource(k, w, r) })
	}
	answer("/apis", groups)
	for gv, list := range lists {
		path := "/apis/" + gv
		if gv == "v1" {
			path = "/api/v1"
		}
		answer(path, list)
	}
	return mux
}

func writeJSON(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) // a client that has gone sees no error
}

func (s *server) resource(k *objects.Kind, w http.ResponseWriter, r *http.Request) {
	if s.state().kind != k {
		http.Error(w, "the cluster holds another kind", http.StatusNotFound)
		return
	}
	if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		s.watch(w, r)
		return
	}
	s.list(w, r)
}

// list sends a list, or a page of one. A page's token is the index of the next object.
func (s *server) list(w http.ResponseWriter, r *http.Request) {
	st := s.state()
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))   // none: 0
	from, _ := strconv.Atoi(query.Get("continue")) // none: 0
	to := len(st.versions)
	if limit > 0 {
		to = min(to, from+limit)
	}
	if limit != 1 {
		s.lists.Add(1)
	}
	meta := fmt.Sprintf(`"resourceVersion":"%d"`, st.newest)
	if to < len(st.versions) {
		meta += fmt.Sprintf(`,"continue":"%d","remainingItemCount":%d`, to, len(st.versions)-to)
	}
	w.Header().Set("Content-Type", "application/json")
	buf := make([]byte, 0, chunk)
	buf = fmt.Appendf(buf, `{"kind":"%sList","apiVersion":"%s","metadata":{%s},"items":[`, st.kind.Name, st.kind.APIVersion(), meta)
	for i := from; i < to; i++ {
		if cap(buf)-len(buf) < chunk/8 {
			if _, err := w.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
		if i > from {
			buf = append(buf, ',')
		}
		buf = st.kind.AppendItem(buf, objects.State{Index: i, Version: st.versions[i].Load()})
	}
	_, _ = w.Write(append(buf, "]}\n"...)) // a client that has gone sees no error
}
