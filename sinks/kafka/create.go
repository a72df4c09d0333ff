package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/config"
)

// provide creates the topics that are absent and that events wait for, or says that
// they are absent. Its error is the connection's.
func (s *Sink) provide(ctx context.Context, c *conn, cluster *metadata.Response, absent []string) error {
	create := s.cfg.TopicPolicy == config.TopicCreate
	var wanted []string
	for _, name := range absent {
		s.mu.Lock()
		wants := s.topics[name].holds()
		s.mu.Unlock()
		switch {
		case !create:
			s.absent(name, fmt.Errorf("topic %s does not exist, and the configuration does not let kbridge create it (topicPolicy)", name))
		case wants:
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return s.create(ctx, c, cluster, wanted)
}

// absent notes why a topic is not there.
func (s *Sink) absent(name string, err error) {
	s.mu.Lock()
	s.topics[name].err = err
	s.stats.Failures.Lookup++
	s.mu.Unlock()
	s.report(topicProblem(name), err)
}

// create asks the controller for the topics. In a cluster without ZooKeeper any broker
// passes the request on, and names one at random as the controller.
func (s *Sink) create(ctx context.Context, c *conn, cluster *metadata.Response, names []string) error {
	for _, b := range cluster.Brokers {
		if b.NodeID != cluster.ControllerID {
			continue
		}
		controller, err := s.dial(ctx, joinHostPort(b.Host, b.Port))
		if err != nil {
			break // the one that we have may do
		}
		defer controller.close()
		c = controller
	}
	req := creation(&s.cfg, names)
	m, err := c.ask(req, questionTimeout)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	now := time.Now()
	for _, t := range m.(*createtopics.Response).Topics {
		err := brokerError(t.ErrorCode, t.ErrorMessage)
		switch {
		case err == nil:
			s.cameUp(t.Name, now)
			s.log.Info("created topic", "topic", t.Name, "partitions", t.NumPartitions, "replication", t.ReplicationFactor, "cleanupPolicy", s.cfg.CleanupPolicy)
		case errors.Is(err, client.TopicAlreadyExists):
			// Another kbridge was faster, or the broker that we asked lags behind.
			s.cameUp(t.Name, now)
		default:
			s.absent(t.Name, fmt.Errorf("create topic %s: %w", t.Name, err))
		}
	}
	return nil
}

func (s *Sink) cameUp(name string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil && !t.settles(now) {
		t.cameUp = now
	}
}

// creation asks for topics as the configuration has them.
func creation(cfg *config.Kafka, names []string) *createtopics.Request {
	req := &createtopics.Request{TimeoutMs: int32(questionTimeout.Milliseconds() * 4 / 5)}
	settings := topicConfig(cfg)
	for _, name := range names {
		t := createtopics.RequestTopic{Name: name, NumPartitions: -1, ReplicationFactor: -1}
		if cfg.Partitions > 0 {
			t.NumPartitions = int32(cfg.Partitions)
		}
		if cfg.Replication > 0 {
			t.ReplicationFactor = int16(cfg.Replication)
		}
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			t.Configs = append(t.Configs, createtopics.RequestConfig{Name: key, Value: settings[key]})
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// topicConfig is what a topic is created with.
func topicConfig(cfg *config.Kafka) map[string]string {
	settings := map[string]string{keyCleanup: string(cfg.CleanupPolicy)}
	if cfg.CleanupPolicy != config.CleanupCompact {
		settings["retention.ms"] = fmt.Sprint(retention(cfg))
	}
	return settings
}

// retention is a topic's retention.ms.
func retention(cfg *config.Kafka) int64 {
	if cfg.Retention == 0 {
		return -1
	}
	return cfg.Retention.Milliseconds()
}
