package chart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kbridge-io/kbridge/config"
)

// kbridge is the container of the pod that the values make.
func kbridge(t *testing.T, values string, args ...string) (corev1.Container, corev1.PodSpec) {
	t.Helper()
	spec := find[appsv1.StatefulSet](t, objects(t, values, args...), "StatefulSet").Spec.Template.Spec
	for _, c := range spec.Containers {
		if c.Name == "kbridge" {
			return c, spec
		}
	}
	t.Fatal("no container kbridge")
	return corev1.Container{}, spec
}

func TestTheConfigurationArrivesAsItIsInTheValues(t *testing.T) {
	t.Parallel()
	for name, values := range cases(t) {
		text := find[corev1.ConfigMap](t, withoutHooks(t, values), "ConfigMap").Data["config.yaml"]
		if _, err := config.Parse(name, []byte(text)); err != nil {
			t.Errorf("%s: kbridge does not take it: %v\n%s", name, err, text)
		}
	}
	cfg, err := config.Parse("kafka", []byte(find[corev1.ConfigMap](t, withoutHooks(t, cases(t)["kafka"]), "ConfigMap").Data["config.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	// Helm's numbers are floating-point, and must not arrive with an exponent.
	if got, want := cfg.Sinks[1].NATS.Stream.MaxBytes, config.Size(20<<30); got != want {
		t.Errorf("maxBytes %d, want %d", got, want)
	}
}

func TestTheMemoryLimitFollowsFromTheClusterAndTheSinks(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"{config: {sinks: [{name: a, stdout: {}}]}, clusterSize: small}":                    "128Mi/64Mi",
		"{config: {sinks: [{name: a, stdout: {}}]}}":                                        "192Mi/96Mi",
		"{config: {sinks: [{name: a, stdout: {}}]}, clusterSize: large}":                    "320Mi/160Mi",
		"{config: {sinks: [{name: a, stdout: {}}]}, clusterSize: xlarge}":                   "1Gi/512Mi",
		"{config: {sinks: [{name: a, stdout: {}}, {name: b, nats: {urls: ['nats://n']}}]}}": "256Mi/128Mi",
		"{config: {sinks: [{name: a, window: {bytes: 0.5GiB}, stdout: {}}]}}":               "640Mi/320Mi",
		"{config: {sinks: [{name: a, window: {bytes: 268435456}, stdout: {}}]}}":            "384Mi/192Mi",
		"{config: {sinks: [{name: a, window: {bytes: 1MiB}, stdout: {}}]}}":                 "192Mi/96Mi",
		"{config: {sinks: [{name: a, window: {bytes: 100M}, stdout: {}}]}}":                 "224Mi/112Mi",
		"{config: {sinks: [{name: a, stdout: {}}], state: null}, clusterSize: large}":       "512Mi/256Mi",
		"{}":                                     "320Mi/160Mi",
		"{resources: {limits: {memory: 1Gi}}}":   "1Gi/0",
		"{resources: {requests: {memory: 1Mi}}}": "320Mi/1Mi",
	} {
		c, _ := kbridge(t, values)
		if got := fmt.Sprintf("%s/%s", c.Resources.Limits.Memory(), c.Resources.Requests.Memory()); got != want {
			t.Errorf("%s: limit and request are %s, want %s", values, got, want)
		}
	}
}

func TestAPodThatCouldNotWorkIsNotMade(t *testing.T) {
	t.Parallel()
	nats := "{config: {sinks: [{name: a, nats: {urls: ['nats://n'], %s}}]}, credentials: [{secret: s, mountPath: /etc/kbridge/nats}]}"
	for values, want := range map[string]string{
		"{config: {resources: [{resource: pods, lableSelector: a=b}]}}": "additional properties 'lableSelector' not allowed",
		"{config: {sinks: [{name: a}]}}":                                "'oneOf' failed",
		"{config: {resources: []}}":                                     "minItems",
		"{persistencee: {enabled: false}}":                              "additional properties 'persistencee' not allowed",
		"{image: {tagg: x}}":                                            "additional properties 'tagg' not allowed",
		"{clusterSize: huge}":                                           "must be one of 'small', 'medium', 'large', 'xlarge'",
		"{replicas: 2}":                                                 "maximum: got 2, want 1",
		"{credentials: [{secret: s}]}":                                  "missing property 'mountPath'",
		"{config: {server: {address: '127.0.0.1:8080'}}}":               "nothing outside of the pod reaches it",
		"{config: {server: {address: '[::1]:8080'}}}":                   "nothing outside of the pod reaches it",
		"{config: {server: {auth: {}}}}":                                "missing property 'tokenFile'",
		"{serviceMonitor: {enabled: true}, config: {server: {auth: {tokenFile: /etc/ssl/t}}}}":                                                                      "serviceMonitor.authorization: config.server.auth asks",
		"{podMonitor: {enabled: true}, config: {server: {auth: {tokenFile: /etc/ssl/t}}}}":                                                                          "podMonitor.authorization: config.server.auth asks",
		"{podMonitor: {enabled: true, tlsConfig: {serverName: k}}, config: {server: {tls: {certFile: /etc/ssl/c, keyFile: /etc/ssl/k, clientCAFile: /etc/ssl/a}}}}": "podMonitor.tlsConfig.cert: config.server.tls.clientCAFile asks",
		"{config: {server: {address: ':0'}}}":                                                                  "need a port that is known",
		"{config: {state: {file: {dir: /data}}}}":                                                              `config.state.file.dir "/data"`,
		"{config: {state: {file: {dir: /var/lib/kbridge-other}}}}":                                             `config.state.file.dir "/var/lib/kbridge-other"`,
		"{config: {sinks: [{name: a, stdout: {}, deadLetter: {file: /dead.jsonl}}]}}":                          `config.sinks[0].deadLetter.file "/dead.jsonl"`,
		fmt.Sprintf(nats, "creds: /etc/kbridge/kafka/x"):                                                       `config.sinks[0].nats.creds "/etc/kbridge/kafka/x": no entry of credentials`,
		fmt.Sprintf(nats, "tls: {ca: /etc/kbridge/ca.crt}"):                                                    `config.sinks[0].nats.tls.ca "/etc/kbridge/ca.crt"`,
		fmt.Sprintf(nats, "user: u, passwordFile: ../etc/kbridge/natsx/p"):                                     `config.sinks[0].nats.passwordFile`,
		"{config: {sinks: [{name: a, kafka: {brokers: [k], sasl: {mechanism: OAUTHBEARER, tokenFile: /t}}}]}}": `config.sinks[0].kafka.sasl.tokenFile "/t"`,
	} {
		if out, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is taken, or %q is not said: %v %.300s", values, want, err, out)
		}
	}
	for _, values := range []string{
		fmt.Sprintf(nats, "creds: /etc/kbridge/nats/x, tls: {ca: /etc/ssl/certs/ca-certificates.crt}"),
		"{config: {state: {file: {dir: /var/lib/kbridge/a}}}}",
		"{config: {state: {file: {dir: /data/a}}}, extraVolumeMounts: [{name: data, mountPath: /data}]}",
	} {
		if _, err := render(t, values); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestOnOpenShiftTheIdsAreLeftToIt(t *testing.T) {
	t.Parallel()
	_, spec := kbridge(t, "{}", "--api-versions", "security.openshift.io/v1")
	if c := spec.SecurityContext; c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot {
		t.Errorf("the pod's security context is %+v", c)
	}
	if _, spec := kbridge(t, "{}"); *spec.SecurityContext.RunAsUser != 65532 {
		t.Errorf("elsewhere it is %+v", spec.SecurityContext)
	}
}

func TestTheProbesSpeakTLSWhereTheServerDoes(t *testing.T) {
	t.Parallel()
	c, _ := kbridge(t, cases(t)["secured"])
	for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("a probe is %+v", probe.HTTPGet)
		}
	}
	want := []string{"/usr/local/bin/kbridge", "ready", "--url=https://127.0.0.1:8443", "--insecure-skip-tls-verify"}
	if diff := cmp.Diff(want, c.ReadinessProbe.Exec.Command); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	c, _ = kbridge(t, "{}")
	if c.LivenessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS || len(c.ReadinessProbe.Exec.Command) != 3 {
		t.Errorf("without TLS they are %+v, %v", c.LivenessProbe.HTTPGet, c.ReadinessProbe.Exec.Command)
	}
}

func TestTheKubeletWaitsForTheGracePeriodAndMore(t *testing.T) {
	t.Parallel()
	c, spec := kbridge(t, "{gracePeriodSeconds: 100}")
	if *spec.TerminationGracePeriodSeconds <= 100 || !strings.Contains(strings.Join(c.Args, " "), "--grace-period=100s") {
		t.Errorf("%d s for %v", *spec.TerminationGracePeriodSeconds, c.Args)
	}
}

func TestThePolicyOpensThePortsThatTheConfigurationNeeds(t *testing.T) {
	t.Parallel()
	policy := find[networkingv1.NetworkPolicy](t, objects(t, cases(t)["kafka"]), "NetworkPolicy")
	var ports [][]int32
	for _, rule := range policy.Spec.Egress {
		var of []int32
		for _, p := range rule.Ports {
			of = append(of, p.Port.IntVal)
		}
		ports = append(ports, of)
	}
	// Names, the API server, the sinks (NATS, and Kafka with and without a port), the collector of traces, and what
	// the values add.
	if diff := cmp.Diff([][]int32{{53, 53}, {443, 6443}, {4222, 9092, 9094}, {4318}, {443}}, ports); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestTheNotesSayWhatToType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"default":    {"kubectl exec -n obs statefulset/kbridge -- kbridge tail\n", "NATS server inside of the pod", "helm test -n obs kbridge", "kubectl exec -n obs statefulset/kbridge -- kbridge check --connect --config /etc/kbridge/config.yaml\n", "http://127.0.0.1:8080/ in a browser:"},
		"kafka":      {"kbridge tail --config /etc/kbridge/config.yaml --sink state\n", "of prod-eu"},
		"namespaces": {"statefulset/shop-events", "WARNING: without `config.state`"},
		"secured":    {"/services/https:kbridge:http/proxy/readyz", "https://127.0.0.1:8443/ in a browser, with the token as the password:", "kubectl port-forward -n obs statefulset/kbridge 8443\n"},
		"claim":      {"kbridge rbac --config /etc/kbridge/config.yaml --namespace obs --service-account kbridge-events"},
	} {
		out, err := run(t, cases(t)[name], "install", "kbridge", folder, "--namespace", "obs", "--dry-run=client")
		if err != nil {
			t.Error(err)
		}
		_, notes, _ := strings.Cut(out, "NOTES:")
		for _, w := range want {
			if !strings.Contains(notes, w) {
				t.Errorf("%s: %q is not in\n%s", name, w, notes)
			}
		}
	}
}
