package kafkabroker_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/internal/kafkabroker"
)

// needsBroker makes the test below run itself in a process where there is no Java.
const needsBroker = "KBRIDGE_TEST_NEEDS_BROKER"

func TestWhereThereIsNoJavaATestIsSkippedAndInCIItFails(t *testing.T) {
	if os.Getenv(needsBroker) != "" {
		kafkabroker.New(t)
		return
	}
	for ci, want := range map[string]string{"": "--- SKIP", "true": "--- FAIL"} {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "CI="+ci, "JAVA_HOME=/nowhere", needsBroker+"=1")
		out, err := cmd.CombinedOutput()
		if failed := err != nil; failed != (ci == "true") || !strings.Contains(string(out), want) || !strings.Contains(string(out), "no Kafka broker for this test: find Java 17 or newer") {
			t.Errorf("with CI=%q the test ended with %v:\n%s", ci, err, out)
		}
	}
}
