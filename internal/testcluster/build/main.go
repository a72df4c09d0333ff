// Command build builds etcd and kube-apiserver for the tests, where they are not built yet, and prints the folder that
// holds them. Its progress goes to standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	paths, err := testcluster.Binaries(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the test cluster's servers:", err)
		os.Exit(1)
	}
	fmt.Println(filepath.Dir(paths.KubeAPIServer))
}
