package monitor

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/config"
)

const goodToken = "a-token-for-those-who-may-look"

// guarded are the paths that not everybody may read, one that there is not, and some that
// look like a probe's.
var guarded = []string{"/", "/statusz", "/events", "/metrics", "/nowhere", "//healthz", "/healthz/", "/./readyz", "/readyz/../metrics", "/healthz%2f..%2fmetrics"}

// client asks a server, each time on a connection of its own.
type client struct {
	t    *testing.T
	base string
	tls  *tls.Config
}

// get returns the status, the header and the answer's first bytes: a stream has no end.
func (c client) get(path string, header ...string) (int, http.Header, string) {
	c.t.Helper()
	status, h, body, err := c.try(path, header...)
	if err != nil {
		c.t.Fatalf("%s: %v", path, err)
	}
	return status, h, body
}

func (c client) try(path string, header ...string) (int, http.Header, string, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.base, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.URL.Opaque = path // as it is
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.tls}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	first := make([]byte, 512)
	n, err := io.ReadAtLeast(resp.Body, first, 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return resp.StatusCode, resp.Header, string(first[:n]), err
}

func basic(user, password string) string {
	req := &http.Request{Header: http.Header{}}
	req.SetBasicAuth(user, password)
	return req.Header.Get("Authorization")
}

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestATokenIsNeededForAllButTheProbes(t *testing.T) {
	o := optionsOf(t, config.Server{Auth: &config.Auth{TokenFile: write(t, t.TempDir(), "token", []byte(goodToken+"\r\n"))}})
	s := serveWith(t, o, defaultLimits)
	c := client{t: t, base: "http://" + s.Address()}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _, body := c.get(path); status != http.StatusOK || body != "ok\n" {
			t.Errorf("%s without a token: %d %s", path, status, body)
		}
	}
	refused := 0
	for _, path := range guarded {
		for _, given := range []string{"", "Bearer", "Bearer ", "Bearer " + goodToken[1:], "Bearer " + goodToken + "x", "Bearer " + goodToken + "\t\t.", goodToken, "Token " + goodToken, basic(goodToken, ""), basic("", "wrong"), "Basic " + goodToken} {
			status, header, body := c.get(path, "Authorization", given)
			if refused++; status != http.StatusUnauthorized || strings.Contains(body, goodToken) {
				t.Errorf("%s with %q: %d %s", path, given, status, body)
			}
			if ways := strings.Join(header.Values("WWW-Authenticate"), "; "); !strings.HasPrefix(ways, "Basic realm=") || !strings.Contains(ways, "; Bearer realm=") {
				t.Errorf("%s: it asks for %q", path, ways)
			}
		}
	}
	if got := s.turnedAway("unauthorized"); int(got) != refused {
		t.Errorf("%v are counted, of %d", got, refused)
	}
	for _, path := range []string{"/", "/statusz", "/events", "/metrics"} {
		for _, given := range []string{"Bearer " + goodToken, "bearer " + goodToken, basic("anybody", goodToken), basic("", goodToken)} {
			if status, _, body := c.get(path, "Authorization", given); status != http.StatusOK {
				t.Errorf("%s with %q: %d %s", path, given, status, body)
			}
		}
	}
	if status, _, _ := c.get("/nowhere", "Authorization", "Bearer "+goodToken); status != http.StatusNotFound {
		t.Errorf("what is not there: %d", status)
	}
}

func TestATokenIsReadAnewAndOneThatIsOfNoUseLetsNobodyIn(t *testing.T) {
	dir, log := t.TempDir(), &logText{}
	file := write(t, dir, "token", []byte(goodToken))
	o := optionsOf(t, config.Server{Auth: &config.Auth{TokenFile: file}})
	o.Access.log = slog.New(slog.NewTextHandler(log, nil))
	s := serveWith(t, o, defaultLimits)
	c := client{t: t, base: "http://" + s.Address()}
	ask := func(token string) int {
		t.Helper()
		status, _, _ := c.get("/metrics", "Authorization", "Bearer "+token)
		return status
	}
	const other = "another-token-that-is-as-good"
	write(t, dir, "token", []byte(other))
	if old, fresh := ask(goodToken), ask(other); old != http.StatusUnauthorized || fresh != http.StatusOK {
		t.Errorf("the old token: %d, the new one: %d", old, fresh)
	}
	for what, content := range map[string][]byte{"empty": {}, "an end of a line": []byte("\n"), "too short": []byte("fifteen-letters"), "not there": nil} {
		if content == nil {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		} else {
			write(t, dir, "token", content)
		}
		for range 3 {
			if status := ask(strings.TrimSpace(string(content))); status != http.StatusInternalServerError {
				t.Errorf("with a token that is %s: %d", what, status)
			}
		}
		if err := o.Access.Err(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("with a token that is %s: Err = %v", what, err)
		}
		if status, _, _ := c.get("/healthz"); status != http.StatusOK {
			t.Errorf("a probe: %d", status)
		}
		write(t, dir, "token", []byte(other))
		if status := ask(other); status != http.StatusOK || o.Access.Err() != nil {
			t.Errorf("when it is good again: %d, %v", status, o.Access.Err())
		}
	}
	if n := strings.Count(log.String(), "nobody can be let in"); n != 4 {
		t.Errorf("it is logged %d times:\n%s", n, log)
	}
	if strings.Contains(log.String(), other) || strings.Contains(log.String(), "fifteen") {
		t.Errorf("a token is logged:\n%s", log)
	}
}

func TestFilesThatAreWrongAreKnownAtTheStart(t *testing.T) {
	dir, a := t.TempDir(), newAuthority(t)
	cert, key := a.server("kbridge", time.Time{})
	_, otherKey := a.server("other", time.Time{})
	good, goodKey := write(t, dir, "good.crt", cert), write(t, dir, "good.key", key)
	junk, nowhere, strange := write(t, dir, "junk", []byte("junk")), dir+"/nowhere", write(t, dir, "strange.key", otherKey)
	for want, cfg := range map[string]config.Server{
		"server.auth.tokenFile: read the token: open " + nowhere:                                {Auth: &config.Auth{TokenFile: nowhere}},
		"server.auth.tokenFile: read the token: " + junk + " has 4 characters":                  {Auth: &config.Auth{TokenFile: junk}},
		"server.tls: read certificates: open " + nowhere:                                        {TLS: &config.ServerTLS{CertFile: good, KeyFile: nowhere}},
		"server.tls: read certificates: " + junk + " with " + goodKey + ": tls: failed to find": {TLS: &config.ServerTLS{CertFile: junk, KeyFile: goodKey}},
		"server.tls: read certificates: " + good + " with " + strange + ": tls: private key":    {TLS: &config.ServerTLS{CertFile: good, KeyFile: strange}},
		"server.tls: read certificates: no certificate in " + junk:                              {TLS: &config.ServerTLS{CertFile: good, KeyFile: goodKey, ClientCAFile: junk}},
	} {
		if _, err := NewAccess(cfg, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// encrypted is a server with TLS, and its files.
type encrypted struct {
	*served
	options   Options
	log       *logText
	dir       string
	authority *authority // of the server's certificate
}

func serveEncrypted(t *testing.T, clients *authority, token bool) *encrypted {
	t.Helper()
	e := &encrypted{dir: t.TempDir(), authority: newAuthority(t), log: &logText{}}
	cert, key := e.authority.server("first", time.Time{})
	cfg := config.Server{TLS: &config.ServerTLS{CertFile: write(t, e.dir, "tls.crt", cert), KeyFile: write(t, e.dir, "tls.key", key)}}
	if clients != nil {
		cfg.TLS.ClientCAFile = write(t, e.dir, "ca.crt", clients.pem)
	}
	if token {
		cfg.Auth = &config.Auth{TokenFile: write(t, e.dir, "token", []byte(goodToken))}
	}
	e.options = optionsOf(t, cfg)
	e.options.Access.certificates.log = slog.New(slog.NewTextHandler(e.log, nil))
	e.served = serveWith(t, e.options, defaultLimits)
	return e
}

// client trusts the server's authority, and has those certificates.
func (e *encrypted) client(certificates ...tls.Certificate) client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.authority.pem)
	return client{e.t, "https://" + e.Address(), &tls.Config{RootCAs: roots, Certificates: certificates}}
}

func TestWithTLSNothingIsAnsweredInClear(t *testing.T) {
	e := serveEncrypted(t, nil, false)
	for _, path := range []string{"/", "/statusz", "/events", "/metrics", "/healthz", "/readyz"} {
		if status, _, _ := e.client().get(path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		if status, _, body := (client{t: t, base: "http://" + e.Address()}).get(path); status != http.StatusBadRequest {
			t.Errorf("%s in clear: %d %s", path, status, body)
		}
	}
	old := e.client()
	old.tls.MaxVersion = tls.VersionTLS11
	if _, _, _, err := old.try("/healthz"); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
}

func TestAClientsCertificateIsNeededForAllButTheProbes(t *testing.T) {
	clients, others := newAuthority(t), newAuthority(t)
	for _, withToken := range []bool{false, true} {
		e := serveEncrypted(t, clients, withToken)
		without, with := e.client(), e.client(clients.client())
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, _, body := without.get(path); status != http.StatusOK {
				t.Errorf("%s without a certificate: %d %s", path, status, body)
			}
		}
		for _, path := range guarded {
			if status, _, body := without.get(path, "Authorization", "Bearer "+goodToken); status != http.StatusForbidden || !strings.Contains(body, "client certificate") {
				t.Errorf("%s without a certificate: %d %s", path, status, body)
			}
		}
		if got := e.turnedAway("unauthorized"); int(got) != len(guarded) {
			t.Errorf("%v are counted, of %d", got, len(guarded))
		}
		if _, _, _, err := e.client(others.client()).try("/metrics", "Authorization", "Bearer "+goodToken); err == nil {
			t.Error("a certificate of another authority is taken")
		}
		for _, path := range []string{"/", "/statusz", "/events", "/metrics", "/healthz"} {
			if status, _, body := with.get(path, "Authorization", "Bearer "+goodToken); status != http.StatusOK {
				t.Errorf("%s with a certificate: %d %s", path, status, body)
			}
		}
		want := map[bool]int{false: http.StatusOK, true: http.StatusUnauthorized}[withToken]
		if status, _, _ := with.get("/metrics"); status != want {
			t.Errorf("with a certificate alone, where a token is asked for too (%t): %d, want %d", withToken, status, want)
		}
	}
}

// shows is the name in the certificate that the server shows.
func (e *encrypted) shows() string {
	e.t.Helper()
	conn, err := tls.Dial("tcp", e.Address(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func TestCertificatesAreReadAnewAndWhatIsOfNoUseIsLeftAlone(t *testing.T) {
	clients, others := newAuthority(t), newAuthority(t)
	e := serveEncrypted(t, clients, false)
	if got := e.shows(); got != "first" {
		t.Errorf("it shows %q", got)
	}
	cert, key := e.authority.server("second", time.Time{})
	write(t, e.dir, "tls.crt", cert) // a key that is not its own, in between
	for range 3 {
		if got := e.shows(); got != "first" {
			t.Errorf("with half of another pair it shows %q", got)
		}
	}
	if err := e.options.Access.Err(); err == nil || !strings.Contains(err.Error(), "tls.key") {
		t.Errorf("with half of another pair Err = %v", err)
	}
	write(t, e.dir, "tls.key", key)
	if got := e.shows(); got != "second" || e.options.Access.Err() != nil {
		t.Errorf("with another pair it shows %q, %v", got, e.options.Access.Err())
	}
	if n := strings.Count(e.log.String(), "goes on with the certificate"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, e.log)
	}

	before := e.client(clients.client())
	before.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for range 2 {
		conn, err := tls.Dial("tcp", e.Address(), before.tls)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: kbridge\r\nConnection: close\r\n\r\n")
		if _, err := io.ReadAll(conn); err != nil { // a ticket would come with it
			t.Fatal(err)
		}
		if conn.Close(); conn.ConnectionState().DidResume {
			t.Error("a session is taken up again, without a look at the client's certificate")
		}
	}
	write(t, e.dir, "ca.crt", others.pem)
	if _, _, _, err := e.client(clients.client()).try("/metrics"); err == nil {
		t.Error("clients of the authority that was there before are let in")
	}
	if status, _, _ := e.client(others.client()).get("/metrics"); status != http.StatusOK {
		t.Errorf("clients of the new authority: %d", status)
	}
	if err := os.Remove(e.dir + "/ca.crt"); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := e.client().get("/metrics"); status != http.StatusForbidden {
		t.Errorf("without the authority's file a client without a certificate gets %d", status)
	}
	if status, _, _ := e.client(others.client()).get("/metrics"); status != http.StatusOK {
		t.Errorf("without the authority's file a client with a certificate gets %d", status)
	}
	write(t, e.dir, "ca.crt", others.pem)

	cert, key = e.authority.server("expired", time.Now().Add(-time.Minute))
	write(t, e.dir, "tls.crt", cert)
	write(t, e.dir, "tls.key", key)
	if got, err := e.shows(), e.options.Access.Err(); got != "expired" || err == nil || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("it shows %q, Err = %v", got, err)
	}
}

func TestTheLimitsHoldWithTLSToo(t *testing.T) {
	e := serveEncrypted(t, nil, false)
	for range 1000 {
		e.dial("127.0.0.3") // and no handshake
	}
	if status, _, _ := e.client().get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	if got := e.turnedAway("connections"); got < 800 {
		t.Errorf("%v connections are counted as closed", got)
	}
}

func TestProfilesAreServedOnTheLoopbackAloneAndGuardedAsTheRest(t *testing.T) {
	plain := serve(t, defaultLimits)
	if plain.DebugAddress() != "" {
		t.Errorf("profiles are served at %s", plain.DebugAddress())
	}
	o := optionsOf(t, config.Server{Debug: true, Auth: &config.Auth{TokenFile: write(t, t.TempDir(), "token", []byte(goodToken))}})
	o.Address = ":0"
	s := serveWith(t, o, defaultLimits)
	if !isLoopback(s.DebugAddress()) {
		t.Errorf("profiles are served at %s", s.DebugAddress())
	}
	_, port, _ := strings.Cut(s.Address(), "]:")
	for _, base := range []string{"http://127.0.0.1:" + port, "http://" + plain.Address()} {
		if status, _, _ := (client{t: t, base: base}).get("/debug/pprof/", "Authorization", "Bearer "+goodToken); status != http.StatusNotFound {
			t.Errorf("on the server's own port: %d", status)
		}
	}
	debug := client{t: t, base: "http://" + s.DebugAddress()}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.1"} {
		if status, _, _ := debug.get(path); status != http.StatusUnauthorized {
			t.Errorf("%s without the token: %d", path, status)
		}
		if status, _, body := debug.get(path, "Authorization", basic("", goodToken)); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	// A profile may take longer than an answer of the server may.
	if most := s.endpoints[1].http.WriteTimeout; most < 2*defaultLimits.write {
		t.Errorf("a profile may take %s", most)
	}
	if status, _, _ := debug.get("/metrics", "Authorization", "Bearer "+goodToken); status != http.StatusNotFound {
		t.Errorf("metrics beside the profiles: %d", status)
	}
}
