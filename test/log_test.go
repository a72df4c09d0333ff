package test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/internal/testcluster"
)

func TestASecretsValueIsInNoLogWhateverItsLevel(t *testing.T) {
	cluster := testcluster.Shared(t)
	for _, list := range []string{"true", "false"} {
		for _, level := range []string{"debug", "info", "warn", "error"} {
			t.Run(fmt.Sprintf("watchList=%s/%s", list, level), func(t *testing.T) {
				ns := cluster.CreateNamespace(t)
				in := cluster.Dynamic(t).Resource(secrets).Namespace(ns)
				before, after := "listed-horse-battery", "watched-horse-battery"
				create := func(name, value string) {
					o := object("v1", "Secret", ns, name, map[string]any{"stringData": map[string]any{"password": value}})
					if _, err := in.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				create("before", before)
				p := prepare(t, cluster.Kubeconfig(), fmt.Sprintf(`
cluster: test
resources: [{resource: secrets, namespaces: [%s]}]
sinks: [{name: out, stdout: {}}]
`, ns)+stateIn(t.TempDir()))
				p.flags = []string{"--log-level", level}
				p.env = []string{"KUBE_FEATURE_WatchListClient=" + list}
				p.again()
				p.ready()
				create("after", after)
				eventually(t, "the event is published", func() error {
					p.mustRun()
					if n := p.metric("kbridge_published_total", `type="added"`); n < 1 {
						return fmt.Errorf("%v events", n)
					}
					return nil
				})
				// A second start resumes, and asks with a list of one whether the server is older.
				p.stop()
				p.again()
				p.ready()
				p.stop()
				for _, value := range []string{before, after} {
					if said := p.logs.String(); strings.Contains(said, value) || strings.Contains(said, base64.StdEncoding.EncodeToString([]byte(value))) {
						t.Errorf("the Secret's value is in what kbridge printed")
					}
				}
			})
		}
	}
}
