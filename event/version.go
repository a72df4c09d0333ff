package event

import "k8s.io/apimachinery/pkg/util/resourceversion"

// CompareVersions compares two resourceVersions of the same resource: negative where
// a is before b. ok is false where they do not compare: some servers' versions are
// opaque, and good for equality alone.
func CompareVersions(a, b string) (c int, ok bool) {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return c, err == nil
}
