package kafkabroker

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are PEM files for the clients of a cluster with TLS.
type Certificates struct {
	// CA is what signed the brokers' certificates and the clients'. Those of the brokers name 127.0.0.1 and no host name.
	CA string
	// OtherCA has signed nothing of this cluster.
	OtherCA string
	// Client is accepted by the listener MutualTLS, which knows its owner as User:CN=kbridge.
	Client Pair
	// ExpiredClient ended an hour ago.
	ExpiredClient Pair
	// ForeignClient is signed by OtherCA.
	ForeignClient Pair

	server        string // key and certificate in one file, as Kafka's keystores are
	expiredServer string
}

// Pair is a certificate and its private key.
type Pair struct{ CertFile, KeyFile string }

// ClientConfig returns settings for a client that trusts the cluster's CA and shows the certificate, if it is given one.
func (c *Certificates) ClientConfig(pair Pair) (*tls.Config, error) {
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	if !cfg.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read %s: no certificate in it", c.CA)
	}
	if pair != (Pair{}) {
		cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
		if err != nil {
			return nil, err
		}
		// Shown even where the broker names other authorities, so that the broker is the one to refuse it.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return cfg, nil
}

func writeCertificates(dir string) (*Certificates, error) {
	ca, err := newAuthority("kbridge test CA")
	if err != nil {
		return nil, err
	}
	other, err := newAuthority("another CA")
	if err != nil {
		return nil, err
	}
	w := certificateWriter{dir: dir}
	c := &Certificates{
		CA:            w.write("ca.pem", ca.certPEM()),
		OtherCA:       w.write("other-ca.pem", other.certPEM()),
		Client:        w.client("client", ca, false),
		ExpiredClient: w.client("expired-client", ca, true),
		ForeignClient: w.client("foreign-client", other, false),
		server:        w.server("server", ca, false),
		expiredServer: w.server("expired-server", ca, true),
	}
	return c, w.err
}

// certificateWriter keeps the first error.
type certificateWriter struct {
	dir string
	err error
}

func (w *certificateWriter) write(name string, data []byte) string {
	path := filepath.Join(w.dir, name)
	if w.err == nil {
		w.err = os.WriteFile(path, data, 0o600)
	}
	return path
}

func (w *certificateWriter) client(name string, by *authority, expired bool) Pair {
	cert, key := w.issue(by, "kbridge", x509.ExtKeyUsageClientAuth, expired)
	return Pair{CertFile: w.write(name+".pem", cert), KeyFile: w.write(name+"-key.pem", key)}
}

func (w *certificateWriter) server(name string, by *authority, expired bool) string {
	cert, key := w.issue(by, "kafka", x509.ExtKeyUsageServerAuth, expired)
	return w.write(name+".pem", bytes.Join([][]byte{key, cert}, nil))
}

func (w *certificateWriter) issue(by *authority, name string, usage x509.ExtKeyUsage, expired bool) (cert, key []byte) {
	if w.err == nil {
		cert, key, w.err = by.issue(name, usage, expired)
	}
	return cert, key
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-48 * time.Hour),
		NotAfter:              now.Add(48 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, nil
}

func (a *authority) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) issue(name string, usage x509.ExtKeyUsage, expired bool) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
	}
	if usage == x509.ExtKeyUsageServerAuth {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	if expired {
		template.NotAfter = now.Add(-time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
