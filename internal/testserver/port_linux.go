package testserver

import (
	"fmt"
	"syscall"
)

// Port keeps a port of 127.0.0.1 for a server, also while the server is down, so that it comes back where its clients
// look for it. The socket is bound but never listens: the kernel gives the port to nobody else, neither to a listener
// on port 0 nor to an outgoing connection, and refuses connections to it; but a server that names the port can listen
// on it, because both set SO_REUSEADDR (on Linux, Go and Java do so for every listener).
type Port struct {
	Number int
	fd     int
}

// ReservePort finds a port that is free.
func ReservePort() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port of 127.0.0.1: open a socket: %w", err)
	}
	p := &Port{fd: fd}
	if p.Number, err = bindFreePort(fd); err != nil {
		p.Release()
		return nil, fmt.Errorf("reserve a port of 127.0.0.1: %w", err)
	}
	return p, nil
}

func bindFreePort(fd int) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, fmt.Errorf("bind: %w", err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("read the socket's address: %w", err)
	}
	return addr.(*syscall.SockaddrInet4).Port, nil
}

// Release gives the port back. A second call does nothing.
func (p *Port) Release() {
	if p.fd >= 0 {
		_ = syscall.Close(p.fd)
		p.fd = -1
	}
}
