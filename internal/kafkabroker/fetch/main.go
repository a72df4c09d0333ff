// Command fetch fetches the Kafka broker for the tests, where it was not fetched yet. Where there can be none it says
// plainly which tests are skipped, and why; with CI=true that is a failure.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kbridge-io/kbridge/internal/kafkabroker"
)

func main() {
	if err := kafkabroker.Available(); err != nil {
		fmt.Fprintln(os.Stderr, "The tests against a real Kafka broker are SKIPPED:", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	_, err := kafkabroker.Jars(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch the Kafka broker of the tests:", err)
		os.Exit(1)
	}
}
