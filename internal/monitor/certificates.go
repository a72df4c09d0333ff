package monitor

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/config"
)

// certificates are the server's own, and the authorities of its clients. The files are
// read for each connection, and parsed when they are others than before.
type certificates struct {
	cfg config.ServerTLS
	log *slog.Logger

	mu      sync.Mutex
	files   [3][]byte // what current was made of
	current *tls.Config
	err     error // why what is in the files now is not current, or nil
}

// forClient is for tls.Config.GetConfigForClient.
func (c *certificates) forClient(*tls.ClientHelloInfo) (*tls.Config, error) {
	err := c.load()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && (c.err == nil || c.err.Error() != err.Error()) {
		c.log.Error("the HTTP server goes on with the certificate that it has", "err", err)
	}
	c.err = err
	return c.current, nil
}

// load makes what is in the files current. With an error current stays as it is.
func (c *certificates) load() error {
	var files [3][]byte
	for i, name := range []string{c.cfg.CertFile, c.cfg.KeyFile, c.cfg.ClientCAFile} {
		if name == "" {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read certificates: %w", err)
		}
		files[i] = data
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil && bytes.Equal(files[0], c.files[0]) && bytes.Equal(files[1], c.files[1]) && bytes.Equal(files[2], c.files[2]) {
		return nil
	}
	pair, err := tls.X509KeyPair(files[0], files[1])
	if err != nil {
		return fmt.Errorf("read certificates: %s with %s: %w", c.cfg.CertFile, c.cfg.KeyFile, err)
	}
	made := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		// A session that is taken up again would not look at the client's certificate anew.
		SessionTicketsDisabled: true,
	}
	if c.cfg.ClientCAFile != "" {
		made.ClientCAs = x509.NewCertPool()
		if !made.ClientCAs.AppendCertsFromPEM(files[2]) {
			return fmt.Errorf("read certificates: no certificate in %s", c.cfg.ClientCAFile)
		}
		made.ClientAuth = tls.VerifyClientCertIfGiven // the probes need none: see guard
	}
	c.files, c.current = files, made
	return nil
}

// problem is what is wrong with the files, or with the certificate that is used.
func (c *certificates) problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if leaf := c.current.Certificates[0].Leaf; leaf != nil && time.Now().After(leaf.NotAfter) {
		return errors.Join(c.err, fmt.Errorf("the certificate of %s expired on %s", c.cfg.CertFile, leaf.NotAfter.UTC().Format(time.DateTime)))
	}
	return c.err
}
