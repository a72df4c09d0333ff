package kafkabroker

import (
	"context"
	"os"
	"testing"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

var fixture = testserver.Fixture[*Cluster]{Name: "Kafka", Package: "kafkabroker"}

// New starts a cluster for one test, and stops it when the test has ended. A test that failed shows the end of the
// nodes' logs. Where Available says that there can be no broker, the test is skipped; with CI=true it fails.
func New(t testing.TB, opts ...func(*Options)) *Cluster {
	t.Helper()
	require(t)
	return fixture.New(t, startWith(opts))
}

func require(t testing.TB) {
	t.Helper()
	switch err := Available(); {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("no Kafka broker for this test: %v", err)
	default:
		t.Skipf("no Kafka broker for this test: %v", err)
	}
}

// Main lets the tests of a package share one cluster, which starts with the first call of Shared, and stops after the
// last test. It goes into TestMain, with or without goleak:
//
//	func TestMain(m *testing.M) { os.Exit(kafkabroker.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kafkabroker.Main(m)) }
func Main(m testserver.TestingM, opts ...func(*Options)) testserver.TestingM {
	return fixture.Main(m, startWith(opts))
}

// Shared returns the cluster that the package's tests share; all its nodes run. Main must be in TestMain. A test keeps
// to topics of its own, and one that ends or pauses a node uses New. It skips and fails as New does.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	require(t)
	return fixture.Shared(t)
}

func startWith(opts []func(*Options)) func(context.Context) (*Cluster, error) {
	return func(ctx context.Context) (*Cluster, error) {
		var o Options
		for _, opt := range opts {
			opt(&o)
		}
		return Start(ctx, o)
	}
}
