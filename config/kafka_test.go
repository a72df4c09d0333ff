package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kafka is a file with a Kafka sink of the given settings, from line 5 on.
func kafka(settings ...string) string {
	text := pods + "sinks:\n  - name: a\n    kafka:\n"
	for _, s := range settings {
		text += "      " + s + "\n"
	}
	return text
}

func TestProblemsOfAKafkaSink(t *testing.T) {
	t.Parallel()
	const broker = "brokers: ['kafka:9092']"
	const aBroker = "host and port, such as kafka:9092"
	const aTopic = "a topic such as k8s.{group}.{resource} "
	login := func(settings string) string { return kafka(broker, "sasl: {"+settings+"}") }
	for name, c := range map[string]struct {
		text string
		want []Problem
	}{
		"no broker":             {kafka("topic: a"), []Problem{{"sinks[0].kafka.brokers", 4, "none", "at least one broker such as kafka:9092"}}},
		"broker without a port": {kafka("brokers: [kafka]"), []Problem{{"sinks[0].kafka.brokers[0]", 5, `"kafka"`, aBroker}}},
		"broker with a scheme":  {kafka("brokers: ['kafka://u:hunter2@kafka:9092']"), []Problem{{"sinks[0].kafka.brokers[0]", 5, `"kafka://***@kafka:9092"`, aBroker}}},
		"broker twice":          {kafka("brokers: ['k:1', 'k:1']"), []Problem{{"sinks[0].kafka.brokers[1]", 5, `"k:1"`, "it once, and it is sinks[0].kafka.brokers[0] already"}}},
		"topic of nothing":      {kafka(broker, "topic: ''"), []Problem{{"sinks[0].kafka.topic", 6, `""`, aTopic + "(a topic has a name)"}}},
		"topic of signs":        {kafka(broker, "topic: 'k8s/{kind}'"), []Problem{{"sinks[0].kafka.topic", 6, `"k8s/{kind}"`, aTopic + "(a topic's name has letters, digits, '.', '_' and '-')"}}},
		"topic of dots":         {kafka(broker, "topic: '..'"), []Problem{{"sinks[0].kafka.topic", 6, `".."`, aTopic + "(. and .. are no names)"}}},
		"topic of no end":       {kafka(broker, "topic: '"+strings.Repeat("x", 250)+"'"), []Problem{{"sinks[0].kafka.topic", 6, `"` + strings.Repeat("x", 80) + `…"`, aTopic + "(a topic's name has at most 249 characters)"}}},
		"topic of an unknown":   {kafka(broker, "topic: '{pod}'"), []Problem{{"sinks[0].kafka.topic", 6, `"{pod}"`, aTopic + `("{pod}" is unknown, it may be one of cluster, group, version, resource, kind, namespace, name, type)`}}},
		"bad numbers":           {kafka(broker, "partitions: -1", "replication: 40000"), []Problem{{"sinks[0].kafka.partitions", 6, "-1", "0 to 2147483647"}, {"sinks[0].kafka.replication", 7, "40000", "0 to 32767"}}},
		"bad words": {kafka(broker, "topicPolicy: maybe", "cleanupPolicy: forget", "acks: most", "compression: brotli"), []Problem{
			{"sinks[0].kafka.topicPolicy", 6, `"maybe"`, "one of create, require"}, {"sinks[0].kafka.cleanupPolicy", 7, `"forget"`, "one of delete, compact, compact,delete"},
			{"sinks[0].kafka.acks", 8, `"most"`, "one of all, one, none"}, {"sinks[0].kafka.compression", 9, `"brotli"`, "one of none, gzip, snappy, lz4, zstd"}}},
		"bad batch": {kafka(broker, "batchBytes: 1GiB", "ackTimeout: 0"), []Problem{{"sinks[0].kafka.batchBytes", 6, "1GiB", "1 to 16MiB"}, {"sinks[0].kafka.ackTimeout", 7, "0s", "100ms to 24d"}}},
		"times that Kafka has no room for": {kafka(broker, "ackTimeout: 32d", "linger: 25d", "retention: 1us"), []Problem{
			{"sinks[0].kafka.ackTimeout", 6, "768h0m0s", "100ms to 24d"}, {"sinks[0].kafka.linger", 7, "600h0m0s", "0 to 24d"}, {"sinks[0].kafka.retention", 8, "1µs", "0 or at least 1ms"}}},
		"too little time": {kafka(broker, "ackTimeout: 99ms"), []Problem{{"sinks[0].kafka.ackTimeout", 6, "99ms", "100ms to 24d"}}},
		"half a pair":     {kafka(broker, "tls: {cert: /c}"), []Problem{{"sinks[0].kafka.tls.key", 6, "missing", "a file, as there is cert"}}},
		"no mechanism":    {login(""), []Problem{{"sinks[0].kafka.sasl.mechanism", 6, "missing", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM"}}},
		"bad mechanism":   {login("mechanism: GSSAPI"), []Problem{{"sinks[0].kafka.sasl.mechanism", 6, `"GSSAPI"`, "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM"}}},
		"no password":     {login("mechanism: PLAIN, user: u"), []Problem{{"sinks[0].kafka.sasl.passwordFile", 6, "missing", "it, as mechanism is PLAIN"}}},
		"no token":        {login("mechanism: OAUTHBEARER"), []Problem{{"sinks[0].kafka.sasl.tokenFile", 6, "missing", "it, as mechanism is OAUTHBEARER"}}},
		"half a client":   {login("mechanism: OAUTHBEARER, clientID: c, clientSecretFile: /s"), []Problem{{"sinks[0].kafka.sasl.tokenURL", 6, "missing", "it, as mechanism is OAUTHBEARER"}}},
		"token and more":  {login("mechanism: OAUTHBEARER, tokenFile: /t, tokenURL: 'https://x', clientID: c, clientSecretFile: /s"), []Problem{{"sinks[0].kafka.sasl.tokenFile", 6, "given", "tokenURL and clientID and clientSecretFile and scopes with OAUTHBEARER"}}},
		"user of AWS":     {login("mechanism: AWS_MSK_IAM, user: u"), []Problem{{"sinks[0].kafka.sasl.user", 6, "given", "region with AWS_MSK_IAM"}}},
		"bad token url":   {login("mechanism: OAUTHBEARER, tokenURL: 'ftp://x', clientID: c, clientSecretFile: /s"), []Problem{{"sinks[0].kafka.sasl.tokenURL", 6, `"ftp://x"`, "a URL such as https://login.example.com/oauth2/token"}}},
		"secret in the file": {login("mechanism: PLAIN, user: u, password: hunter2, passwordFile: /p"), []Problem{
			{"sinks[0].kafka.sasl.password", 6, "unknown key", "passwordFile, the path of a file with the password: it never stands in this one"}}},
		"letters on a subject": {kafka(broker) + "    deadLetter: {subject: dead}\n", []Problem{{"sinks[0].deadLetter.subject", 6, `"dead"`, "file: only a nats sink has subjects"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f", []byte(c.text))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("Parse returned %v for\n%s", err, c.text)
			}
			if diff := cmp.Diff(c.want, e.Problems); diff != "" {
				t.Errorf("in\n%s\n%s", c.text, diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret was told: %v", err)
			}
		})
	}
}

func TestWhatIsRiskyWithKafkaIsWarnedOf(t *testing.T) {
	t.Parallel()
	const broker = "brokers: ['kafka:9092']"
	const state = "state: {file: {dir: /d}}\n"
	for text, want := range map[string][]string{
		kafka(broker): nil,
		kafka(broker, "ackTimeout: 24d", "linger: 24d", "retention: 106751d", "partitions: 2147483647", "replication: 32767"): nil,
		kafka(broker, "cleanupPolicy: compact", "tombstones: true"):                                                           nil,
		kafka(broker, "topicPolicy: require", "replication: 1"):                                                               nil,
		kafka(broker, "tls: {}", "sasl: {mechanism: PLAIN, user: u, passwordFile: /p}"):                                       nil,
		kafka(broker, "acks: one"):                                               {"sinks[0].kafka.acks: what only the leader has is lost, though acknowledged, when that broker fails"},
		kafka(broker, "acks: none"):                                              {"sinks[0].kafka.acks: without acknowledgements events are lost unnoticed, and too large ones are not kept as dead letters"},
		kafka("brokers: ['n.servicebus.windows.net:9093']"):                      {"sinks[0].kafka.compression: Azure Event Hubs does not take zstd: set it to gzip, in the Premium and Dedicated tiers, or to none"},
		kafka("brokers: ['n.servicebus.windows.net:9093']", "compression: none"): nil,
		kafka("brokers: ['n.servicebus.windows.net:9093']", "compression: gzip"): nil,
		kafka(broker, "replication: 1"):                                          {"sinks[0].kafka.replication: what a topic without copies has is lost with its broker"},
		kafka(broker, "cleanupPolicy: 'compact,delete'"):                         {"sinks[0].kafka.tombstones: without them a compacted topic keeps the last state of every object that was ever deleted"},
		kafka(broker, "sasl: {mechanism: PLAIN, user: u, passwordFile: /p}"):     {"sinks[0].kafka.sasl: PLAIN without tls sends the password in clear"},
	} {
		if diff := cmp.Diff(want, mustParse(t, text+state).Warnings()); diff != "" {
			t.Errorf("in\n%s\n%s", text, diff)
		}
	}
}
