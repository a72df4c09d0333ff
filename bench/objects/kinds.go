// Package objects owns what the bench's cluster consists of: pods, ConfigMaps, custom
// resources and Events, as the bytes that an API server sends. They are made from
// templates, so that a million of them need no memory; what differs between the objects
// of a real cluster differs here: names, uids, addresses, images, labels, times, hashes,
// and which optional parts there are.
package objects

import (
	"embed"
	"fmt"
	"strconv"
)

//go:embed templates
var files embed.FS

// Kind is one kind of object.
type Kind struct {
	// Name is the kind as an object's member "kind" has it.
	Name string
	// Group, Version and Resource are where it is served.
	Group, Version, Resource string

	template segments
	head     string // what a list leaves out of its items, because the list says it
	replicas uint64 // objects that share a workload, and with it most of their content
}

// The kinds, with the mean size of their objects.
var (
	Pods       = newKind(Kind{Name: "Pod", Version: "v1", Resource: "pods", replicas: 8}, "pod")                                     // 4.8 KB
	ConfigMaps = newKind(Kind{Name: "ConfigMap", Version: "v1", Resource: "configmaps", replicas: 1}, "configmap")                   // 1 KB
	Events     = newKind(Kind{Name: "Event", Version: "v1", Resource: "events", replicas: 1}, "event")                               // 1.3 KB
	Widgets    = newKind(Kind{Name: "Widget", Group: "bench.kbridge.io", Version: "v1", Resource: "widgets", replicas: 1}, "widget") // 20 KB
)

// Kinds are all of them.
var Kinds = []*Kind{Pods, ConfigMaps, Events, Widgets}

// ByResource returns the kind with the resource's name.
func ByResource(resource string) (*Kind, error) {
	for _, k := range Kinds {
		if k.Resource == resource {
			return k, nil
		}
	}
	return nil, fmt.Errorf("there is no resource %q in the bench's cluster", resource)
}

func newKind(k Kind, file string) *Kind {
	text, err := files.ReadFile("templates/" + file + ".json")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	k.template = parse(string(text))
	if k.Group == "" {
		k.head = `"kind":"` + k.Name + `","apiVersion":"` + k.APIVersion() + `",`
	}
	return &k
}

// APIVersion is the group and the version in one.
func (k *Kind) APIVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

// Path is the URL's path of the whole resource.
func (k *Kind) Path() string {
	if k.Group == "" {
		return "/api/" + k.Version + "/" + k.Resource
	}
	return "/apis/" + k.Group + "/" + k.Version + "/" + k.Resource
}

// State is one state of one object.
type State struct {
	Index   int    // of the object, from 0
	Version uint64 // its resourceVersion; parts of the content follow from it
	Sent    int64  // nanoseconds since 1970, for who wants to know how old it is on arrival
}

// Append appends the object's JSON, without a line feed inside.
func (k *Kind) Append(dst []byte, s State) []byte {
	o := object{
		State: s,
		own:   mix(uint64(s.Index) + 1),
		group: mix(^(uint64(s.Index) / k.replicas)),
		ward:  uint64(s.Index) / k.replicas,
		spot:  uint64(s.Index) % k.replicas,
	}
	return k.template.append(dst, &o, 0)
}

// AppendItem appends the object as an item of a list: built-in types come without kind
// and apiVersion there.
func (k *Kind) AppendItem(dst []byte, s State) []byte {
	at := len(dst)
	dst = k.Append(dst, s)
	if k.head != "" { // behind the opening brace
		n := copy(dst[at+1:], dst[at+1+len(k.head):])
		dst = dst[:at+1+n]
	}
	return dst
}

// AppendFrame appends a watch frame, which is a line. The type is ADDED or MODIFIED.
func (k *Kind) AppendFrame(dst []byte, frameType string, s State) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, frameType...)
	dst = append(dst, `","object":`...)
	return append(k.Append(dst, s), '}', '\n')
}

// AppendBookmark appends the watch frame of a bookmark. initialEnd says that it ends the
// initial events.
func (k *Kind) AppendBookmark(dst []byte, version uint64, initialEnd bool) []byte {
	dst = append(dst, `{"type":"BOOKMARK","object":{"kind":"`...)
	dst = append(dst, k.Name...)
	dst = append(dst, `","apiVersion":"`...)
	dst = append(dst, k.APIVersion()...)
	dst = append(dst, `","metadata":{"resourceVersion":"`...)
	dst = append(strconv.AppendUint(dst, version, 10), `","creationTimestamp":null`...)
	if initialEnd {
		dst = append(dst, `,"annotations":{"k8s.io/initial-events-end":"true"}`...)
	}
	return append(dst, "}}}\n"...)
}
