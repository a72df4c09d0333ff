package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoginsWithoutTLSAndServersThatNobodyChecksAreWarnedOf(t *testing.T) {
	t.Parallel()
	const (
		state   = "state: {file: {dir: /d}}\n"
		brokers = "brokers: ['kafka:9092']"
		scram   = "sasl: {mechanism: SCRAM-SHA-512, user: u, passwordFile: /p}"
		bearer  = "sasl: {mechanism: OAUTHBEARER, tokenFile: /t}"
		clear   = "without tls the password is sent in clear"
		used    = "without tls whoever is on the way can use the connection once it is logged in"
		token   = "server.auth.tokenFile: without server.tls the token is sent in clear"
		any     = "any certificate is accepted, so whoever is on the way can be the server"
	)
	grant := func(url string) string {
		return "sasl: {mechanism: OAUTHBEARER, tokenURL: '" + url + "', clientID: c, clientSecretFile: /s}"
	}
	at := func(url string, settings ...string) string {
		return strings.Replace(nats(settings...), "nats://n:4222", url, 1)
	}
	for text, want := range map[string][]string{
		nats(): nil,
		pods + "server: {auth: {tokenFile: /t}}\n":                                   {token},
		pods + "server: {address: '10.0.0.1:80', auth: {tokenFile: /t}}\n":           {token},
		pods + "server: {address: '127.0.0.1:80', auth: {tokenFile: /t}}\n":          nil,
		pods + "server: {address: '[::1]:80', auth: {tokenFile: /t}}\n":              nil,
		pods + "server: {address: 'localhost:80', auth: {tokenFile: /t}}\n":          nil,
		pods + "server: {address: '', auth: {tokenFile: /t}}\n":                      nil,
		pods + "server: {auth: {tokenFile: /t}, tls: {certFile: /c, keyFile: /k}}\n": nil,
		pods + "server: {debug: true}\n":                                             nil,
		nats("user: u", "passwordFile: /p"):                                          {"sinks[0].nats.user: " + clear},
		nats("tokenFile: /t"):                                                        {"sinks[0].nats.tokenFile: without tls the token is sent in clear"},
		nats("creds: /c"):                                                            {"sinks[0].nats.creds: " + used},
		nats("nkey: /n"):                                                             {"sinks[0].nats.nkey: " + used},
		at("ws://n:80", "user: u", "passwordFile: /p"):                               {"sinks[0].nats.user: " + clear},
		at("tls://n:4222", "user: u", "passwordFile: /p"):                            nil,
		at("wss://n:443", "user: u", "passwordFile: /p"):                             nil,
		at("tls://n', 'nats://m", "user: u", "passwordFile: /p"):                     {"sinks[0].nats.user: " + clear},
		at("nats://127.0.0.1", "user: u", "passwordFile: /p"):                        nil,
		at("nats://[::1]:4222", "creds: /c"):                                         nil,
		at("nats://localhost:4222", "creds: /c"):                                     nil,
		nats("tls: {}", "user: u", "passwordFile: /p"):                               nil,
		nats("tls: {insecureSkipVerify: true}"):                                      {"sinks[0].nats.tls.insecureSkipVerify: " + any},
		nats("tls: {insecureSkipVerify: true}", "creds: /c"):                         {"sinks[0].nats.tls.insecureSkipVerify: " + any},
		kafka(brokers): nil,
		kafka(brokers, "tls: {insecureSkipVerify: true}"):              {"sinks[0].kafka.tls.insecureSkipVerify: " + any},
		kafka(brokers, scram):                                          {"sinks[0].kafka.sasl: SCRAM-SHA-512 without tls lets whoever is on the way use the connection once it is logged in"},
		kafka(brokers, "sasl: {mechanism: AWS_MSK_IAM}"):               {"sinks[0].kafka.sasl: AWS_MSK_IAM without tls lets whoever is on the way use the connection once it is logged in"},
		kafka(brokers, bearer):                                         {"sinks[0].kafka.sasl: OAUTHBEARER without tls sends the token in clear"},
		kafka(brokers, "tls: {}", bearer):                              nil,
		kafka(brokers, "tls: {}", scram):                               nil,
		kafka("brokers: ['localhost:9092']", bearer):                   nil,
		kafka("brokers: ['localhost:9092', 'kafka:9092']", bearer):     {"sinks[0].kafka.sasl: OAUTHBEARER without tls sends the token in clear"},
		kafka(brokers, "tls: {}", grant("https://login/token")):        nil,
		kafka(brokers, "tls: {}", grant("http://127.0.0.1:8080/t")):    nil,
		kafka(brokers, "tls: {}", grant("http://login.example/token")): {"sinks[0].kafka.sasl.tokenURL: over http the client's secret and the token are sent in clear"},
	} {
		if diff := cmp.Diff(want, mustParse(t, text+state).Warnings()); diff != "" {
			t.Errorf("in\n%s\n%s", text, diff)
		}
	}
}

func TestWhatIsWarnedOfIsAnErrorWhereTheFileIsStrict(t *testing.T) {
	t.Parallel()
	text := nats("tls:", "  insecureSkipVerify: true") + "strict: true\n"
	_, err := Parse("f.yaml", []byte(text))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("Parse returned %v", err)
	}
	want := []Problem{
		{"state", 1, "none, so nothing survives a restart: everything is announced again, and what was deleted meanwhile is not noticed", "nothing to warn of, as strict is true"},
		{"sinks[0].nats.tls.insecureSkipVerify", 7, "any certificate is accepted, so whoever is on the way can be the server", "nothing to warn of, as strict is true"},
	}
	if diff := cmp.Diff(want, e.Problems); diff != "" {
		t.Error(diff)
	}
	if c := mustParse(t, nats()+"strict: true\nstate: {file: {dir: /d}}\n"); !c.Strict {
		t.Error("it is not strict")
	}
	c := mustParse(t, text[:len(text)-len("strict: true\n")])
	if c.Strict = true; c.Validate() == nil {
		t.Error("Validate takes what Parse does not")
	}
}
