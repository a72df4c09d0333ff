package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kbridge-io/kbridge/internal/cause"
)

// problems is what keeps events from being delivered, by what it concerns: the
// cluster, a broker, a topic, a partition. The sink's mutex guards it.
type problems struct {
	now map[string]problem
	// causes counts the problems with the same cause: a broker that is gone is one
	// line in the log, not one for each of its partitions.
	causes map[string]int
}

type problem struct {
	err   error
	cause string
}

const problemCluster = ""

func brokerProblem(id int32) string                 { return fmt.Sprintf("broker %d", id) }
func topicProblem(name string) string               { return "topic " + name }
func partitionProblem(topic string, i int32) string { return fmt.Sprintf("topic %s/%d", topic, i) }

func leaderProblem(topic string, i int32) string { return partitionProblem(topic, i) + " leader" }

func (p *problems) has(key string) bool {
	_, ok := p.now[key]
	return ok
}

func (p *problems) init() {
	p.now, p.causes = make(map[string]problem), make(map[string]int)
}

// note keeps the problem, and returns whether its cause is new.
func (p *problems) note(key string, err error) bool {
	cause := causeOf(err)
	if was, ok := p.now[key]; ok && was.cause == cause {
		return false
	}
	_ = p.over(key)
	p.now[key] = problem{err, cause}
	p.causes[cause]++
	return p.causes[cause] == 1
}

// over forgets the problem, and returns its error if no other has the same cause.
func (p *problems) over(key string) error {
	was, ok := p.now[key]
	if !ok {
		return nil
	}
	delete(p.now, key)
	if p.causes[was.cause]--; p.causes[was.cause] > 0 {
		return nil
	}
	delete(p.causes, was.cause)
	return was.err
}

// err is one of the problems, the same one while there are the same, or nil.
func (p *problems) err() error {
	if len(p.now) == 0 {
		return nil
	}
	first := slices.Min(slices.Collect(maps.Keys(p.now)))
	err := p.now[first].err
	if more := len(p.causes) - 1; more > 0 && first != problemCluster {
		return fmt.Errorf("%w (and %d more)", err, more)
	}
	return err
}

// aboutPartition is an error with the partition that it concerns, which is no part of
// its cause.
type aboutPartition struct {
	topic     string
	partition int32
	err       error
}

func (e *aboutPartition) Error() string {
	return fmt.Sprintf("publish to partition %d of topic %s: %v", e.partition, e.topic, e.err)
}

func (e *aboutPartition) Unwrap() error { return e.err }

func causeOf(err error) string {
	if about := (*aboutPartition)(nil); errors.As(err, &about) {
		err = about.err
	}
	return cause.Of(err)
}
