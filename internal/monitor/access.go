package monitor

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks/credentials"
)

// Access is who may read what the server tells: who has the token, and a certificate,
// where the configuration asks for them. Everybody may ask the probes.
type Access struct {
	tokenFile    string // empty: no token is asked for
	certificates *certificates
	debug        bool
	log          *slog.Logger

	mu  sync.Mutex
	err error // why the token can not be compared with, or nil
}

// NewAccess reads the files that the configuration names, so that what is wrong with
// them is known at the start.
func NewAccess(cfg config.Server, log *slog.Logger) (*Access, error) {
	a := &Access{debug: cfg.Debug, log: log}
	if cfg.Auth != nil {
		a.tokenFile = cfg.Auth.TokenFile
		if _, err := a.token(); err != nil {
			return nil, fmt.Errorf("server.auth.tokenFile: %w", err)
		}
	}
	if cfg.TLS != nil {
		a.certificates = &certificates{cfg: *cfg.TLS, log: log}
		if err := a.certificates.load(); err != nil {
			return nil, fmt.Errorf("server.tls: %w", err)
		}
	}
	return a, nil
}

// Err is what is wrong with the files that were read last, or nil.
func (a *Access) Err() error {
	a.mu.Lock()
	err := a.err
	a.mu.Unlock()
	if a.certificates != nil {
		err = errors.Join(err, a.certificates.problem())
	}
	return err
}

// protected says that not everybody may read.
func (a *Access) protected() bool { return a.tokenFile != "" || a.asksForCertificate() }

func (a *Access) asksForCertificate() bool {
	return a.certificates != nil && a.certificates.cfg.ClientCAFile != ""
}

// listen adds TLS to a listener.
func (a *Access) listen(l net.Listener) net.Listener {
	if a.certificates == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: a.certificates.forClient})
}

// guard keeps out who may not read. A request that it does not take for a probe's is
// none, whatever the handler makes of its path.
func (a *Access) guard(next http.Handler, refused prometheus.Counter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		if a.asksForCertificate() && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			refused.Inc()
			http.Error(w, "a client certificate is needed, of an authority in server.tls.clientCAFile", http.StatusForbidden)
			return
		}
		if a.tokenFile != "" {
			token, err := a.token()
			if err != nil {
				refused.Inc()
				http.Error(w, "the token of server.auth.tokenFile can not be read: see the log", http.StatusInternalServerError)
				return
			}
			if !presents(r, token) {
				refused.Inc()
				// Browsers know Basic alone: they ask for user and password.
				w.Header().Add("WWW-Authenticate", `Basic realm="kbridge: the token is the password", charset="UTF-8"`)
				w.Header().Add("WWW-Authenticate", `Bearer realm="kbridge"`)
				http.Error(w, "the token of server.auth.tokenFile is needed, as a bearer token or as the password of any user", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// leastToken is how many bytes a token has at least. Nothing slows down who guesses.
const leastToken = 16

// token reads the token, for each request: it may be another one by now.
func (a *Access) token() (string, error) {
	token, err := credentials.Secret(a.tokenFile)
	if err != nil {
		err = fmt.Errorf("read the token: %w", err)
	} else if len(token) < leastToken {
		err = fmt.Errorf("read the token: %s has %d characters, expected at least %d", a.tokenFile, len(token), leastToken)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && (a.err == nil || a.err.Error() != err.Error()) {
		a.log.Error("nobody can be let in to metrics and status", "err", err)
	}
	a.err = err
	return token, err
}

// presents says that the request has the token, as a bearer or as a browser's password.
func presents(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if _, password, ok := r.BasicAuth(); ok {
		given = password
	} else if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	// Of equal length, so that the time says nothing of the token's.
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}
