//go:build unix && !linux

package kafkabroker

import "net"

// port is a port of 127.0.0.1 that was free a moment ago. Unlike on Linux, nothing keeps it free.
type port struct{ number int }

func reservePort() (*port, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &port{number: l.Addr().(*net.TCPAddr).Port}, l.Close()
}

func (*port) release() {}
