//go:build unix && !linux

package testserver

import (
	"fmt"
	"net"
)

// Port is a port of 127.0.0.1 that was free a moment ago. Unlike on Linux, nothing keeps it free.
type Port struct{ Number int }

// ReservePort finds a port that is free.
func ReservePort() (*Port, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port of 127.0.0.1: %w", err)
	}
	return &Port{Number: l.Addr().(*net.TCPAddr).Port}, l.Close()
}

// Release does nothing.
func (*Port) Release() {}
