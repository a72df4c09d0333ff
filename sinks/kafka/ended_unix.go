//go:build linux || darwin || freebsd

package kafka

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

// ended says that the other side has closed the connection, on which no answer is
// waited for, or has said something that nobody asked for, as TLS does before its end. It
// does not wait: the end of what was idle has come long before.
func (c *conn) ended() bool {
	raw := c.raw
	if secure, is := raw.(*tls.Conn); is {
		raw = secure.NetConn()
	}
	tcp, is := raw.(*net.TCPConn)
	if !is {
		return false
	}
	socket, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	_ = tcp.SetReadDeadline(time.Time{}) // that of the last answer; fails where the next does
	var peeked error
	err = socket.Read(func(fd uintptr) bool {
		var unasked [1]byte
		_, _, peeked = syscall.Recvfrom(int(fd), unasked[:], syscall.MSG_PEEK)
		return true // it does not block, as no socket of Go's does
	})
	return err != nil || !errors.Is(peeked, syscall.EAGAIN)
}
