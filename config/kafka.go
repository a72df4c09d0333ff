package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (v validator) kafka(path string, k *Kafka) {
	at := func(key string) string { return path + "." + key }
	if len(k.Brokers) == 0 {
		v.bad(at("brokers"), "none", "at least one broker such as kafka:9092")
	}
	for i, b := range k.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || !isPort(port) || port == "0" || strings.ContainsAny(b, "/@ ") {
			v.bad(item(at("brokers"), i), show(b), "host and port, such as kafka:9092")
		}
	}
	v.unique(at("brokers"), k.Brokers)
	if err := checkTopicTemplate(k.Topic); err != nil {
		v.bad(at("topic"), show(k.Topic), fmt.Sprintf("a topic such as %s (%v)", DefaultKafka().Topic, err))
	}
	v.enum(at("topicPolicy"), string(k.TopicPolicy), k.TopicPolicy)
	v.between(at("partitions"), k.Partitions, 0, math.MaxInt32)
	v.between(at("replication"), k.Replication, 0, math.MaxInt16)
	v.enum(at("cleanupPolicy"), string(k.CleanupPolicy), k.CleanupPolicy)
	if k.Retention != 0 && k.Retention < time.Millisecond { // Kafka counts in them, and 0 is at once
		v.bad(at("retention"), k.Retention.String(), "0 or at least 1ms")
	}
	v.enum(at("acks"), string(k.Acks), k.Acks)
	v.enum(at("compression"), string(k.Compression), k.Compression)
	if k.Linger < 0 || k.Linger > maxTimeout {
		v.bad(at("linger"), k.Linger.String(), "0 to 24d")
	}
	if k.BatchBytes < 1 || k.BatchBytes > maxBatch {
		v.bad(at("batchBytes"), k.BatchBytes.String(), fmt.Sprintf("1 to %s", Size(maxBatch)))
	}
	if k.TLS != nil {
		v.together(at("tls"), "cert", k.TLS.Cert, "key", k.TLS.Key)
	}
	if k.SASL != nil {
		v.sasl(at("sasl"), k.SASL)
	}
	v.timeout(at("ackTimeout"), k.AckTimeout)
}

// A timeout is sent to Kafka in milliseconds, in a field of 32 bits: it has room for 24.8
// days. Below the least one no broker answers in time, and nothing is ever acknowledged.
const (
	leastTimeout = 100 * time.Millisecond
	maxTimeout   = 24 * day
)

func (v validator) timeout(path string, d time.Duration) {
	if d < leastTimeout || d > maxTimeout {
		v.bad(path, d.String(), "100ms to 24d")
	}
}

// maxBatch leaves room for several batches in a request of 100 MiB, the most that a
// broker takes unless it is told otherwise.
const maxBatch = 16 << 20

func (v validator) between(path string, n, least, most int) {
	if n < least || n > most {
		v.bad(path, strconv.Itoa(n), fmt.Sprintf("%d to %d", least, most))
	}
}

// sasl checks that the mechanism has what it needs, and nothing that it has no use for.
func (v validator) sasl(path string, s *SASL) {
	at := func(key string) string { return path + "." + key }
	if s.Mechanism == "" {
		v.bad(at("mechanism"), "missing", oneOf(s.Mechanism.values()))
		return
	}
	v.enum(at("mechanism"), string(s.Mechanism), s.Mechanism)
	given := map[string]string{
		"user": s.User, "passwordFile": s.PasswordFile, "tokenFile": s.TokenFile, "tokenURL": s.TokenURL,
		"clientID": s.ClientID, "clientSecretFile": s.ClientSecretFile, "scopes": strings.Join(s.Scopes, " "), "region": s.Region,
	}
	var needs, takes []string
	switch s.Mechanism {
	case SASLPlain, SASLSCRAM256, SASLSCRAM512:
		needs = []string{"user", "passwordFile"}
	case SASLOAuthBearer:
		if s.TokenURL == "" && s.ClientID == "" && s.ClientSecretFile == "" && len(s.Scopes) == 0 {
			needs = []string{"tokenFile"}
		} else {
			needs, takes = []string{"tokenURL", "clientID", "clientSecretFile"}, []string{"scopes"}
		}
	case SASLMSKIAM:
		takes = []string{"region"}
	default:
		return
	}
	for _, key := range []string{"user", "passwordFile", "tokenFile", "tokenURL", "clientID", "clientSecretFile", "scopes", "region"} {
		switch value := given[key]; {
		case value == "" && slices.Contains(needs, key):
			v.bad(at(key), "missing", fmt.Sprintf("it, as mechanism is %s", s.Mechanism))
		case value != "" && !slices.Contains(needs, key) && !slices.Contains(takes, key):
			want := "no such key"
			if len(needs)+len(takes) > 0 {
				want = strings.Join(append(needs, takes...), " and ")
			}
			v.bad(at(key), "given", fmt.Sprintf("%s with %s", want, s.Mechanism))
		}
	}
	if s.TokenURL != "" {
		u, err := url.Parse(s.TokenURL)
		switch {
		case strings.Contains(s.TokenURL, "@"):
			v.bad(at("tokenURL"), show(s.TokenURL), "a URL without user and password: use clientID and clientSecretFile")
		case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
			v.bad(at("tokenURL"), show(s.TokenURL), "a URL such as https://login.example.com/oauth2/token")
		}
	}
}
