package cause

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

func TestAFailureThatRepeatsHasOneCause(t *testing.T) {
	reset := func(ip net.IP, port int) error {
		return fmt.Errorf("ask: %w", &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: ip, Port: port}, Addr: &net.TCPAddr{IP: ip, Port: 9092}, Err: errors.New("connection reset by peer")})
	}
	v4, v6 := net.IPv4(10, 1, 2, 3), net.ParseIP("2001:db8::1")
	for name, pair := range map[string][2]error{
		"the local port":       {reset(v4, 1024), reset(v4, 50001)},
		"an IPv6 address":      {reset(v6, 1024), reset(net.ParseIP("fd00::2"), 50001)},
		"the broker's address": {reset(v4, 1024), reset(net.IPv4(10, 1, 2, 4), 1024)},
		"the time of an expired certificate": {
			errors.New("x509: certificate has expired or is not yet valid: current time 2026-12-01T09:46:32Z is after 2026-12-01T08:46:19Z"),
			errors.New("x509: certificate has expired or is not yet valid: current time 2026-12-01T09:46:33Z is after 2026-12-01T08:46:19Z"),
		},
		"a duration": {errors.New("no answer after 10.1s"), errors.New("no answer after 9s")},
		"a size":     {errors.New("40513 bytes are too many"), errors.New("1048588 bytes are too many")},
	} {
		if a, b := Of(pair[0]), Of(pair[1]); a != b {
			t.Errorf("%s makes two causes of one: %q and %q", name, a, b)
		}
	}
}

func TestCausesThatDifferAreToldApart(t *testing.T) {
	for name, pair := range map[string][2]string{
		"the code":         {"the server answers 401 Unauthorized", "the server answers 403 Forbidden"},
		"the code alone":   {"status 500", "status 503"},
		"the resource":     {"widgets.v1.example.dev is forbidden", "widgets.v2.example.dev is forbidden"},
		"the failure":      {"connect to 10.0.0.1:9092: connection refused", "connect to 10.0.0.1:9092: i/o timeout"},
		"the sink's topic": {"topic k8s-1 is unknown", "topic k8s-2 is unknown"},
	} {
		if a, b := Of(errors.New(pair[0])), Of(errors.New(pair[1])); a == b {
			t.Errorf("%s does not tell two causes apart: %q", name, a)
		}
	}
}
