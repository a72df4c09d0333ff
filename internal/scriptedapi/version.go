package scriptedapi

import (
	"fmt"
	"math/bits"
	"strconv"
)

// Version returns the cluster's current resourceVersion.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.label(s.version)
}

// Advance moves the version on as n changes to unseen resources would, and returns the new one.
func (s *Server) Advance(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += int64(n)
	return s.label(s.version)
}

// SetOpaqueVersions makes every resourceVersion a word that can only be compared for equality, as some aggregated
// servers do. Objects get their new form at once, and history is forgotten; so call it before clients connect.
func (s *Server) SetOpaqueVersions(opaque bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opaque = opaque
	s.compact()
	for _, r := range s.resources {
		for k, o := range r.objects {
			r.objects[k] = o.at(o.version, s)
		}
	}
}

// label is a version as clients see it. The caller holds mu.
func (s *Server) label(version int64) string {
	if s.opaque {
		return fmt.Sprintf("v%016x", bits.Reverse64(uint64(version))) // reversed, so that no order is left in it
	}
	return strconv.FormatInt(version, 10)
}

// parse reads a version that a client sent. The caller holds mu.
func (s *Server) parse(label string) (int64, error) {
	if s.opaque && label != "0" {
		if len(label) != 17 || label[0] != 'v' {
			return 0, fmt.Errorf("resourceVersion %q was not made by this server", label)
		}
		n, err := strconv.ParseUint(label[1:], 16, 64)
		return int64(bits.Reverse64(n)), err
	}
	n, err := strconv.ParseUint(label, 10, 63)
	return int64(n), err
}
