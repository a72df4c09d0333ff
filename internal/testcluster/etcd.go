package testcluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

func (c *Cluster) etcdDir() string { return filepath.Join(c.dir, "etcd") }

func (c *Cluster) etcdArgs(url string, opts Options) []string {
	return []string{
		"--name=test",
		"--data-dir=" + c.etcdDir(),
		"--listen-client-urls=" + url,
		"--advertise-client-urls=" + url,
		// A cluster of one never talks to a peer, so nobody needs to know which port this is.
		"--listen-peer-urls=http://127.0.0.1:0",
		// Nor does it need long to elect its leader, which is itself. In milliseconds.
		"--heartbeat-interval=10",
		"--election-timeout=100",
		"--unsafe-no-fsync=" + strconv.FormatBool(!opts.Fsync),
		"--log-level=warn",
	}
}

func etcdReady(url string) func(context.Context) error {
	return func(ctx context.Context) error { return answers(ctx, url+"/readyz", "", nil) }
}

// EtcdSnapshot is a state of etcd that RestoreEtcd can bring back. It belongs to one cluster and ends with it.
type EtcdSnapshot struct{ dir string }

// SaveEtcd copies etcd's files. etcd is killed, and down meanwhile, for about a second: the API server stays up, but its watches
// may end. The servers that ran before are ready again when it returns.
func (c *Cluster) SaveEtcd(ctx context.Context) (EtcdSnapshot, error) {
	s := EtcdSnapshot{dir: filepath.Join(c.dir, "etcd-snapshot-"+strconv.FormatInt(c.snapshots.Add(1), 10))}
	ran := c.Etcd.Running()
	// Asked to end, etcd waits for 7 s for the API server's connections; killed, it loses nothing that it has answered.
	c.Etcd.Kill()
	if err := os.CopyFS(s.dir, os.DirFS(c.etcdDir())); err != nil {
		return s, fmt.Errorf("save etcd: copy its files: %w", err)
	}
	if !ran {
		return s, nil
	}
	if err := c.Etcd.Start(ctx); err != nil {
		return s, fmt.Errorf("save etcd: %w", err)
	}
	if c.APIServer.Running() {
		return s, c.APIServer.Await(ctx, c.APIServer.Ready)
	}
	return s, nil
}

// RestoreEtcd takes etcd back to a saved state, and resource versions with it: what was written since is gone, and
// the next writes reuse its versions. Both servers are stopped first, as an administrator would do, because the API
// server's caches would go on from the lost state. Those that ran before are ready again when it returns. Starting, the
// API server writes some 10 objects of its own, so a test that needs a version from the future makes more writes than
// that, say 100, between SaveEtcd and RestoreEtcd.
func (c *Cluster) RestoreEtcd(ctx context.Context, s EtcdSnapshot) error {
	etcdRan, apiRan := c.Etcd.Running(), c.APIServer.Running()
	c.APIServer.Kill()
	c.Etcd.Kill()
	if err := os.RemoveAll(c.etcdDir()); err != nil {
		return fmt.Errorf("restore etcd: remove its files: %w", err)
	}
	if err := os.CopyFS(c.etcdDir(), os.DirFS(s.dir)); err != nil {
		return fmt.Errorf("restore etcd: copy the snapshot: %w", err)
	}
	if etcdRan {
		if err := c.Etcd.Start(ctx); err != nil {
			return fmt.Errorf("restore etcd: %w", err)
		}
	}
	if apiRan {
		if err := c.APIServer.Start(ctx); err != nil {
			return fmt.Errorf("restore etcd: %w", err)
		}
	}
	return nil
}
