package kafka

import (
	"fmt"
	"slices"
	"time"

	"github.com/kbridge-io/kbridge/sinks"
)

// maxTopicName is Kafka's limit.
const maxTopicName = 249

// topic is one topic that events go to. The sink's mutex guards it and what it has.
type topic struct {
	name string
	// partitions is empty until the topic is known. Events wait in unsorted then.
	partitions []*partition
	unsorted   queue
	cameUp     time.Time // when it did so, zero if it was there before
	err        error     // why it is not known; nil as long as nobody has asked
	limit      int       // the largest batch that it takes, 0 where that is not known
	storedAs   string    // its compression.type, empty where that is not known
	described  time.Time // when its settings were read; zero: they are to be read
	notes      []note    // what was logged about them
	floor      int16     // the least epoch of partitions that are yet to come
}

// checkName checks what the template's fixed text and values make together.
func checkName(name []byte) error {
	switch {
	case len(name) > maxTopicName:
		return sinks.Permanent(fmt.Errorf("topic %.60s… has %d characters, Kafka takes %d", name, len(name), maxTopicName))
	case string(name) == "." || string(name) == "..":
		return sinks.Permanent(fmt.Errorf("%q is no name of a topic", name))
	}
	return nil
}

// absence is why a topic's partitions are not known, nil while nobody has asked yet.
func (s *Sink) absence(t *topic) error {
	if t.err != nil {
		return t.err
	}
	if !s.known {
		return s.problems.err()
	}
	return nil
}

// queues are all that the topic holds.
func (t *topic) queues() []*queue {
	all := []*queue{&t.unsorted}
	for _, p := range t.partitions {
		all = append(all, &p.queue)
	}
	return all
}

func (t *topic) holds() bool {
	return slices.ContainsFunc(t.queues(), func(q *queue) bool { return len(q.items) > 0 })
}
