package nats_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks/sinktest"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAPasswordThatIsRotatedInItsFileIsUsedForTheNextConnection(t *testing.T) {
	authorization := func(password string) string {
		return fmt.Sprintf("authorization {user: kbridge, password: %q}", password)
	}
	srv := natsserver.New(t, authorization("first-secret"))
	c := settings(srv.URL())
	c.User, c.PasswordFile = "kbridge", write(t, filepath.Join(t.TempDir(), "password"), "first-secret\n")
	var log sinktest.Log
	s := openLogged(t, c, log.Handler())
	if err := publish(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	srv.Configure(authorization("second-secret")) // throws the client out
	failing(t, s, "authorization violation")
	eventually(t, "three attempts", func() bool { return s.Failures().Connect >= 4 })
	write(t, c.PasswordFile, "second-secret\n")
	if err := publish(t, s, "b"); err != nil {
		t.Error(err)
	}
	if log.Count("secret") > 0 {
		t.Error("a password is in the log")
	}
}

func TestEachWayToLogInWorksAndItsFailureIsNamed(t *testing.T) {
	dir := t.TempDir()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := user.Seed()
	public, _ := user.PublicKey()
	stranger, _ := nkeys.CreateUser()
	strangerSeed, _ := stranger.Seed()
	creds, operator := credentials(t)
	otherCreds, _ := credentials(t)

	for name, c := range map[string]struct {
		server    string
		good, bad func(*config.NATS)
		want      string
	}{
		"a user and its password": {
			server: "authorization {user: kbridge, password: right}",
			good: func(c *config.NATS) {
				c.User, c.PasswordFile = "kbridge", write(t, filepath.Join(dir, "right"), "right")
			},
			bad: func(c *config.NATS) {
				c.User, c.PasswordFile = "kbridge", write(t, filepath.Join(dir, "wrong"), "wrong")
			},
			want: "authorization violation",
		},
		"a token": {
			server: "authorization {token: right}",
			good:   func(c *config.NATS) { c.TokenFile = write(t, filepath.Join(dir, "token"), "right\n") },
			bad:    func(c *config.NATS) { c.TokenFile = filepath.Join(dir, "absent") },
			want:   "absent: no such file",
		},
		"an nkey": {
			server: fmt.Sprintf("authorization {users: [{nkey: %s}]}", public),
			good:   func(c *config.NATS) { c.NKey = write(t, filepath.Join(dir, "user.nk"), string(seed)) },
			bad:    func(c *config.NATS) { c.NKey = write(t, filepath.Join(dir, "other.nk"), string(strangerSeed)) },
			want:   "authorization violation",
		},
		"credentials": {
			server: operator,
			good:   func(c *config.NATS) { c.Creds = write(t, filepath.Join(dir, "user.creds"), creds) },
			bad:    func(c *config.NATS) { c.Creds = write(t, filepath.Join(dir, "other.creds"), otherCreds) },
			want:   "authorization violation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := natsserver.New(t, c.server)
			good := settings(srv.URL())
			c.good(&good)
			if err := publish(t, open(t, good), "a"); err != nil {
				t.Error(err)
			}
			bad := settings(srv.URL())
			c.bad(&bad)
			var log sinktest.Log
			failing(t, openLogged(t, bad, log.Handler()), c.want)
			eventually(t, "the cause in the log", func() bool { return log.Count(c.want) > 0 })
			none := settings(srv.URL())
			failing(t, open(t, none), "authorization violation")
		})
	}
}

// credentials returns the content of a user's credentials file and the lines of a
// server that trusts it.
func credentials(t *testing.T) (creds, server string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	operator, err := nkeys.CreateOperator()
	check(err)
	account, err := nkeys.CreateAccount()
	check(err)
	system, err := nkeys.CreateAccount()
	check(err)
	user, err := nkeys.CreateUser()
	check(err)
	public := func(k nkeys.KeyPair) string {
		p, err := k.PublicKey()
		check(err)
		return p
	}
	oc := jwt.NewOperatorClaims(public(operator))
	oc.SystemAccount = public(system)
	operatorJWT, err := oc.Encode(operator)
	check(err)
	ac := jwt.NewAccountClaims(public(account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	accountJWT, err := ac.Encode(operator)
	check(err)
	systemJWT, err := jwt.NewAccountClaims(public(system)).Encode(operator)
	check(err)
	userJWT, err := jwt.NewUserClaims(public(user)).Encode(account)
	check(err)
	seed, err := user.Seed()
	check(err)
	file, err := jwt.FormatUserConfig(userJWT, seed)
	check(err)
	return string(file), fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {%s: %s, %s: %s}",
		operatorJWT, public(system), public(account), accountJWT, public(system), systemJWT)
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.file, _, a.cert, a.key = a.issue("ca", true)
	return a
}

// issue writes a certificate and its key, and returns their files.
func (a *authority) issue(name string, ca bool) (certFile, keyFile string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert = &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if ca {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certFile = write(a.t, filepath.Join(a.dir, name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	keyFile = write(a.t, filepath.Join(a.dir, name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
	return certFile, keyFile, cert, key
}

func TestMutualTLSWorksAndItsFilesAreReadAgainForEachConnection(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	serverCert, serverKey, _, _ := a.issue("server", false)
	clientCert, clientKey, _, _ := a.issue("client", false)
	srv := natsserver.New(t, fmt.Sprintf("tls {cert_file: %q, key_file: %q, ca_file: %q, verify: true}", serverCert, serverKey, a.file))

	good := settings(srv.URL())
	good.TLS = &config.TLS{CA: a.file, Cert: clientCert, Key: clientKey}
	if err := publish(t, open(t, good), "a"); err != nil {
		t.Error(err)
	}

	anonymous := settings(srv.URL())
	anonymous.TLS = &config.TLS{CA: a.file}
	failing(t, open(t, anonymous), "tls", "certificate required")

	misnamed := settings(srv.URL())
	misnamed.TLS = &config.TLS{CA: a.file, Cert: clientCert, Key: clientKey, ServerName: "elsewhere"}
	failing(t, open(t, misnamed), "certificate is valid for localhost, not elsewhere")

	ca, err := os.ReadFile(other.file)
	if err != nil {
		t.Fatal(err)
	}
	distrustful := settings(srv.URL())
	distrustful.TLS = &config.TLS{CA: write(t, filepath.Join(t.TempDir(), "ca.pem"), string(ca)), Cert: clientCert, Key: clientKey}
	s := open(t, distrustful)
	failing(t, s, "certificate signed by unknown authority")
	if ca, err = os.ReadFile(a.file); err != nil {
		t.Fatal(err)
	}
	write(t, distrustful.TLS.CA, string(ca))
	if err := publish(t, s, "b"); err != nil {
		t.Errorf("with the right authority in the file now: %v", err)
	}
}

func TestTLSThatIsAskedForIsNotDoneWithout(t *testing.T) {
	srv := natsserver.New(t, "")
	c := settings(srv.URL())
	c.TLS = &config.TLS{}
	failing(t, open(t, c), "secure connection not available")
}

func TestAWebSocketIsAWayToo(t *testing.T) {
	port := natsserver.FreePort(t)
	srv := natsserver.New(t, fmt.Sprintf("websocket {host: 127.0.0.1, port: %d, no_tls: true}", port))
	if err := publish(t, open(t, settings(fmt.Sprintf("ws://127.0.0.1:%d", port))), "a"); err != nil {
		t.Error(err)
	}
	if n := len(messages(t, srv.URL(), "KBRIDGE")); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}

func TestAPermissionThatIsMissingIsNamedAtOnce(t *testing.T) {
	srv := natsserver.New(t, `authorization {users: [
		{user: all, password: x}
		{user: some, password: x, permissions: {publish: ["$JS.API.>", "k8s.*.core.configmaps.>"], subscribe: ["_INBOX.>"]}}
		{user: none, password: x, permissions: {publish: ["k8s.>"], subscribe: ["_INBOX.>"]}}
	]}
	no_auth_user: all`)
	dir := t.TempDir()
	c := settings(srv.URL())
	c.User, c.PasswordFile, c.AckTimeout = "some", write(t, filepath.Join(dir, "password"), "x"), time.Hour
	s := open(t, c)
	err := publish(t, s, "a") // long before the timeout
	if err == nil || !strings.Contains(err.Error(), `Permissions Violation for Publish to "k8s.test.core.pods.shop.a"`) {
		t.Errorf("done got %v", err)
	}
	c.User = "none"
	failing(t, open(t, c), `Permissions Violation for Publish to "$JS.API.STREAM.INFO.KBRIDGE"`)
}
