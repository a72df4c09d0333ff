package licenses

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// permissive are the licenses, by their SPDX identifiers, under which a module may be linked: they ask for their text and
// their notices to be passed on, and for nothing that concerns kbridge's own source.
var permissive = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense"}

// enough is how many of the hundred words of a file have to belong to licenses that are known. The rest are headings,
// copyright lines and names.
const enough = 75

// Kinds returns the licenses of a module. An error says which file is not understood, or not taken.
func (m Module) Kinds() ([]string, error) {
	var kinds []string
	var errs []error
	for _, f := range m.Files {
		if !license.MatchString(path.Base(f.Name)) {
			continue
		}
		found, err := kindsOf(f.Text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", m.Path, f.Name, err))
		}
		kinds = append(kinds, found...)
	}
	if len(kinds) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s has no license", m.Path))
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), errors.Join(errs...)
}

func kindsOf(text []byte) ([]string, error) {
	cover := licensecheck.Scan(text)
	var kinds, refused []string
	for _, match := range cover.Match {
		switch {
		case match.IsURL: // in the text of a license, or beside it
		case slices.Contains(permissive, match.ID):
			kinds = append(kinds, match.ID)
		default:
			refused = append(refused, match.ID)
		}
	}
	switch {
	case len(refused) > 0:
		return kinds, fmt.Errorf("%s is not among the licenses that are taken, which are %s", strings.Join(refused, ", "), strings.Join(permissive, ", "))
	case len(kinds) == 0 || cover.Percent < enough:
		return kinds, fmt.Errorf("the license is not known: %.0f %% of the words are a known license's", cover.Percent)
	}
	return kinds, nil
}
