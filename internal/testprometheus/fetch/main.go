// Command fetch fetches Debian's Prometheus for the tests, where there is none. Where it can not, it says plainly which
// tests are skipped, and why; with CI=true that is a failure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kbridge-io/kbridge/internal/testprometheus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, err := testprometheus.Fetch(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "The tests of dashboard and alerts are SKIPPED:", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
	}
}
