package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Topic says how a topic is to be made.
type Topic struct {
	Partitions int32 // default: 1
	Replicas   int16 // default: as many as there are nodes
	Config     map[string]string
}

// TopicState is what the brokers say of a topic.
type TopicState struct {
	Partitions []PartitionState  // by number
	Config     map[string]string // all settings, also those that are defaults
}

// PartitionState names nodes by their ids.
type PartitionState struct {
	Leader   int // -1 where there is none
	Replicas []int
	InSync   []int
}

// Admin returns a client for what has no method here. It belongs to the cluster.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// CreateTopic makes a topic and returns when each running node knows it and its leaders, and these know that they are.
func (c *Cluster) CreateTopic(ctx context.Context, name string, topic Topic) error {
	if topic.Partitions == 0 {
		topic.Partitions = 1
	}
	if topic.Replicas == 0 {
		topic.Replicas = int16(len(c.Nodes))
	}
	if _, err := c.admin.CreateTopic(ctx, topic.Partitions, topic.Replicas, pointers(topic.Config), name); err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	err := c.all(func(n *Node) error {
		if !n.Running() {
			return nil
		}
		err := n.Await(ctx, func(ctx context.Context) error { return n.knowsLeaders(ctx, name) })
		if !n.Running() { // ended or paused meanwhile
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	for {
		offsets, err := c.admin.ListEndOffsets(ctx, name)
		if err == nil {
			err = offsets.Error()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w; the last answer: %w", name, context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (n *Node) knowsLeaders(ctx context.Context, topic string) error {
	m, err := n.metadata(ctx, topic)
	if err != nil {
		return err
	}
	for _, t := range m.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
		}
	}
	return nil
}

func pointers(m map[string]string) map[string]*string {
	p := make(map[string]*string, len(m))
	for k, v := range m {
		p[k] = &v
	}
	return p
}

// DeleteTopic removes a topic. The brokers may know it for a moment longer.
func (c *Cluster) DeleteTopic(ctx context.Context, name string) error {
	if _, err := c.admin.DeleteTopic(ctx, name); err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	return nil
}

// AlterTopic changes some of the topic's settings, and leaves the others. The brokers may follow the old ones for a
// moment longer.
func (c *Cluster) AlterTopic(ctx context.Context, name string, config map[string]string) error {
	var changes []kadm.AlterConfig
	for k, v := range config {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
	}
	answers, err := c.admin.AlterTopicConfigs(ctx, changes, name)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	if err != nil {
		return fmt.Errorf("alter topic %s: %w", name, err)
	}
	return nil
}

// DescribeTopic asks for the topic's partitions and settings.
func (c *Cluster) DescribeTopic(ctx context.Context, name string) (TopicState, error) {
	var s TopicState
	details, err := c.admin.ListTopics(ctx, name)
	if err == nil {
		err = details[name].Err
	}
	if err != nil {
		return s, fmt.Errorf("describe topic %s: %w", name, err)
	}
	for _, p := range details[name].Partitions.Sorted() {
		s.Partitions = append(s.Partitions, PartitionState{Leader: int(p.Leader), Replicas: ints(p.Replicas), InSync: ints(p.ISR)})
	}
	configs, err := c.admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return s, fmt.Errorf("describe the settings of topic %s: %w", name, err)
	}
	s.Config = map[string]string{}
	for _, resource := range configs {
		if resource.Err != nil {
			return s, fmt.Errorf("describe the settings of topic %s: %w", name, resource.Err)
		}
		for _, kv := range resource.Configs {
			s.Config[kv.Key] = kv.MaybeValue()
		}
	}
	return s, nil
}

func ints(ids []int32) []int {
	var out []int
	for _, id := range ids {
		out = append(out, int(id))
	}
	return out
}

// Leader returns the node that leads the partition, and waits where there is none, or it is not running.
func (c *Cluster) Leader(ctx context.Context, topic string, partition int) (*Node, error) {
	last := errors.New("no node is running")
	for {
		for _, n := range c.Nodes {
			if !n.Running() {
				continue
			}
			leader, err := n.leaderOf(ctx, topic, partition)
			if err == nil && c.Nodes[leader-1].Running() {
				return c.Nodes[leader-1], nil
			}
			if err == nil {
				err = fmt.Errorf("node %d says it is node %d, which is down", n.ID, leader)
			}
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("find the leader of partition %d of topic %s: %w; the last answer: %w", partition, topic, context.Cause(ctx), last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// leaderOf asks this node for the id of the partition's leader.
func (n *Node) leaderOf(ctx context.Context, topic string, partition int) (int, error) {
	m, err := n.metadata(ctx, topic)
	if err != nil {
		return 0, err
	}
	for _, p := range m.Topics[0].Partitions {
		if int(p.Partition) == partition && p.Leader > 0 {
			return int(p.Leader), nil
		}
	}
	return 0, fmt.Errorf("node %d knows none", n.ID)
}
