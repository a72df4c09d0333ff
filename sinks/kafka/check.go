package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/sinks"
)

// Check notes what a start would find in the sink's cluster: whether it can log in, the
// brokers that the cluster names, and the topics of the samples' events, which it judges
// as a start does. It creates and publishes nothing. It returns by the end of ctx.
func Check(ctx context.Context, sink config.Sink, samples []sinks.Sample, found *check.Subject) {
	template, err := event.KafkaTopic(sink.Kafka.Topic)
	if err != nil {
		found.Gap("topic: %v", err)
		return
	}
	p := &probe{cfg: sink.Kafka, dialer: newDialer(*sink.Kafka, "kbridge/"+sink.Name+"/check"), found: found}
	conns := p.connect(ctx, p.cfg.Brokers, false)
	if len(conns) == 0 {
		return
	}
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	p.conn = conns[0]
	names := p.topicNames(template, samples)
	cluster, err := p.cluster(names)
	if err != nil {
		found.Gap("ask %s about the cluster: %v", p.conn.address, check.Reason(ctx, err))
		return
	}
	conns = append(conns, p.brokers(ctx, cluster)...)
	p.codec()
	if err := p.topics(cluster); err != nil {
		found.Gap("ask %s about topics: %v", p.conn.address, check.Reason(ctx, err))
	}
}

// probe is a check of one sink. One goroutine uses it.
type probe struct {
	cfg    *config.Kafka
	dialer *dialer
	found  *check.Subject
	conn   *conn // for questions
}

// connect logs in at each address and returns the connections. Of the brokers to begin
// with one is enough; those that the cluster names are all needed.
func (p *probe) connect(ctx context.Context, addresses []string, all bool) []*conn {
	made, errs := make([]*conn, len(addresses)), make([]error, len(addresses))
	var dialling sync.WaitGroup
	for i, address := range addresses {
		dialling.Go(func() { made[i], errs[i] = p.dialer.dial(ctx, address) })
	}
	dialling.Wait()
	conns := slices.DeleteFunc(slices.Clone(made), func(c *conn) bool { return c == nil })
	note := p.found.Warn
	if all || len(conns) == 0 {
		note = p.found.Gap
	}
	for i, err := range errs {
		if err != nil {
			note("connect to %s: %v", addresses[i], check.Reason(ctx, err))
		}
	}
	return conns
}

// topicNames are the topics of the samples, as far as they are known without the objects.
func (p *probe) topicNames(template *event.Template, samples []sinks.Sample) []string {
	names := []string{} // nil asks for all topics
	var open []string
	for _, s := range samples {
		name := template.Pattern(s.Event, s.Unknown)
		switch known := !strings.Contains(name, "*"); {
		case known && !slices.Contains(names, name):
			names = append(names, name)
		case !known && !slices.Contains(open, name):
			open = append(open, name)
		}
	}
	if len(open) > 0 {
		p.found.Warn("topics that depend on the objects can not be looked at: %s", few(open))
	}
	return slices.DeleteFunc(names, func(name string) bool {
		err := checkName([]byte(name))
		if err != nil {
			p.found.Gap("%v", err)
		}
		return err != nil
	})
}

func (p *probe) cluster(names []string) (*metadata.Response, error) {
	m, err := p.conn.ask(&metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true}, questionTimeout)
	if err != nil {
		return nil, err
	}
	return m.(*metadata.Response), nil
}

// brokers connects to all brokers of the cluster: events go to each that leads a partition.
func (p *probe) brokers(ctx context.Context, cluster *metadata.Response) []*conn {
	var addresses []string
	for _, b := range cluster.Brokers {
		if address := joinHostPort(b.Host, b.Port); address != p.conn.address {
			addresses = append(addresses, address)
		}
	}
	conns := p.connect(ctx, addresses, true)
	if len(conns) == len(addresses) {
		as := ""
		if sasl := p.cfg.SASL; sasl != nil {
			as = fmt.Sprintf(" with %s", sasl.Mechanism)
			if sasl.User != "" {
				as += " as " + sasl.User
			}
		}
		p.found.OK("logged in%s at %s; brokers of the cluster: %d", as, p.conn.address, len(cluster.Brokers))
	}
	return conns
}

// zstdSince is the version of requests to store since which brokers take zstd.
const zstdSince = 7

// codec says whether the brokers are too old for the codec of the batches. Of others they
// do not tell which they take.
func (p *probe) codec() {
	if version := p.conn.offered[protocol.Produce]; p.cfg.Compression == config.CompressionZstd && version < zstdSince {
		p.found.Gap("the brokers are too old for batches in zstd: set kafka.compression to gzip or none")
	}
}

// topics judges those that are there, and says which a start would create.
func (p *probe) topics(cluster *metadata.Response) error {
	var there, absent []string
	failed := map[string][]string{}
	for i := range cluster.Topics {
		t := &cluster.Topics[i]
		err := brokerError(t.ErrorCode, "")
		switch {
		case errors.Is(err, client.UnknownTopicOrPartition):
			absent = append(absent, t.Name)
		case err != nil:
			failed[err.Error()] = append(failed[err.Error()], t.Name)
		default:
			there = append(there, t.Name)
			p.partitions(t)
		}
	}
	slices.Sort(absent)
	p.each(failed, func(topics, why string) { p.found.Gap("topics %s: %s", topics, why) })
	if err := p.existing(cluster, there); err != nil {
		return err
	}
	switch {
	case len(absent) == 0:
		return nil
	case p.cfg.TopicPolicy != config.TopicCreate:
		p.found.Gap("topics %s do not exist, and the configuration does not let kbridge create them (topicPolicy)", few(absent))
		return nil
	}
	return p.absent(absent)
}

// each calls do for each group of topics, in a fixed order.
func (p *probe) each(groups map[string][]string, do func(topics, why string)) {
	var reasons []string
	for why := range groups {
		reasons = append(reasons, why)
	}
	slices.Sort(reasons)
	for _, why := range reasons {
		slices.Sort(groups[why])
		do(few(groups[why]), why)
	}
}

// operationWrite is the bit of the permission to write, among those that a broker tells.
const operationWrite = 1 << 4

// partitions notes what keeps a topic from taking events.
func (p *probe) partitions(t *metadata.ResponseTopic) {
	leaderless := 0
	for i := range t.Partitions {
		if t.Partitions[i].LeaderID < 0 {
			leaderless++
		}
	}
	if leaderless > 0 {
		p.found.Gap("topic %s: of %d partitions %d have no leader", t.Name, len(t.Partitions), leaderless)
	}
	if ops := t.TopicAuthorizedOperations; ops != 0 && ops != math.MinInt32 && ops&operationWrite == 0 {
		p.found.Gap("topic %s: it may not be written to (Write on it is missing)", t.Name)
	}
}

// existing judges the settings of topics.
func (p *probe) existing(cluster *metadata.Response, names []string) error {
	if len(names) == 0 {
		return nil
	}
	m, err := p.conn.ask(description(names), questionTimeout)
	if err != nil {
		return err
	}
	found := map[string][]string{}
	limits := map[string][]string{}
	for _, r := range m.(*describeconfigs.Response).Resources {
		i := slices.IndexFunc(cluster.Topics, func(t metadata.ResponseTopic) bool { return t.Name == r.ResourceName })
		if i < 0 {
			continue
		}
		settings, notes := judgeTopic(p.cfg, &r, &cluster.Topics[i])
		for _, n := range notes {
			text := fmt.Sprintf("%s (%s is %s, expected %s)", n.text, n.setting, n.value, n.expected)
			found[text] = append(found[text], r.ResourceName)
		}
		limit := "of a size that is not known"
		if n, err := strconv.Atoi(settings[keyMaxBytes]); err == nil {
			limit = "of up to " + config.Size(n).String()
		}
		limits[limit] = append(limits[limit], r.ResourceName)
	}
	p.each(limits, func(topics, limit string) { p.found.OK("topics %s are there, and take batches %s", topics, limit) })
	p.each(found, func(topics, why string) { p.found.Warn("topics %s: %s", topics, why) })
	return nil
}

// absent has the brokers look at the topics that a start would create, without creating
// them.
func (p *probe) absent(names []string) error {
	if !p.conn.offers(protocol.CreateTopics) || p.conn.offered[protocol.CreateTopics] < 1 {
		p.found.Warn("a start would create the topics %s; whether it may is not known: the brokers can not validate it", few(names))
		return nil
	}
	req := creation(p.cfg, names)
	req.ValidateOnly = true
	m, err := p.conn.ask(req, questionTimeout)
	if err != nil {
		return err
	}
	refused := map[string][]string{}
	var would []string
	for _, t := range m.(*createtopics.Response).Topics {
		switch err := brokerError(t.ErrorCode, t.ErrorMessage); {
		case err == nil, errors.Is(err, client.TopicAlreadyExists): // meanwhile
			would = append(would, t.Name)
		default:
			refused[err.Error()] = append(refused[err.Error()], t.Name)
		}
	}
	if len(would) > 0 {
		slices.Sort(would)
		p.found.OK("a start would create the topics %s with %s when their first event comes", few(would), p.settings())
	}
	p.each(refused, func(topics, why string) { p.found.Gap("a start can not create the topics %s: %s", topics, why) })
	return nil
}

// settings are those of a topic that a start would create.
func (p *probe) settings() string {
	number := func(n int) string {
		if n == 0 {
			return "as the brokers have it"
		}
		return strconv.Itoa(n)
	}
	text := fmt.Sprintf("partitions: %s, replicas: %s, cleanup.policy: %s", number(p.cfg.Partitions), number(p.cfg.Replication), p.cfg.CleanupPolicy)
	if p.cfg.CleanupPolicy != config.CleanupCompact {
		text += fmt.Sprintf(", retention.ms: %d", retention(p.cfg))
	}
	return text
}
