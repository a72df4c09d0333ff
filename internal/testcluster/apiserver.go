package testcluster

import (
	"context"
	"crypto/x509"
	"encoding/csv"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

func (c *Cluster) tokenFile() string          { return filepath.Join(c.dir, "tokens.csv") }
func (c *Cluster) certFile() string           { return filepath.Join(c.dir, "apiserver.crt") }
func (c *Cluster) certKeyFile() string        { return filepath.Join(c.dir, "apiserver.key") }
func (c *Cluster) serviceAccountFile() string { return filepath.Join(c.dir, "service-account.key") }

func (c *Cluster) apiServerArgs(etcdURL string, port int, opts Options) []string {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + c.dir,
		"--tls-cert-file=" + c.certFile(),
		"--tls-private-key-file=" + c.certKeyFile(),
		"--token-auth-file=" + c.tokenFile(),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.serviceAccountFile(),
		"--service-account-signing-key-file=" + c.serviceAccountFile(),
		"--service-cluster-ip-range=10.0.0.0/24",
		// Without a controller manager no namespace gets the service account that this plugin asks for.
		"--disable-admission-plugins=ServiceAccount",
		// Keeps the server from looking for, and publishing, an address that other machines reach: a machine
		// without a network has none.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		// Asked to end, the server ends its watches; without, it waits a minute for the clients to do it.
		"--shutdown-watch-termination-grace-period=1s",
	}
	return append(args, opts.ExtraArgs...)
}

// writeCredentials writes what the API server needs before its first start, so that it is the same after a restart:
// its certificate, the key for service accounts, the tokens; and the administrator's kubeconfig.
func (c *Cluster) writeCredentials(users []User) error {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return err
	}
	serviceAccountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	c.ca = crt // the file holds the certificate and the authority that signed it
	var tokens strings.Builder
	w := csv.NewWriter(&tokens)
	for _, u := range append([]User{{Name: "admin", Token: adminToken, Groups: []string{"system:masters"}}}, users...) {
		if err := w.Write([]string{u.Token, u.Name, u.Name, strings.Join(u.Groups, ",")}); err != nil {
			return err
		}
	}
	w.Flush()
	for path, data := range map[string][]byte{
		c.certFile():           crt,
		c.certKeyFile():        key,
		c.serviceAccountFile(): serviceAccountKey,
		c.tokenFile():          []byte(tokens.String()),
	} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	c.kubeconfig = filepath.Join(c.dir, "kubeconfig")
	return WriteKubeconfig(c.kubeconfig, c.Config())
}

// apiServerReady tells whether the server is ready and has made the namespaces that tests, and kbridge, rely on. It
// makes them in the background, and so may be ready before.
func (c *Cluster) apiServerReady() func(context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	return func(ctx context.Context) error {
		for _, path := range []string{"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/default"} {
			if err := answers(ctx, c.URL+path, adminToken, roots); err != nil {
				return err
			}
		}
		return nil
	}
}
