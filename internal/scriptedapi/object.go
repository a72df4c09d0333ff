package scriptedapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// object is one state of an object. It does not change once it is made, so it is shared by store, history and
// snapshots without copying.
type object struct {
	key     key
	uid     string
	version int64
	content map[string]any
	raw     []byte // content as JSON
}

// NewObject is an object to create: metadata with a namespace (may be empty), a name, and labels given as
// alternating keys and values.
func NewObject(namespace, name string, labels ...string) map[string]any {
	meta := map[string]any{"name": name}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if len(labels) > 0 {
		set := map[string]any{}
		for i := 0; i+1 < len(labels); i += 2 {
			set[labels[i]] = labels[i+1]
		}
		meta["labels"] = set
	}
	return map[string]any{"metadata": meta}
}

// Parse reads an object to create from JSON.
func Parse(raw string) map[string]any {
	var content map[string]any
	if err := utiljson.Unmarshal([]byte(raw), &content); err != nil {
		panic(fmt.Sprintf("BUG: parse object: %v", err))
	}
	return content
}

// newObject makes the state of an object at a version: content with type and metadata as the server sets them.
// The caller holds mu.
func (s *Server) newObject(r *resource, content map[string]any, uid string, created any, version int64) *object {
	content = clone(content)
	content["apiVersion"], content["kind"] = r.apiVersion(), r.kind
	meta := metadata(content)
	meta["uid"] = uid
	meta["resourceVersion"] = s.label(version)
	meta["creationTimestamp"] = created
	k := keyOf(content)
	if k.name == "" || (k.namespace != "") != r.namespaced {
		panic(fmt.Sprintf("BUG: %v cannot hold an object with namespace %q and name %q", r.gvr, k.namespace, k.name))
	}
	return &object{key: k, uid: uid, version: version, content: content, raw: encode(content)}
}

// at is the same state under another version: that of its deletion, or of the change by which it left a selection.
// The caller holds mu.
func (o *object) at(version int64, s *Server) *object {
	content := maps.Clone(o.content)
	meta := maps.Clone(metadata(o.content))
	meta["resourceVersion"] = s.label(version)
	content["metadata"] = meta
	return &object{key: o.key, uid: o.uid, version: version, content: content, raw: encode(content)}
}

// item is the object as an element of a list.
func (o *object) item(typed bool) []byte {
	if typed {
		return o.raw
	}
	content := maps.Clone(o.content)
	delete(content, "apiVersion")
	delete(content, "kind")
	return encode(content)
}

// newUID returns a UID that looks random to a client and is the same in every run. The caller holds mu.
func (s *Server) newUID() string {
	s.uids++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", s.cluster, s.uids)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func keyOf(content map[string]any) key {
	meta := metadata(content)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	return key{namespace, name}
}

// metadata returns the metadata of content, which gets it where it had none.
func metadata(content map[string]any) map[string]any {
	meta, ok := content["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		content["metadata"] = meta
	}
	return meta
}

// clone copies deeply, through JSON: a test may use any Go value that JSON can hold.
func clone(content map[string]any) map[string]any {
	if content == nil {
		return map[string]any{}
	}
	return Parse(string(encode(content)))
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("BUG: encode object: %v", err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
