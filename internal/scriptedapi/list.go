package scriptedapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SetZeroVersion has lists at version "0" answered with the state at an older version: to a server that is enough.
// It must be in the history. An empty one stands for the current state, the default.
func (s *Server) SetZeroVersion(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zeroAt = 0
	if version != "" {
		v, err := s.parse(version)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		s.zeroAt = v
	}
}

func (s *Server) get(b *body, req *Request) {
	s.mu.Lock()
	r := s.resources[req.GVR]
	var o *object
	if r != nil {
		o = r.objects[key{req.Namespace, req.Name}]
	}
	s.mu.Unlock()
	switch {
	case r == nil: // unregistered since the request was recorded
		notServed(b.w)
	case o == nil:
		writeStatus(b.w, statusOf(apierrors.NewNotFound(req.GVR.GroupResource(), req.Name)))
	default:
		b.json(o.raw)
	}
}

func (s *Server) list(b *body, req *Request) {
	s.mu.Lock()
	r := s.resources[req.GVR]
	if r == nil {
		s.mu.Unlock()
		notServed(b.w)
		return
	}
	page, st := s.page(r, req)
	s.mu.Unlock()
	if st != nil {
		writeStatus(b.w, st)
		return
	}
	b.json(page)
}

// page makes one page of a list. The caller holds mu.
func (s *Server) page(r *resource, req *Request) ([]byte, *metav1.Status) {
	sel, st := r.selection(req.Namespace, req.Query)
	if st != nil {
		return nil, st
	}
	limit, _ := strconv.Atoi(req.Query.Get("limit"))
	at, after, st := s.listVersion(r, req, &limit)
	if st != nil {
		return nil, st
	}

	var items [][]byte
	var last key
	meta := metav1.ListMeta{ResourceVersion: s.label(at)}
	rest := int64(0)
	for _, o := range r.sorted(r.stateAt(at)) {
		if after != nil && o.key.compare(*after) <= 0 || !sel.matches(o) {
			continue
		}
		if limit > 0 && len(items) == limit {
			rest++
			continue
		}
		items = append(items, o.item(r.typedItems))
		last = o.key
	}
	if rest > 0 {
		meta.Continue = continuation{Version: at, Namespace: last.namespace, Name: last.name}.String()
		if sel.empty() {
			meta.RemainingItemCount = &rest
		}
	}
	head := encode(map[string]any{"kind": r.kind + "List", "apiVersion": r.apiVersion(), "metadata": meta})
	out := bytes.NewBuffer(head[:len(head)-1])
	out.WriteString(`,"items":[`)
	out.Write(bytes.Join(items, []byte(",")))
	out.WriteString("]}")
	if r.lists != nil {
		return r.lists(out.Bytes()), nil
	}
	return out.Bytes(), nil
}

// listVersion decides at which version a list is answered, and after which key it goes on. The caller holds mu.
func (s *Server) listVersion(r *resource, req *Request, limit *int) (int64, *key, *metav1.Status) {
	label := req.Query.Get("resourceVersion")
	match := metav1.ResourceVersionMatch(req.Query.Get("resourceVersionMatch"))
	if token := req.Query.Get("continue"); token != "" {
		if label != "" && label != "0" {
			return 0, nil, statusOf(apierrors.NewBadRequest("resourceVersion cannot be combined with continue"))
		}
		return s.continueVersion(r, token)
	}
	if match != "" && (label == "" || label == "0" && match == metav1.ResourceVersionMatchExact) {
		return 0, nil, invalidOption(field.Forbidden(field.NewPath("resourceVersionMatch"),
			"needs a resourceVersion"))
	}
	switch label {
	case "":
		return s.version, nil, nil
	case "0":
		*limit = 0 // any version will do, so a server answers from its cache, which has no pages
		if s.zeroAt != 0 {
			return max(s.zeroAt, r.compacted), nil, nil
		}
		return s.version, nil, nil
	}
	v, err := s.parse(label)
	switch {
	case err != nil:
		return 0, nil, invalidVersion(label, err)
	case v > s.version:
		return 0, nil, tooLarge(v, s.version)
	case match == metav1.ResourceVersionMatchExact || match == "" && *limit > 0: // the second is the older form of the first
		if v < r.compacted {
			return 0, nil, expired("the resourceVersion of the list is no longer kept")
		}
		return v, nil, nil
	}
	return s.version, nil, nil
}

// continuation is what a continue token says: go on behind this key, in the state at this version, where 0 stands
// for the current one.
type continuation struct {
	Version   int64
	Namespace string
	Name      string
}

func (c continuation) String() string { return base64.RawURLEncoding.EncodeToString(encode(c)) }

// continueVersion is listVersion for the second page and those after it. The caller holds mu.
func (s *Server) continueVersion(r *resource, token string) (int64, *key, *metav1.Status) {
	var c continuation
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return 0, nil, statusOf(apierrors.NewBadRequest("continue key is not valid: " + err.Error()))
	}
	after := &key{c.Namespace, c.Name}
	if c.Version == 0 {
		return s.version, after, nil
	}
	if c.Version < r.compacted || c.Version > s.version {
		st := expired("the version of the continue token is no longer kept")
		c.Version = 0
		st.ListMeta = metav1.ListMeta{Continue: c.String()} // for a client that takes the rest as it is now
		return 0, nil, st
	}
	return c.Version, after, nil
}
