package kafka_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/sinks"
	"github.com/kbridge-io/kbridge/sinks/kafka"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

const (
	user     = "kbridge"
	password = "correct-horse-battery"
)

func secret(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	write(t, path, text)
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(data))
}

// secureCluster has all listeners, and ends a login after 2 s.
func secureCluster(t *testing.T) *kafkabroker.Cluster {
	return kafkabroker.New(t, func(o *kafkabroker.Options) {
		o.TLS = true
		o.Users = []kafkabroker.User{{Name: user, Password: password}}
		o.Config = map[string]string{"connections.max.reauth.ms": "2000"}
	})
}

func TestSecurityWithARealBroker(t *testing.T) {
	c := secureCluster(t)
	certs := c.Certificates
	plain := func(file string) *config.SASL {
		return &config.SASL{Mechanism: config.SASLPlain, User: user, PasswordFile: file}
	}
	good := secret(t, password+"\n")
	at := func(l kafkabroker.Listener, tls *config.TLS, sasl *config.SASL) config.Kafka {
		cfg := settings(c.Addrs(l)...)
		cfg.Topic, _ = template()
		cfg.TLS, cfg.SASL = tls, sasl
		return cfg
	}
	ca := func() *config.TLS { return &config.TLS{CA: certs.CA} }
	pair := func(p kafkabroker.Pair) *config.TLS {
		return &config.TLS{CA: certs.CA, Cert: p.CertFile, Key: p.KeyFile}
	}
	// The certificate is for 127.0.0.1 and has no names.
	byName := func(tls *config.TLS) config.Kafka {
		cfg := at(kafkabroker.TLS, tls, nil)
		for i, address := range cfg.Brokers {
			cfg.Brokers[i] = strings.Replace(address, "127.0.0.1", "localhost", 1)
		}
		return cfg
	}
	tokenServer := authorizationServer(t)

	t.Run("Works", func(t *testing.T) {
		for name, cfg := range map[string]config.Kafka{
			"TLS":                 at(kafkabroker.TLS, ca(), nil),
			"server name":         byName(&config.TLS{CA: certs.CA, ServerName: "127.0.0.1"}),
			"client certificate":  at(kafkabroker.MutualTLS, pair(certs.Client), nil),
			"PLAIN":               at(kafkabroker.SASL, nil, plain(good)),
			"PLAIN over TLS":      at(kafkabroker.SASLTLS, ca(), plain(good)),
			"SCRAM-SHA-256":       at(kafkabroker.SASLTLS, ca(), &config.SASL{Mechanism: config.SASLSCRAM256, User: user, PasswordFile: good}),
			"SCRAM-SHA-512":       at(kafkabroker.SASL, nil, &config.SASL{Mechanism: config.SASLSCRAM512, User: user, PasswordFile: good}),
			"OAUTHBEARER file":    at(kafkabroker.SASL, nil, &config.SASL{Mechanism: config.SASLOAuthBearer, TokenFile: secret(t, kafkabroker.UnsecuredToken("app", time.Hour))}),
			"OAUTHBEARER clients": at(kafkabroker.SASLTLS, ca(), &config.SASL{Mechanism: config.SASLOAuthBearer, TokenURL: tokenServer, ClientID: "app", ClientSecretFile: secret(t, "s3cr3t"), Scopes: []string{"kafka"}}),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := open(t, cfg)
				deliver(t, s, pod("a", 1, 200, event.Structured))
				if err := s.Err(); err != nil {
					t.Errorf("Err is %v", err)
				}
			})
		}
	})

	t.Run("TellsTheCause", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "aws-secret-of-the-test")
		wrong := secret(t, "wrong-password")
		for name, refused := range map[string]struct {
			cfg  config.Kafka
			want []string // one of them
		}{
			"wrong password":             {at(kafkabroker.SASL, nil, plain(wrong)), []string{"Invalid username or password"}},
			"wrong password with SCRAM":  {at(kafkabroker.SASL, nil, &config.SASL{Mechanism: config.SASLSCRAM512, User: user, PasswordFile: wrong}), []string{"invalid credentials"}},
			"password file is absent":    {at(kafkabroker.SASL, nil, plain("/does/not/exist")), []string{"read password: open /does/not/exist: no such file"}},
			"unknown mechanism":          {at(kafkabroker.SASL, nil, &config.SASL{Mechanism: config.SASLMSKIAM, Region: "eu-central-1"}), []string{"log in with AWS_MSK_IAM: the broker does not know the mechanism, it takes"}},
			"expired token":              {at(kafkabroker.SASL, nil, &config.SASL{Mechanism: config.SASLOAuthBearer, TokenFile: secret(t, kafkabroker.UnsecuredToken("app", -time.Hour))}), []string{"invalid_token"}},
			"wrong client secret":        {at(kafkabroker.SASL, nil, &config.SASL{Mechanism: config.SASLOAuthBearer, TokenURL: tokenServer, ClientID: "app", ClientSecretFile: wrong}), []string{"get a token from " + tokenServer + ": 401 Unauthorized: invalid_client: no such client"}},
			"server certificate expired": {at(kafkabroker.ExpiredTLS, ca(), nil), []string{"certificate has expired"}},
			"client certificate expired": {at(kafkabroker.MutualTLS, pair(certs.ExpiredClient), nil), []string{"expired on"}},
			"foreign client certificate": {at(kafkabroker.MutualTLS, pair(certs.ForeignClient), nil), []string{"certificate", "certificate required"}},
			"no client certificate":      {at(kafkabroker.MutualTLS, ca(), nil), []string{"certificate required", "bad certificate", "perhaps the listener wants"}},
			"unknown authority":          {at(kafkabroker.TLS, &config.TLS{CA: certs.OtherCA}, nil), []string{"signed by unknown authority"}},
			"wrong server name":          {at(kafkabroker.TLS, &config.TLS{CA: certs.CA, ServerName: "kafka.example.com"}, nil), []string{"kafka.example.com"}},
			"another name":               {byName(ca()), []string{"localhost"}},
			"no TLS for a TLS listener":  {at(kafkabroker.TLS, nil, nil), []string{"speaks TLS, and the configuration has no tls", "perhaps the listener wants TLS"}},
			"TLS for one without":        {at(kafkabroker.Plaintext, ca(), nil), []string{"perhaps the listener has no TLS"}},
			"no login where one is due":  {at(kafkabroker.SASL, nil, nil), []string{"perhaps the listener wants a login: sasl"}},
			"a login where none is":      {at(kafkabroker.Plaintext, nil, plain(good)), []string{"the listener takes no SASL"}},
		} {
			t.Run(name, func(t *testing.T) {
				var lines sinktest.Log
				s := openLogged(t, refused.cfg, lines.Handler())
				ok := func(text string) bool {
					for _, want := range refused.want {
						if strings.Contains(text, want) {
							return true
						}
					}
					return false
				}
				eventually(t, fmt.Sprint(refused.want), func() bool { return s.Err() != nil && ok(s.Err().Error()) })
				eventually(t, "a second attempt", func() bool { return s.Failures().Connect >= 2 })
				if n := lines.Count("level=WARN"); n != 1 {
					t.Errorf("it was logged %d times:\n%s", n, lines.String())
				}
				for _, secret := range []string{password, "wrong-password", "s3cr3t", "aws-secret"} {
					if strings.Contains(lines.String()+s.Err().Error(), secret) {
						t.Errorf("a secret was told:\n%s", lines.String())
					}
				}
				t.Log(s.Err())
			})
		}
	})

	t.Run("FilesAreReadAgain", func(t *testing.T) {
		file := secret(t, "wrong-password")
		s := open(t, at(kafkabroker.SASL, nil, plain(file)))
		dir := t.TempDir()
		rotated := config.TLS{CA: certs.CA, Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
		copyFile(t, certs.ExpiredClient.CertFile, rotated.Cert)
		copyFile(t, certs.ExpiredClient.KeyFile, rotated.Key)
		r := open(t, at(kafkabroker.MutualTLS, &rotated, nil))
		for _, s := range []*kafka.Sink{s, r} {
			eventually(t, "a failure", func() bool { return s.Failures().Connect > 0 })
		}
		write(t, file, password)
		copyFile(t, certs.Client.CertFile, rotated.Cert)
		copyFile(t, certs.Client.KeyFile, rotated.Key)
		for _, s := range []*kafka.Sink{s, r} {
			deliver(t, s, pod("a", 1, 200, event.Structured))
		}
	})

	t.Run("ALoginThatEndsIsRenewed", func(t *testing.T) {
		s := open(t, at(kafkabroker.SASLTLS, ca(), plain(good)))
		deliver(t, s, pod("a", 1, 200, event.Structured))
		// All that connects at the start, twice over.
		const connects = 2 * 5
		version := 1
		for deadline := time.Now().Add(30 * time.Second); s.Stats().Connects < connects && time.Now().Before(deadline); version++ {
			noErrors(t, publish(t, s, pod("a", version+1, 200, event.Structured)))
		}
		if st := s.Stats(); st.Connects < connects || st.Failures != (sinks.Failures{}) {
			t.Errorf("after %d events there were %+v", version, st)
		}
	})
}

// authorizationServer gives tokens to one client.
func authorizationServer(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		w.Header().Set("content-type", "application/json")
		if id != "app" || secret != "s3cr3t" || r.FormValue("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client","error_description":"no such client"}`)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": kafkabroker.UnsecuredToken(id, time.Hour), "token_type": "bearer", "expires_in": 3600})
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	return srv.URL
}

func TestAServerThatSpeaksSomethingElseIsNamed(t *testing.T) {
	address, _ := listener(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	s := open(t, settings(address))
	eventually(t, "the cause", func() bool { return s.Err() != nil && strings.Contains(s.Err().Error(), "HTTP") })
}

func TestAListenerThatNeverAnswersIsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a handshake may")
	}
	address, accepted := listener(t, "")
	s := open(t, settings(address))
	eventually(t, "the cause", func() bool { return s.Err() != nil && strings.Contains(s.Err().Error(), "ask for versions") })
	if accepted.Load() == 0 {
		t.Error("nobody connected")
	}
}

// listener accepts connections and says the same on each.
func listener(t *testing.T, says string) (string, *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int64
	var running sync.WaitGroup
	var conns []net.Conn
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_, _ = io.WriteString(c, says)
			conns = append(conns, c)
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String(), &accepted
}
