package kafka

import (
	"encoding/binary"

	"github.com/kbridge-io/kbridge/event"
)

// appendKey appends the record's key, which names the object: all its events share a
// partition, and a compacted topic keeps its last one. The markers of a resource
// share keys that no object can have.
func appendKey(dst []byte, e *event.Event) []byte {
	group := e.Resource.Group
	if group == "" {
		group = "core"
	}
	dst = append(append(dst, e.Resource.Cluster...), '/')
	if e.Type.IsMarker() {
		dst = append(append(append(dst, e.Key.Name...), '/'), group...)
		return append(append(dst, '/'), e.Resource.Resource...)
	}
	dst = append(append(dst, group...), '/')
	dst = append(append(dst, e.Resource.Resource...), '/')
	namespace := e.Key.Namespace
	if namespace == "" {
		namespace = "_"
	}
	dst = append(append(dst, namespace...), '/')
	return append(dst, e.Key.Name...)
}

// partitionOf is the partition that Kafka's own clients choose for the key.
func partitionOf(key []byte, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is the 32-bit MurmurHash2 with the seed that Kafka's Java client gives it.
func murmur2(data []byte) uint32 {
	const m, seed = 0x5bd1e995, 0x9747b28c
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	if len(data) > 0 {
		var rest [4]byte
		copy(rest[:], data)
		h = (h ^ binary.LittleEndian.Uint32(rest[:])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
