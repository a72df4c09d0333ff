package tail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks/kafka"
)

const (
	// lookEvery is how often the cluster is asked for new topics and other leaders,
	// lookPause how often as long as something is amiss.
	lookEvery = 2 * time.Second
	lookPause = 250 * time.Millisecond
	// markersKept is how many markers are remembered, so that each is handed on once
	// though all partitions have it.
	markersKept = 1024
)

// Kafka is the topics of a Kafka sink: all that its template can have made. Its
// filters are patterns as path.Match has them, for a topic's whole name.
type Kafka struct{ Config config.Kafka }

var _ Source = Kafka{}

func (s Kafka) open(r *reader) source {
	return &topicReader{
		Kafka: s, reader: r, connector: kafka.NewConnector(s.Config, "kbridge tail"), made: topicsOf(s.Config.Topic),
		renewed: map[string]time.Time{},
	}
}

// placeholder is what a template has in braces.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// topicsOf matches the topics that a template can make. Values come with dots.
func topicsOf(template string) *regexp.Regexp {
	expr, rest := "^", template
	for _, at := range placeholder.FindAllStringIndex(template, -1) {
		text := template[len(template)-len(rest) : at[0]]
		expr += regexp.QuoteMeta(text) + `[A-Za-z0-9._-]+`
		rest = template[at[1]:]
	}
	return regexp.MustCompile(expr + regexp.QuoteMeta(rest) + "$")
}

// topicReader is what outlives a connection. One goroutine uses it, but for
// connections that are asked at the same time.
type topicReader struct {
	Kafka
	*reader
	connector *kafka.Connector
	made      *regexp.Regexp // the topics that are the sink's

	partitions []*partition         // by topic and number
	looked     bool                 // the topics of the beginning are known
	markers    []string             // ids of the last markers
	renewed    map[string]time.Time // when a topic was told to be made anew
	turn       int                  // rotates the order of the partitions in requests

	// Of the session:
	connections map[string]*kafka.Connection // by address
	denied      map[string]bool              // topics that may not be read
	seen        time.Time                    // when the cluster was looked at
	amiss       bool                         // look again soon
	troubles    []string                     // why something is not read, since the last look
	reading     bool                         // it was told
}

// session implements source.
func (r *topicReader) session(ctx context.Context) error {
	r.connections, r.seen, r.amiss, r.reading = map[string]*kafka.Connection{}, time.Time{}, false, false
	r.troubles, r.denied = nil, map[string]bool{}
	defer func() {
		for _, c := range r.connections {
			c.Close()
		}
	}()
	for ctx.Err() == nil {
		if since := time.Since(r.seen); since >= lookEvery || r.amiss && since >= lookPause {
			if err := r.look(ctx); err != nil {
				return err
			}
		}
		if err := r.emit(); err != nil {
			return err
		}
		asked, err := r.fetch(ctx)
		if err != nil {
			return err
		}
		if !asked {
			select {
			case <-time.After(lookPause):
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
}

// look learns topics, partitions and leaders, and where to begin in those that are new.
func (r *topicReader) look(ctx context.Context) error {
	cluster, err := r.askCluster(ctx)
	if err != nil {
		return err
	}
	r.seen, r.amiss = time.Now(), false
	addresses := map[int32]string{}
	for _, b := range cluster.Brokers {
		addresses[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	var found []*partition
	var added []string
	for _, t := range cluster.Topics {
		if t.IsInternal || !r.wants(t.Name) {
			continue
		}
		if t.ErrorCode != 0 {
			if client.Error(t.ErrorCode) != client.UnknownTopicOrPartition { // it is being deleted
				r.troubles = append(r.troubles, fmt.Sprintf("topic %s: %s", t.Name, codeText(t.ErrorCode)))
			}
			found = append(found, r.partitionsOf(t.Name)...)
			continue
		}
		known := r.partitionsOf(t.Name)
		if len(known) == 0 {
			added = append(added, t.Name)
		}
		for _, answer := range t.Partitions {
			i := slices.IndexFunc(known, func(p *partition) bool { return p.index == answer.PartitionIndex })
			p := &partition{topic: t.Name, index: answer.PartitionIndex, next: unknown, fromStart: r.looked}
			if i >= 0 {
				p = known[i]
			}
			p.leader = addresses[answer.LeaderID]
			if p.leader == "" {
				r.troubles = append(r.troubles, fmt.Sprintf("partition %d of topic %s has no leader", p.index, p.topic))
			}
			found = append(found, p)
		}
	}
	for _, p := range r.partitions {
		if !slices.Contains(found, p) {
			found = append(found, p.rest()...)
		}
	}
	slices.SortFunc(found, func(a, b *partition) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
	if !r.looked && !r.All && r.Since.IsZero() && r.waited {
		r.Since = r.began // what came while we waited is new
	}
	r.partitions, r.looked = found, true
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.tell(added)
	return nil
}

func (r *topicReader) wants(topic string) bool {
	if !r.made.MatchString(topic) {
		return false
	}
	ok, err := path.Match(r.Filter, topic)
	return r.Filter == "" || err == nil && ok
}

func (r *topicReader) partitionsOf(topic string) (of []*partition) {
	for _, p := range r.partitions {
		if p.topic == topic {
			of = append(of, p)
		}
	}
	return of
}

// tell says what is read now, and what is not.
func (r *topicReader) tell(added []string) {
	troubles := r.troubles
	r.troubles = nil
	slices.Sort(added)
	all := r.topics()
	if len(all) == 0 {
		what := r.Config.Topic
		if r.Filter != "" {
			what += " that matches " + r.Filter
		}
		r.waiting(fmt.Errorf("the cluster has no topic %s yet", what))
		r.amiss, r.reading = true, false
		return
	}
	switch {
	case !r.reading:
		r.reading = true
		r.found(fmt.Sprintf("%s at %s", listed(all), strings.Join(r.Config.Brokers, ",")))
	case len(added) > 0:
		r.Note("reading also " + listed(added))
	}
	switch {
	case len(troubles) > 0:
		// A restarting cluster has many partitions without a leader for a moment; the
		// first of them stands for all.
		r.amiss = true
		slices.Sort(troubles)
		r.waiting(errors.New(troubles[0]))
	case r.noted != "":
		r.noted = ""
		r.Note("reading all partitions again")
	}
}

func (r *topicReader) topics() (names []string) {
	for _, p := range r.partitions {
		if !slices.Contains(names, p.topic) {
			names = append(names, p.topic)
		}
	}
	return names
}

// listed names the first few topics: there may be hundreds.
func listed(topics []string) string {
	const most = 5
	switch n := len(topics); {
	case n == 1:
		return "topic " + topics[0]
	case n <= most:
		return "topics " + strings.Join(topics, ", ")
	default:
		return fmt.Sprintf("%d topics: %s, …", n, strings.Join(topics[:most], ", "))
	}
}

// askCluster asks the first broker that answers.
func (r *topicReader) askCluster(ctx context.Context) (*metadata.Response, error) {
	var addresses []string
	for address := range r.connections {
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	for _, address := range r.Config.Brokers {
		if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	var first error
	for _, address := range addresses {
		c, err := r.connect(ctx, address)
		if err == nil {
			m, askErr := c.Ask(&metadata.Request{}, requestTimeout) // of all topics
			if askErr == nil {
				return m.(*metadata.Response), nil
			}
			r.drop(address)
			err = fmt.Errorf("ask %s about the cluster: %w", address, askErr)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if isHopeless(err) || r.hopeless(err) {
			return nil, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// connect returns the connection to a broker.
func (r *topicReader) connect(ctx context.Context, address string) (*kafka.Connection, error) {
	if c := r.connections[address]; c != nil {
		if !c.Expired() {
			return c, nil
		}
		r.drop(address)
	}
	c, err := r.connector.Connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	r.connections[address] = c
	return c, nil
}

func (r *topicReader) drop(address string) {
	if c := r.connections[address]; c != nil {
		c.Close()
		delete(r.connections, address)
	}
}

// hopeless implements source.
func (r *topicReader) hopeless(err error) bool {
	for _, cause := range []client.Error{
		client.SASLAuthenticationFailed, client.UnsupportedSASLMechanism, client.IllegalSASLState,
		client.ClusterAuthorizationFailed, client.TopicAuthorizationFailed,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

func codeText(code int16) string {
	if text := client.Error(code).Title(); text != "" {
		return text
	}
	return client.Error(code).Error()
}
