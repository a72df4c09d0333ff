package scriptedapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is what a list or watch asks for within a resource.
type selection struct {
	namespace string // empty: all
	labels    labels.Selector
	fields    fields.Selector
	paths     []string // of the fields that may be selected by
}

func (r *resource) selection(namespace string, query url.Values) (selection, *metav1.Status) {
	sel := selection{namespace: namespace, paths: r.fields}
	var err error
	if sel.labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return sel, statusOf(apierrors.NewBadRequest(err.Error()))
	}
	if sel.fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return sel, statusOf(apierrors.NewBadRequest(err.Error()))
	}
	for _, req := range sel.fields.Requirements() {
		if f := req.Field; f != "metadata.name" && f != "metadata.namespace" && !slices.Contains(r.fields, f) {
			return sel, statusOf(apierrors.NewBadRequest("field label not supported: " + f))
		}
	}
	return sel, nil
}

// empty says whether nothing is excluded but by namespace.
func (sel selection) empty() bool { return sel.labels.Empty() && sel.fields.Empty() }

// matches says whether a state is selected; a nil one never is.
func (sel selection) matches(o *object) bool {
	if o == nil || sel.namespace != "" && o.key.namespace != sel.namespace {
		return false
	}
	return sel.labels.Matches(o.labels()) && (sel.fields.Empty() || sel.fields.Matches(o.fields(sel.paths)))
}

func (o *object) labels() labels.Set {
	set := labels.Set{}
	values, _ := metadata(o.content)["labels"].(map[string]any)
	for k, v := range values {
		set[k], _ = v.(string)
	}
	return set
}

func (o *object) fields(paths []string) fields.Set {
	set := fields.Set{"metadata.name": o.key.name, "metadata.namespace": o.key.namespace}
	for _, path := range paths {
		var value any = o.content
		for _, step := range strings.Split(path, ".") {
			m, _ := value.(map[string]any)
			value = m[step]
		}
		if value != nil {
			set[path] = fmt.Sprint(value)
		}
	}
	return set
}
