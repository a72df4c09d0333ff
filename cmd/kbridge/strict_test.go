package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// untouched listens, and fails the test at its end if somebody has connected.
func untouched(t *testing.T) net.Addr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if c, err := listener.Accept(); err == nil {
			c.Close()
			t.Error("somebody connected")
		}
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return listener.Addr()
}

func TestAStrictConfigurationWithARiskExitsWithTwoAndContactsNothing(t *testing.T) {
	broker := untouched(t)
	file := writeConfig(t, fmt.Sprintf(`strict: true
resources: [{resource: secrets, secrets: include}]
sinks: [{name: a, nats: {urls: ['nats://%s'], tls: {insecureSkipVerify: true}}}]
state: {file: {dir: '%s'}}
`, broker, t.TempDir()))
	for _, args := range [][]string{{"run", "--config", file}, {"check", "--config", file}} {
		code, _, log := kbridge(t, args...)
		if code != exitUsage {
			t.Errorf("%v: exit code %d, want %d: %s", args, code, exitUsage, log)
		}
		for _, want := range []string{file + ":2: resources[0].secrets: ", file + ":3: sinks[0].nats.tls.insecureSkipVerify: ", "as strict is true"} {
			if !strings.Contains(log, want) {
				t.Errorf("%v: %q is not in\n%s", args, want, log)
			}
		}
	}
}

func kubeconfigOf(t *testing.T, cluster string) string {
	t.Helper()
	return writeConfig(t, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {%s}}]}`, cluster))
}

func TestAKubeconfigWithoutCheckedTLSIsWarnedOfAndRefusedWhereTheConfigurationIsStrict(t *testing.T) {
	api := untouched(t)
	for cluster, want := range map[string]string{
		fmt.Sprintf("server: 'https://%s', insecure-skip-tls-verify: true", api): "any certificate of the API server is accepted",
		"server: 'http://api.invalid:8080'":                                      "api.invalid:8080 is spoken to without TLS",
	} {
		kubeconfig := kubeconfigOf(t, cluster)
		file := writeConfig(t, fmt.Sprintf(`strict: true
resources: [{resource: pods}]
sinks: [{name: out, stdout: {}}]
state: {file: {dir: '%s'}}
server: {address: ''}
`, t.TempDir()))
		code, _, log := kbridge(t, "run", "--config", file, "--kubeconfig", kubeconfig)
		if code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", cluster, code, exitUsage)
		}
		if !strings.Contains(log, want) || !strings.Contains(log, "as strict is true") {
			t.Errorf("%s: %q is not in\n%s", cluster, want, log)
		}
	}
	for _, cluster := range []string{"server: 'https://127.0.0.1:1'", "server: 'http://127.0.0.1:8001'", "server: 'http://localhost:8001'", "server: 'https://api.invalid'"} {
		cfg, err := kubeConfig(kubeconfigOf(t, cluster), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := insecureServer(cfg); len(got) > 0 {
			t.Errorf("%s: warned of %q", cluster, got)
		}
	}
}

func TestWarningsAreLoggedBeforeAnythingAnswers(t *testing.T) {
	kubeconfig := kubeconfigOf(t, "server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true")
	file := writeConfig(t, "resources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\nserver: {address: ''}")
	r := start(t, "run", "--config", file, "--kubeconfig", kubeconfig, "--data-dir", t.TempDir())
	r.log.waitFor(t, "configuration: state: none")
	r.log.waitFor(t, "configuration: kubeconfig: any certificate of the API server is accepted")
	r.end(t)
}
