//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/internal/child"
)

// cluster is the API server's process.
type cluster struct {
	control.Ready
	child *child.Process
	// ca is the file of its certificate, kubeconfig and plain the ways to it: HTTP/2
	// over TLS, and HTTP/1.1 without.
	ca, kubeconfig, plain string
}

func startCluster(ctx context.Context, program, dir string) (*cluster, error) {
	cmd := exec.Command(program)
	cmd.Stderr = os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd.Stdout = write
	c := &cluster{ca: filepath.Join(dir, "ca.pem"), kubeconfig: filepath.Join(dir, "kubeconfig"), plain: filepath.Join(dir, "kubeconfig-plain")}
	if c.child, err = child.Start(cmd); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	write.Close() // the child has its own copy
	defer context.AfterFunc(ctx, func() { c.child.Kill() })()
	line, err := bufio.NewReader(read).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.Ready)
	}
	if err == nil {
		err = os.WriteFile(c.ca, c.CA, 0o600)
	}
	if err == nil {
		err = writeKubeconfig(c.kubeconfig, c.HTTPS, c.ca)
	}
	if err == nil {
		err = writeKubeconfig(c.plain, c.HTTP, "")
	}
	if err != nil {
		c.child.Kill()
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	return c, nil
}

func writeKubeconfig(path, server, ca string) error {
	trust := ""
	if ca != "" {
		trust = ", certificate-authority: '" + ca + "'"
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: bench, cluster: {server: '%s'%s}}]
users: [{name: bench, user: {}}]
contexts: [{name: bench, context: {cluster: bench, user: bench}}]
current-context: bench
`, server, trust)
	return os.WriteFile(path, []byte(text), 0o600)
}
