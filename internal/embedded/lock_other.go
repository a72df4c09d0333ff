//go:build !unix

package embedded

import "os"

// acquire only opens the file: there is no lock that ends with the process here.
func acquire(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}
