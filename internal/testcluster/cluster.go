// Package testcluster runs a real Kubernetes API server for tests: one etcd and one kube-apiserver, on ports of
// 127.0.0.1, in a folder of their own, with RBAC on. It owns building the two programs, starting, killing and
// restarting them, and taking etcd back to an earlier state.
//
// There is no controller manager, scheduler or kubelet. So nothing collects garbage, a pod stays Pending, a
// deleted namespace stays Terminating, and the roles view, edit and admin, which a controller fills, are empty. Custom resources work: their controllers live in the API server.
//
// It needs a Unix system. On Linux the servers die with the process that started them, however that ends; elsewhere
// they outlive it if it was killed before Cluster.Stop.
package testcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Options are the settings of a cluster. The zero value is a good one.
type Options struct {
	// Dir holds the cluster's files and is kept by Stop. Default: a temporary folder, which Stop removes.
	Dir string
	// Fsync lets etcd sync its files to the disk. Without it etcd is faster, and its data still survives Kill,
	// though not a crash of the machine.
	Fsync bool
	// ExtraArgs are flags for kube-apiserver. They come last, and so replace this package's own.
	ExtraArgs []string
	// Users may log in with their tokens, beside the administrator. RBAC decides what they may do: at first, very little.
	Users []User
	// Progress is where the build of the servers, if one is needed, says how it gets on. Default: standard error.
	Progress io.Writer
}

// User is an account that the API server accepts.
type User struct {
	Name   string
	Token  string
	Groups []string
}

const adminToken = "kbridge-test-admin"

// Cluster is one running etcd and one running kube-apiserver. Its methods may be called from any goroutine.
type Cluster struct {
	// URL is where the API server listens. It stays the same over restarts.
	URL string
	// Etcd and APIServer start and end on their own. Both run after Start.
	Etcd      *testserver.Process
	APIServer *testserver.Process

	dir        string
	temporary  *temporaryDir // nil when the caller named the folder
	ports      []*testserver.Port
	ca         []byte
	kubeconfig string
	snapshots  atomic.Int64 // numbers their folders

	stopOnce sync.Once
	stopErr  error
}

// Start builds the servers where they were not built before, starts them, and returns when the API server is ready.
// ctx bounds the start only: the cluster runs until Stop.
func Start(ctx context.Context, opts Options) (c *Cluster, err error) {
	if opts.Progress == nil {
		opts.Progress = os.Stderr
	}
	paths, err := Binaries(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	c = &Cluster{dir: opts.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
			c = nil
		}
	}()
	if opts.Dir == "" {
		if c.temporary, err = newTemporaryDir(); err != nil {
			return c, fmt.Errorf("create the cluster's folder: %w", err)
		}
		c.dir = c.temporary.path
	} else if err = os.MkdirAll(opts.Dir, 0o700); err != nil {
		return c, fmt.Errorf("create the cluster's folder: %w", err)
	}
	etcdPort, err := c.reservePort()
	if err != nil {
		return c, err
	}
	apiPort, err := c.reservePort()
	if err != nil {
		return c, err
	}
	c.URL = "https://127.0.0.1:" + strconv.Itoa(apiPort)
	if err = c.writeCredentials(opts.Users); err != nil {
		return c, fmt.Errorf("write the cluster's credentials: %w", err)
	}
	etcdURL := "http://127.0.0.1:" + strconv.Itoa(etcdPort)
	c.Etcd = c.process("etcd", paths.Etcd, c.etcdArgs(etcdURL, opts), etcdReady(etcdURL))
	c.APIServer = c.process("kube-apiserver", paths.KubeAPIServer, c.apiServerArgs(etcdURL, apiPort, opts), c.apiServerReady())
	return c, c.StartAll(ctx)
}

func (c *Cluster) process(name, path string, args []string, ready func(context.Context) error) *testserver.Process {
	return &testserver.Process{
		Name: name, Log: filepath.Join(c.dir, name+".log"), Ready: ready,
		Command: func() *exec.Cmd {
			cmd := exec.Command(path, args...)
			cmd.Dir = c.dir
			return cmd
		},
	}
}

// StartAll starts the servers that are down, and returns when both are ready.
func (c *Cluster) StartAll(ctx context.Context) error {
	if err := c.Etcd.Start(ctx); err != nil {
		return err
	}
	return c.APIServer.Start(ctx)
}

// Stop kills both servers, waits for their end, gives the ports back and removes the temporary folder. A second call
// does nothing but return the same.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	if c.APIServer != nil {
		c.APIServer.Kill()
	}
	if c.Etcd != nil {
		c.Etcd.Kill()
	}
	for _, p := range c.ports {
		p.Release()
	}
	if c.temporary != nil {
		return c.temporary.remove()
	}
	return nil
}

// Config returns the administrator's settings for clients, without a limit on requests. The caller owns the copy.
func (c *Cluster) Config() *rest.Config { return c.UserConfig(adminToken) }

// UserConfig returns the same as Config for the user with this token.
func (c *Cluster) UserConfig(token string) *rest.Config {
	return &rest.Config{
		Host:            c.URL,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		QPS:             -1,
	}
}

// Kubeconfig returns the path of the administrator's kubeconfig file.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// WriteKubeconfig writes a kubeconfig file for one of the results of Config and UserConfig.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "kbridge-test"
	kc := clientcmdapi.NewConfig()
	kc.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kc.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	kc.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kc.CurrentContext = name
	return clientcmd.WriteToFile(*kc, path)
}

// LogTail returns the end of both servers' logs.
func (c *Cluster) LogTail() string {
	return c.Etcd.LogTail() + "\n" + c.APIServer.LogTail()
}

func (c *Cluster) reservePort() (int, error) {
	p, err := testserver.ReservePort()
	if err != nil {
		return 0, err
	}
	c.ports = append(c.ports, p)
	return p.Number, nil
}

// answers asks url once, on a connection of its own, and takes every status but 200 for an error.
func answers(ctx context.Context, url, token string, roots *x509.CertPool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return nil
}
