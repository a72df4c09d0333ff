package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/config"
)

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate is one that signs itself, with its key.
func certificate(t *testing.T, ends time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write(t, "key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}

func TestASecretIsReadWithoutTheEndOfItsLine(t *testing.T) {
	for text, want := range map[string]string{"word": "word", "word\n": "word", "word\r\n": "word", " a word \n": " a word ", "": ""} {
		if got, err := Secret(write(t, "secret", []byte(text))); err != nil || got != want {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	if _, err := Secret("/does/not/exist"); err == nil {
		t.Error("an absent file is no error")
	}
}

func TestFilesOfTLSAreReadOrNamed(t *testing.T) {
	cert, key := certificate(t, time.Now().Add(time.Hour))
	c, err := TLS(&config.TLS{CA: cert, Cert: cert, Key: key, ServerName: "kafka"})
	if err != nil {
		t.Fatal(err)
	}
	if c.RootCAs == nil || len(c.Certificates) != 1 || c.ServerName != "kafka" || c.InsecureSkipVerify {
		t.Errorf("the settings are %+v", c)
	}
	if c, err := TLS(&config.TLS{}); err != nil || c.RootCAs != nil || c.Certificates != nil {
		t.Errorf("without files the settings are %+v, %v", c, err)
	}
	old, oldKey := certificate(t, time.Now().Add(-time.Minute))
	for want, cfg := range map[string]config.TLS{
		"read CA: open /does/not/exist":                 {CA: "/does/not/exist"},
		"read CA: no certificate in " + key:             {CA: key},
		"read client certificate: open /does/not/exist": {Cert: "/does/not/exist", Key: key},
		"client certificate " + old + " expired on ":    {Cert: old, Key: oldKey},
	} {
		if _, err := TLS(&cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

func TestFilesThatKubernetesMountsAreReadThroughTheirLinks(t *testing.T) {
	cert, key := certificate(t, time.Now().Add(time.Hour))
	dir := t.TempDir()
	versions := filepath.Join(dir, "..2026_11_30_04_18_07.1")
	if err := os.Mkdir(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"password": write(t, "p", []byte("word\n")), "tls.crt": cert, "tls.key": key} {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(versions, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Base(versions), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if got, err := Secret(filepath.Join(dir, "password")); err != nil || got != "word" {
		t.Errorf("the password is %q, %v", got, err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if _, err := TLS(&config.TLS{CA: at("tls.crt"), Cert: at("tls.crt"), Key: at("tls.key")}); err != nil {
		t.Error(err)
	}
}
