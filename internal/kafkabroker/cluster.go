// Package kafkabroker runs real Kafka brokers for tests: one KRaft node or three, each a Java process that is broker
// and controller, on ports of 127.0.0.1, in a folder of their own. It owns fetching Kafka, the cluster's certificates
// and accounts, starting, killing, pausing and restarting nodes, and making and reading topics.
//
// It needs a Unix system, Java and, for the first run, Maven. On Linux the nodes die with the process that started
// them, however that ends; elsewhere they outlive it if it was killed before Cluster.Stop.
package kafkabroker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Options are the settings of a cluster. The zero value is one node with the listener Plaintext.
type Options struct {
	// Nodes is 1 or 3. Default: 1.
	Nodes int
	// Config are settings of the brokers, as in Kafka's server.properties. They replace this package's own, which
	// differ from Kafka's defaults: topics are not made by using them, and a dead broker is noticed after 3 s.
	Config map[string]string
	// Users are the accounts of the SASL listeners, which are there only with one. These listeners take OAUTHBEARER
	// too, with any user that UnsecuredToken is asked for.
	Users []User
	// TLS adds the listeners with TLS.
	TLS bool
	// Progress is where the fetch of Kafka, if one is needed, says how it gets on. Default: standard error.
	Progress io.Writer
}

// Cluster is a set of Kafka brokers. Its methods may be called from any goroutine.
type Cluster struct {
	// Nodes have the ids 1, 2 and 3, in this order. All run after Start.
	Nodes []*Node
	// Certificates are for clients of the listeners with TLS; nil without Options.TLS.
	Certificates *Certificates

	opts    Options
	jars    string
	archive string // the flag of the Java runtime for an archive of classes; empty for none
	dir     string
	admin   *kadm.Client

	stopOnce sync.Once
	stopErr  error
}

// Start fetches Kafka where it was not fetched before, starts the nodes, and returns when all of them serve. ctx bounds
// the start only: the cluster runs until Stop.
func Start(ctx context.Context, opts Options) (c *Cluster, err error) {
	if opts.Nodes == 0 {
		opts.Nodes = 1
	}
	if opts.Progress == nil {
		opts.Progress = os.Stderr
	}
	if opts.Nodes != 1 && opts.Nodes != 3 {
		return nil, fmt.Errorf("start Kafka: %d nodes asked for, it can be 1 or 3", opts.Nodes)
	}
	if _, err := javaRuntime(); err != nil {
		return nil, err
	}
	jars, err := Jars(ctx, opts.Progress)
	if err != nil {
		return nil, err
	}
	c = &Cluster{opts: opts, jars: jars}
	if archive, err := classArchive(ctx, jars, opts.Progress); err == nil {
		c.archive = "-XX:SharedArchiveFile=" + archive
	} else { // it starts all the same
		fmt.Fprintln(opts.Progress, "kafkabroker:", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
			c = nil
		}
	}()
	if err = c.prepare(); err != nil {
		return c, fmt.Errorf("prepare the Kafka cluster: %w", err)
	}
	if err = c.format(ctx); err != nil {
		return c, err
	}
	return c, c.StartAll(ctx)
}

// prepare makes everything but the nodes' storage.
func (c *Cluster) prepare() (err error) {
	if c.dir, err = os.MkdirTemp("", "kbridge-kafka-*"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, "log4j2.properties"), []byte(logSettings), 0o600); err != nil {
		return err
	}
	if c.opts.TLS {
		if c.Certificates, err = writeCertificates(c.dir); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	for id := 1; id <= c.opts.Nodes; id++ {
		n := c.node(id)
		c.Nodes = append(c.Nodes, n)
		if err := os.Mkdir(n.dir, 0o700); err != nil {
			return err
		}
		for _, l := range append(c.opts.listeners(), controller) {
			p, err := testserver.ReservePort()
			if err != nil {
				return err
			}
			n.ports[l] = p
		}
	}
	for _, n := range c.Nodes {
		if err := writeProperties(n.properties(), n.settings()); err != nil {
			return err
		}
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	c.admin = kadm.NewClient(cl)
	return nil
}

// format makes the nodes' storage, in which the accounts for SCRAM are.
func (c *Cluster) format(ctx context.Context) error {
	args := []string{"kafka.tools.StorageTool", "format", "--cluster-id", newID()}
	for _, u := range c.opts.Users {
		accounts, err := u.scram()
		if err != nil {
			return fmt.Errorf("prepare the account of %s: %w", u.Name, err)
		}
		for _, account := range accounts {
			args = append(args, "--add-scram", account)
		}
	}
	return c.all(func(n *Node) error {
		out, err := c.java(slices.Concat(args, []string{"--config", n.properties()})...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("format the storage of Kafka node %d: %w\n%s", n.ID, err, out)
		}
		return context.Cause(ctx)
	})
}

// newID returns a random id in the form that Kafka's tools want.
func newID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f        // else it can begin with a dash, and looks like a flag
	return base64.RawURLEncoding.EncodeToString(id)
}

// StartAll starts the nodes that are down and returns when they serve, and all nodes know each other. Of three, two
// are needed for either of them to serve, so this is how to start them after more than one was ended.
func (c *Cluster) StartAll(ctx context.Context) error {
	if err := c.all(func(n *Node) error { return n.Start(ctx) }); err != nil {
		return err
	}
	return c.all(func(n *Node) error {
		return n.Await(ctx, func(ctx context.Context) error {
			m, err := n.metadata(ctx)
			if err == nil && len(m.Brokers) < len(c.Nodes) {
				err = fmt.Errorf("it knows %d brokers of %d", len(m.Brokers), len(c.Nodes))
			}
			return err
		})
	})
}

// KillAll ends all nodes at once, with SIGKILL.
func (c *Cluster) KillAll() {
	_ = c.all(func(n *Node) error { n.Kill(); return nil }) // there is no error
}

// all runs f for every node at the same time.
func (c *Cluster) all(f func(*Node) error) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Stop kills the nodes, waits for their end, gives the ports back and removes the cluster's folder. A second call does
// nothing but return the same.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() {
		if c.admin != nil {
			c.admin.Close()
		}
		c.KillAll()
		for _, n := range c.Nodes {
			for _, p := range n.ports {
				p.Release()
			}
		}
		c.stopErr = os.RemoveAll(c.dir)
	})
	return c.stopErr
}

// Addrs returns the host and port of each node's listener.
func (c *Cluster) Addrs(l Listener) []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr(l))
	}
	return addrs
}

// LogTail returns the end of the nodes' logs.
func (c *Cluster) LogTail() string {
	var tails []string
	for _, n := range c.Nodes {
		tails = append(tails, n.LogTail())
	}
	return strings.Join(tails, "\n")
}
