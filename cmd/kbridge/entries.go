package main

import (
	"fmt"

	"github.com/kbridge-io/kbridge/config"
)

// entryNames are what metrics and logs call the entries of the configuration, in their
// order: by their names, or the resources where they have none. Of several with one name,
// which would be counted as one, the second is name/2. A name has no slash.
func entryNames(resources []config.Resource) []string {
	seen := map[string]int{}
	names := make([]string, 0, len(resources))
	for i := range resources {
		name := resources[i].Entry()
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s/%d", name, seen[name])
		}
		names = append(names, name)
	}
	return names
}
