//go:build !unix

package embedded

import (
	"os"

	"github.com/kbridge-io/kbridge/internal/owned"
)

// acquire only opens the file: there is no lock that ends with the process here.
func acquire(path string) (*os.File, error) {
	return owned.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
