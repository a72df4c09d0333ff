package browser

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// needsBrowser makes the test below run itself in a process that finds no program.
const needsBrowser = "KBRIDGE_TEST_NEEDS_BROWSER"

func TestWhereThereIsNoChromiumATestIsSkippedAndInCIItFails(t *testing.T) {
	if os.Getenv(needsBrowser) != "" {
		open(t, 1200, 900)
		return
	}
	for ci, want := range map[string]string{"": "--- SKIP", "true": "--- FAIL"} {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "CI="+ci, "PATH=/nowhere", needsBrowser+"=1")
		out, err := cmd.CombinedOutput()
		if failed := err != nil; failed != (ci == "true") || !strings.Contains(string(out), want) || !strings.Contains(string(out), errNoBrowser.Error()) {
			t.Errorf("with CI=%q the test ended with %v:\n%s", ci, err, out)
		}
	}
}
