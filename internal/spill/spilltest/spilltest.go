// Package spilltest opens files for the bodies of an index in tests.
package spilltest

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/internal/spill"
)

// Open opens a file in a folder of its own, which ends with the test. The test may close
// it before.
func Open(t testing.TB) *spill.File {
	t.Helper()
	f, err := spill.Open(t.TempDir(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
