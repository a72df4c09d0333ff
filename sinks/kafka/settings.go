package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/config"
)

// The settings that are read.
const (
	keyMaxBytes = "max.message.bytes"
	keyMinISR   = "min.insync.replicas"
	keyUnclean  = "unclean.leader.election.enable"
	keyCleanup  = "cleanup.policy"
	keyStoredAs = "compression.type"
)

const resourceTopic = 2

// describeEvery is how often a topic's settings are read.
const describeEvery = 5 * time.Minute

// describe reads the settings of topics before anything is sent to them. A cluster
// that does not let us read them still takes events. Its error is the connection's.
func (s *Sink) describe(c *conn, cluster *metadata.Response, names []string) error {
	m, err := c.ask(description(names), questionTimeout)
	if err != nil {
		return fmt.Errorf("read the settings of topics: %w", err)
	}
	found := make(map[note][]string)
	for _, r := range m.(*describeconfigs.Response).Resources {
		i := slices.IndexFunc(cluster.Topics, func(t metadata.ResponseTopic) bool { return t.Name == r.ResourceName })
		if i < 0 {
			continue
		}
		settings, notes := judgeTopic(&s.cfg, &r, &cluster.Topics[i])
		if settings == nil {
			s.count(&s.stats.Failures.Lookup)
		}
		for _, n := range s.learnSettings(r.ResourceName, settings, notes) {
			found[n] = append(found[n], r.ResourceName)
		}
	}
	for n, topics := range found {
		s.log.Warn("topic: "+n.text, "topics", few(topics), "setting", n.setting, "value", n.value, "expected", n.expected)
	}
	return nil
}

// description asks for the settings of topics.
func description(names []string) *describeconfigs.Request {
	req := &describeconfigs.Request{}
	for _, name := range names {
		req.Resources = append(req.Resources, describeconfigs.RequestResource{
			ResourceType: resourceTopic, ResourceName: name,
			ConfigNames: []string{keyMaxBytes, keyMinISR, keyUnclean, keyCleanup, keyStoredAs},
		})
	}
	return req
}

// learnSettings keeps a topic's settings and returns the notes that are new.
func (s *Sink) learnSettings(name string, settings map[string]string, notes []note) []note {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if t == nil {
		return nil
	}
	t.described = time.Now()
	t.storedAs = settings[keyStoredAs]
	if limit, err := strconv.Atoi(settings[keyMaxBytes]); err == nil && limit != t.limit {
		t.limit = limit
		for _, p := range t.partitions {
			p.limit = 0
		}
	}
	var news []note
	for _, n := range notes {
		if !slices.Contains(t.notes, n) {
			news = append(news, n)
		}
	}
	t.notes = notes
	return news
}

// note is a remark about one setting of a topic.
type note struct{ setting, value, expected, text string }

// judgeTopic reads a topic's settings, nil where that is not allowed, and lists what lets
// it lose what it has acknowledged, and what is not as the configuration has it.
func judgeTopic(cfg *config.Kafka, r *describeconfigs.ResponseResource, t *metadata.ResponseTopic) (settings map[string]string, notes []note) {
	if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
		return nil, []note{{"settings", "unknown", "readable", "its limits and its durability can not be read: " + err.Error()}}
	}
	settings = make(map[string]string, len(r.ConfigEntries))
	for _, e := range r.ConfigEntries {
		settings[e.ConfigName] = e.ConfigValue
	}
	return settings, judgeSettings(cfg, settings, t)
}

func judgeSettings(cfg *config.Kafka, settings map[string]string, t *metadata.ResponseTopic) []note {
	replicas := 0
	for i := range t.Partitions {
		if n := len(t.Partitions[i].ReplicaNodes); replicas == 0 || n < replicas {
			replicas = n
		}
	}
	inSync, _ := strconv.Atoi(settings[keyMinISR])
	var notes []note
	if replicas == 1 {
		notes = append(notes, note{"replication", "1", "3", "what is acknowledged is lost with one broker"})
	}
	if cfg.Acks == config.AcksAll && replicas > 1 && inSync == 1 {
		notes = append(notes, note{keyMinISR, "1", "2", "while the other replicas are behind, an acknowledgement stands for one copy"})
	}
	if inSync > replicas && replicas > 0 {
		notes = append(notes, note{keyMinISR, strconv.Itoa(inSync), strconv.Itoa(max(1, replicas-1)), "with more than there are replicas nothing can be stored"})
	}
	if settings[keyUnclean] == "true" && replicas > 1 {
		notes = append(notes, note{keyUnclean, "true", "false", "a replica that is behind may become the leader, and what it has not is lost"})
	}
	compacts := strings.Contains(settings[keyCleanup], string(config.CleanupCompact))
	if compacts && !cfg.Tombstones {
		notes = append(notes, note{keyCleanup, settings[keyCleanup], "tombstones: true", "a compacted topic keeps the last state of deleted objects for ever"})
	}
	if want := string(cfg.CleanupPolicy); cfg.TopicPolicy == config.TopicCreate && settings[keyCleanup] != "" && compacts != strings.Contains(want, string(config.CleanupCompact)) {
		notes = append(notes, note{keyCleanup, settings[keyCleanup], want, "it differs from the configuration and is left as it is"})
	}
	if cfg.TopicPolicy == config.TopicCreate && cfg.Partitions > 0 && len(t.Partitions) != cfg.Partitions {
		notes = append(notes, note{"partitions", strconv.Itoa(len(t.Partitions)), strconv.Itoa(cfg.Partitions), "it differs from the configuration and is left as it is"})
	}
	if cfg.TopicPolicy == config.TopicCreate && cfg.Replication > 0 && replicas != cfg.Replication {
		notes = append(notes, note{"replication", strconv.Itoa(replicas), strconv.Itoa(cfg.Replication), "it differs from the configuration and is left as it is"})
	}
	return notes
}

// few lists the first few topics: there may be hundreds.
func few(topics []string) string {
	const most = 5
	if len(topics) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(topics[:most], ", "), len(topics)-most)
	}
	return strings.Join(topics, ", ")
}
