//go:build !unix

package owned

// writable says nothing here: it is found out by making a file.
func writable(string) error { return nil }
