package kafkabroker

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Listener is a way into a broker; each has a port of its own.
type Listener string

// The listeners that a cluster can have.
const (
	Plaintext Listener = "PLAINTEXT" // always there
	// TLS takes clients without a certificate. There with Options.TLS, as the next two.
	TLS Listener = "SSL"
	// MutualTLS takes clients with a certificate of the cluster's CA only.
	MutualTLS Listener = "MTLS"
	// ExpiredTLS shows a server certificate that ended an hour ago.
	ExpiredTLS Listener = "EXPIRED"
	// SASL is without TLS. There with Options.Users, as the next one.
	SASL Listener = "SASL_PLAINTEXT"
	// SASLTLS is there with Options.Users and Options.TLS.
	SASLTLS Listener = "SASL_SSL"

	controller Listener = "CONTROLLER"
)

// protocol is Kafka's name of what is spoken on the listener.
func (l Listener) protocol() string {
	switch l {
	case MutualTLS, ExpiredTLS:
		return "SSL"
	case controller:
		return "PLAINTEXT"
	default:
		return string(l)
	}
}

// User is an account that the listeners SASL and SASLTLS accept with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. The name is
// of letters and digits, the password of anything.
type User struct{ Name, Password string }

// scram returns the user's accounts as the tool that makes a node's storage takes them. It gets the salted password,
// because it takes no password with a comma or a quotation mark.
func (u User) scram() ([]string, error) {
	const iterations = 4096
	salt := make([]byte, 24)
	_, _ = rand.Read(salt) // never fails
	var accounts []string
	for mechanism, hash := range map[string]func() hash.Hash{"SCRAM-SHA-256": sha256.New, "SCRAM-SHA-512": sha512.New} {
		salted, err := pbkdf2.Key(hash, u.Password, salt, iterations, hash().Size())
		if err != nil {
			return nil, err
		}
		encode := base64.StdEncoding.EncodeToString
		accounts = append(accounts, fmt.Sprintf(`%s=[name="%s",salt="%s",saltedpassword="%s",iterations=%d]`,
			mechanism, u.Name, encode(salt), encode(salted), iterations))
	}
	return accounts, nil
}

func (o Options) listeners() []Listener {
	l := []Listener{Plaintext}
	if o.TLS {
		l = append(l, TLS, MutualTLS, ExpiredTLS)
	}
	if len(o.Users) > 0 {
		l = append(l, SASL)
	}
	if o.TLS && len(o.Users) > 0 {
		l = append(l, SASLTLS)
	}
	return l
}

// UnsecuredToken returns a token for OAUTHBEARER. The brokers take it for what it says, without a signature, until its
// lifetime, counted from now, is over.
func UnsecuredToken(user string, lifetime time.Duration) string {
	now := time.Now()
	issued := now
	if lifetime < 0 {
		issued = now.Add(2 * lifetime)
	}
	claims, err := json.Marshal(map[string]any{"sub": user, "iat": issued.Unix(), "exp": now.Add(lifetime).Unix()})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

// settings returns the node's configuration, in which the caller's own settings come last.
func (n *Node) settings() map[string]string {
	c := n.cluster
	var voters, listeners, advertised, protocols []string
	for _, other := range c.Nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.ID, other.Addr(controller)))
	}
	for _, l := range append(c.opts.listeners(), controller) {
		listeners = append(listeners, string(l)+"://"+n.Addr(l))
		protocols = append(protocols, string(l)+":"+l.protocol())
		if l != controller {
			advertised = append(advertised, string(l)+"://"+n.Addr(l))
		}
	}
	nodes := strconv.Itoa(len(c.Nodes))
	s := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(n.ID),
		"log.dirs":                       filepath.Join(n.dir, "data"),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      string(controller),
		"listeners":                      strings.Join(listeners, ","),
		"advertised.listeners":           strings.Join(advertised, ","),
		"listener.security.protocol.map": strings.Join(protocols, ","),
		"inter.broker.listener.name":     string(Plaintext),

		// A broker that was killed or paused is out after 3 s, not 9 s, and can come back as soon.
		"broker.session.timeout.ms":    "3000",
		"broker.heartbeat.interval.ms": "500",

		// A topic is there when a test made it.
		"auto.create.topics.enable":  "false",
		"default.replication.factor": nodes,

		// Consumer groups and transactions work, in as few partitions as possible, and join without waiting for others.
		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 nodes,
		"transaction.state.log.num.partitions":             "1",
		"transaction.state.log.replication.factor":         nodes,
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": nodes,
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.cleaner.dedupe.buffer.size":                   "4194304", // 4 MiB; the default is half of our heap
		"log.cleaner.backoff.ms":                           "500",     // compaction is looked for often
		"log.initial.task.delay.ms":                        "500",     // and soon after a start
		"num.network.threads":                              "2",       // for each listener
		"num.io.threads":                                   "4",
		"controller.quorum.append.linger.ms":               "5",
		"connection.failed.authentication.delay.ms":        "0", // a refused client hears of it at once
		"transaction.partition.verification.enable":        "true",
	}
	if tls := c.Certificates; tls != nil {
		s["ssl.keystore.type"] = "PEM"
		s["ssl.keystore.location"] = tls.server
		s["ssl.truststore.type"] = "PEM"
		s["ssl.truststore.location"] = tls.CA
		s[MutualTLS.setting("ssl.client.auth")] = "required"
		s[ExpiredTLS.setting("ssl.keystore.type")] = "PEM"
		s[ExpiredTLS.setting("ssl.keystore.location")] = tls.expiredServer
	}
	for _, l := range c.opts.listeners() {
		if l != SASL && l != SASLTLS {
			continue
		}
		s[l.setting("sasl.enabled.mechanisms")] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
		for mechanism, jaas := range loginModules(c.opts.Users) {
			s[l.setting(mechanism+".sasl.jaas.config")] = jaas
		}
	}
	maps.Copy(s, c.opts.Config)
	return s
}

// setting is the name of the listener's own value of a setting.
func (l Listener) setting(name string) string {
	return "listener.name." + strings.ToLower(string(l)) + "." + name
}

// loginModules returns how the brokers check each mechanism. The accounts for SCRAM are in the storage.
func loginModules(users []User) map[string]string {
	const pkg = "org.apache.kafka.common.security."
	plain := pkg + "plain.PlainLoginModule required"
	for _, u := range users {
		plain += " user_" + u.Name + "=" + jaasQuote(u.Password)
	}
	return map[string]string{
		"plain":         plain + ";",
		"scram-sha-256": pkg + "scram.ScramLoginModule required;",
		"scram-sha-512": pkg + "scram.ScramLoginModule required;",
		"oauthbearer":   pkg + "oauthbearer.OAuthBearerLoginModule required;",
	}
}

func jaasQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func writeProperties(path string, settings map[string]string) error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(settings[name])
		fmt.Fprintf(&b, "%s=%s\n", name, value)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// logSettings keeps out the hundreds of lines in which Kafka lists its settings at each start.
const logSettings = `appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.settings.name = org.apache.kafka.common.config
logger.settings.level = warn
`
