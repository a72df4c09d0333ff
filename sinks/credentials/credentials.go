// Package credentials reads the files of a sink's login and TLS settings. A sink calls
// it for each connection, so that what the files hold can change.
package credentials

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/kbridge-io/kbridge/config"
)

// Secret reads a file that holds a secret and, often, the end of a line.
func Secret(path string) (string, error) {
	data, err := os.ReadFile(path)
	return string(bytes.TrimRight(data, "\r\n")), err
}

// TLS returns the settings for a connection. A client certificate that has expired is an
// error: servers tell no more than that they do not like it.
func TLS(cfg *config.TLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName, InsecureSkipVerify: cfg.InsecureSkipVerify}
	if cfg.CA != "" {
		pem, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("read CA: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA: no certificate in %s", cfg.CA)
		}
	}
	if cfg.Cert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.Key)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		if leaf := pair.Leaf; leaf != nil && time.Now().After(leaf.NotAfter) {
			return nil, fmt.Errorf("client certificate %s expired on %s", cfg.Cert, leaf.NotAfter.UTC().Format(time.DateTime))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
