package kafkabroker

import (
	"fmt"
	"syscall"
)

// port keeps a port of 127.0.0.1 for a server, also while the server is down, so that it comes back where its clients
// look for it. The socket is bound but never listens: the kernel gives the port to nobody else, neither to a listener
// on port 0 nor to an outgoing connection, and refuses connections to it; but a server that names the port can listen
// on it, because both set SO_REUSEADDR (on Linux, Java does so for every listener).
type port struct {
	number int
	fd     int
}

func reservePort() (*port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	p := &port{fd: fd}
	if p.number, err = bindFreePort(fd); err != nil {
		p.release()
		return nil, err
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

func (p *port) release() {
	if p.fd >= 0 {
		_ = syscall.Close(p.fd)
		p.fd = -1
	}
}
