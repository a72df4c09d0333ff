package event

// ResourceInfo says which objects a Resource stands for, and how their events look.
type ResourceInfo struct {
	Cluster  string
	Group    string // empty for the core group
	Version  string
	Resource string // plural, lower case
	Kind     string
	// Selected says that a label or field selector narrows the resource, so that an
	// object can leave the selection, come back, and leave again: its Deleted events
	// then need the version to be told apart.
	Selected bool
	// Change puts the old object beside the new one into `data`.
	Change bool
	Scope  Scope
	// History is the cluster's.
	History *History
}

// Scope is what the configuration selects of a resource, as markers tell it: at the end
// of a snapshot a consumer drops what it has not seen in it and what is in the scope.
type Scope struct {
	// Entry names the entry of the configuration; each of its events has the name too.
	Entry             string   `json:"entry,omitempty"`
	Namespaces        []string `json:"namespaces,omitempty"`
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
	LabelSelector     string   `json:"labelSelector,omitempty"`
	FieldSelector     string   `json:"fieldSelector,omitempty"`
}

// Resource is what the events of one selected resource share. It is made once
// and read by many goroutines.
type Resource struct {
	ResourceInfo
	source string // the CloudEvents source
	// Encoded once: the parts of a structured event that are the same for each.
	jsonSource []byte // ,"source":…,"type":"
	jsonShared []byte // ,"datacontenttype":…,"cluster":…,…,"kind":…
}

// NewResource prepares the shared parts of a resource's events.
func NewResource(info ResourceInfo) *Resource {
	r := &Resource{ResourceInfo: info}
	if info.Group == "" {
		r.source = "kubernetes://" + info.Cluster + "/api/" + info.Version + "/" + info.Resource
	} else {
		r.source = "kubernetes://" + info.Cluster + "/apis/" + info.Group + "/" + info.Version + "/" + info.Resource
	}
	r.jsonSource = append(appendMember(nil, "source", r.source), `,"type":"`...)
	r.jsonShared = appendMember(nil, "datacontenttype", DataContentType)
	r.eachShared(func(name, value string) { r.jsonShared = appendMember(r.jsonShared, name, value) })
	return r
}

// Source is the CloudEvents source of the resource's events, as in
// kubernetes://prod-eu/apis/apps/v1/deployments.
func (r *Resource) Source() string { return r.source }

// Name is the resource as kubectl writes it: deployments.apps, pods.
func (r *Resource) Name() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// eachShared yields the extension attributes that all events of the resource have.
// An empty group is left out: CloudEvents has no empty attributes.
func (r *Resource) eachShared(yield func(name, value string)) {
	yield("cluster", r.Cluster)
	if r.Group != "" {
		yield("group", r.Group)
	}
	yield("version", r.Version)
	yield("resource", r.Resource)
	yield("kind", r.Kind)
	if r.Scope.Entry != "" {
		yield("entry", r.Scope.Entry)
	}
}

// Remains is what is left to say of an object of which only this much is known: a
// deletion that nothing but another object of the same name tells of.
func (r *Resource) Remains(namespace, name, uid, resourceVersion string) *Object {
	apiVersion := r.Version
	if r.Group != "" {
		apiVersion = r.Group + "/" + r.Version
	}
	body := append(appendMember([]byte(`{"apiVersion":"`+apiVersion+`"`), "kind", r.Kind), `,"metadata":{"name":"`...)
	body = append(appendEscaped(body, name), '"')
	if namespace != "" {
		body = appendMember(body, "namespace", namespace)
	}
	body = append(appendMember(body, "uid", uid), `}}`...)
	return &Object{Namespace: namespace, Name: name, UID: uid, ResourceVersion: resourceVersion, Epoch: r.History.Epoch(), Body: body}
}
