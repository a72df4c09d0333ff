package informer

import (
	"maps"
	"slices"

	"github.com/kbridge-io/kbridge/config"
)

// narrowed is what a watch of all namespaces takes of them. The zero value takes all.
type narrowed struct {
	only map[string]bool // nil: all
	not  map[string]bool
}

// narrow is what an entry has of its watches.
func narrow(r *config.Resource) narrowed {
	n := narrowed{not: set(r.ExcludeNamespaces)}
	if r.OneWatch {
		n.only = set(r.Namespaces)
	}
	return n
}

func set(names []string) map[string]bool {
	s := map[string]bool{}
	for _, name := range names {
		s[name] = true
	}
	return s
}

// leavesOut says that objects of the namespace are not taken.
func (n narrowed) leavesOut(namespace string) bool {
	return n.not[namespace] || n.only != nil && !n.only[namespace]
}

// names are the namespaces that alone are taken, sorted; nil: all are.
func (n narrowed) names() []string {
	if n.only == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.only))
}
