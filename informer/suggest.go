package informer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
)

// suggest adds to the error of a resource that is not served what is meant perhaps. Where
// discovery fails for a group, as it does for an aggregated API whose server is away, the
// others may have it.
func (c *Client) suggest(ctx context.Context, r config.Resource, absent error) error {
	_, lists, err := c.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if len(lists) == 0 && err != nil {
		return fmt.Errorf("%w; what it has can not be found out: %w", absent, err)
	}
	meant := similar(r, lists)
	if len(meant) == 0 {
		if err != nil {
			return fmt.Errorf("%w; not all that it has can be found out: %w", absent, err)
		}
		return absent
	}
	return fmt.Errorf("%w; perhaps %s is meant", absent, strings.Join(meant, " or "))
}

// How like a served resource is to what the configuration names, the best first.
const (
	otherVersion = iota // it is served, in another version
	otherName           // a singular, a kind or a short name of this group
	otherGroup
	otherNameAndGroup
	misspelt
	misspeltElsewhere
	unlike
)

// mostMeant is how many suggestions are made.
const mostMeant = 3

// similar returns what of the lists is most like the resource, as an entry of the
// configuration would have it.
func similar(r config.Resource, lists []*metav1.APIResourceList) []string {
	best, meant := unlike, []string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // nothing could be asked for there
		}
		for _, served := range list.APIResources {
			if !slices.Contains(served.Verbs, "list") || !slices.Contains(served.Verbs, "watch") || strings.Contains(served.Name, "/") {
				continue
			}
			like := likeness(r, gv, &served)
			if like > best || like == unlike {
				continue
			}
			if like < best {
				best, meant = like, meant[:0]
			}
			if text := entry(r, gv, served.Name); !slices.Contains(meant, text) && len(meant) < mostMeant {
				meant = append(meant, text)
			}
		}
	}
	return meant
}

func likeness(r config.Resource, gv schema.GroupVersion, served *metav1.APIResource) int {
	here := gv.Group == r.APIGroup()
	pick := func(inGroup, elsewhere int) int {
		if here {
			return inGroup
		}
		return elsewhere
	}
	switch {
	case served.Name == r.Resource:
		return pick(otherVersion, otherGroup)
	case served.SingularName == r.Resource, strings.ToLower(served.Kind) == r.Resource, slices.Contains(served.ShortNames, r.Resource):
		return pick(otherName, otherNameAndGroup)
	case config.Misspelt(r.Resource, served.Name):
		return pick(misspelt, misspeltElsewhere)
	}
	return unlike
}

// entry is the resource as the configuration has it. It has a version where the one that
// is there asks for one.
func entry(r config.Resource, gv schema.GroupVersion, resource string) string {
	var keys []string
	if gv.Group != "" {
		keys = append(keys, "group: "+gv.Group)
	}
	if r.Version != "" {
		keys = append(keys, "version: "+gv.Version)
	}
	return "{" + strings.Join(append(keys, "resource: "+resource), ", ") + "}"
}
