//go:build install && linux

package install

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnInstallationWithoutAnyValueShowsEventsAndRunsWithoutRights(t *testing.T) {
	r := newRelease(t, "first")
	notes := r.install("")
	p := r.awaitReady(nil)

	t.Run("tail shows a change, typed as the notes say", func(t *testing.T) {
		typed := "kubectl exec -n first statefulset/kbridge -- kbridge tail"
		if !strings.Contains(notes, typed+"\n") {
			t.Errorf("the notes do not say %q:\n%s", typed, notes)
		}
		r.createConfigMap("default", "hello")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var out bytes.Buffer
		done := make(chan error, 1)
		go func() {
			done <- r.exec(ctx, &out, "kbridge", "tail", "--all", "--filter", "k8s.*.core.configmaps.default.hello", "--count", "1")
		}()
		if err := <-done; err != nil || !strings.Contains(out.String(), "default/hello") {
			t.Errorf("tail: %v\n%s", err, out.String())
		}
	})
	t.Run("helm test passes", func(t *testing.T) {
		r.mustHelm("", "test", releaseName, "--timeout", "1m")
	})
	t.Run("the process has no rights", func(t *testing.T) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.process(p)))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Uid:\t65532\t65532", "Gid:\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%q is not in\n%s", want, status)
			}
		}
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", r.process(p)))
		if err != nil {
			t.Fatal(err)
		}
		if _, options, _ := strings.Cut(string(mounts), " / overlay "); !strings.HasPrefix(options, "ro,") {
			t.Errorf("the root can be written: %s", mounts)
		}
	})
	t.Run("the image says what is in it", func(t *testing.T) {
		if out := r.mustExec("kbridge", "version"); !strings.Contains(out, testVersion+" ("+testRevision[:12]+")") {
			t.Errorf("kbridge version: %s", out)
		}
		root := fmt.Sprintf("/proc/%d/root", r.process(p))
		var sbom struct {
			BOMFormat  string
			Components []struct{ Name, Version string }
		}
		data, err := os.ReadFile(root + "/usr/share/sbom/kbridge.cdx.json")
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &sbom); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, c := range sbom.Components {
			found[c.Name] = c.Version != ""
		}
		for _, name := range []string{"k8s.io/client-go", "github.com/nats-io/nats.go", "github.com/segmentio/kafka-go", "std"} {
			if !found[name] {
				t.Errorf("%s is not in the SBOM, which is %s with %d components", name, sbom.BOMFormat, len(sbom.Components))
			}
		}
		for _, file := range []string{"/etc/ssl/certs/ca-certificates.crt", "/usr/share/zoneinfo.zip"} {
			if info, err := os.Stat(root + file); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", file, err)
			}
		}
	})
}

// forConfigMaps is a release that prints the ConfigMaps of a namespace.
const forConfigMaps = `
config:
  cluster: %s
  resources: [{resource: configmaps, namespaces: [%s]}]
  sinks: [{name: out, stdout: {}}]
persistence: {enabled: true}
probes: {readiness: {periodSeconds: 1}}
gracePeriodSeconds: 3
`

// printed are the events in the pod's log, by the name of their object.
func (r *release) printed() map[string][]event {
	events := map[string][]event{}
	for line := range strings.Lines(r.logs(false)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e.Specversion != "" {
			events[e.Name] = append(events[e.Name], e)
		}
	}
	return events
}

type event struct {
	Specversion, ID, Type, Cluster, Resource, Namespace, Name, UID, Resourceversion string
}

func TestAnUpgradeGoesOnFromTheStateAndAWrongOneChangesNothing(t *testing.T) {
	r := newRelease(t, "upgrade")
	values := func(cluster string) string { return fmt.Sprintf(forConfigMaps, cluster, "upgrade") }
	r.install(values("one"))
	first := r.awaitReady(nil)
	r.createConfigMap("upgrade", "before")
	r.awaitEvent("before", "one")

	t.Run("another configuration is another pod, which says nothing again", func(t *testing.T) {
		r.upgrade(values("two"))
		if second := r.awaitReady(first); second.UID == first.UID {
			t.Error("it is the same pod")
		}
		r.createConfigMap("upgrade", "after")
		r.awaitEvent("after", "two")
		if again := r.printed()["before"]; len(again) > 0 {
			t.Errorf("what was told before the upgrade is told again: %+v", again)
		}
	})
	running := r.awaitReady(first)
	unchanged := func(t *testing.T) {
		t.Helper()
		if p := r.get(); !isReady(p) || p.UID != running.UID || p.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("what ran does not go on: %s", r.describe())
		}
	}
	t.Run("a misspelt key fails before anything is sent", func(t *testing.T) {
		out, err := r.helm(strings.Replace(values("three"), "resources:", "resuorces:", 1), "upgrade", releaseName, chart, "--reset-values")
		if err == nil || !strings.Contains(out, "resuorces") {
			t.Errorf("%v: %s", err, out)
		}
		unchanged(t)
	})
	t.Run("what only kbridge finds wrong fails before anything is changed", func(t *testing.T) {
		out, err := r.helm(values("a/b"), "upgrade", releaseName, chart, "--reset-values", "--wait", "--timeout", "1m")
		if err == nil || !strings.Contains(out, `expected letters, digits`) {
			t.Errorf("%v: %s", err, out)
		}
		unchanged(t)
	})
	t.Run("an image that is not there fails before anything is changed", func(t *testing.T) {
		if out, err := r.helm(values("three")+"\nimage: {tag: nope}", "upgrade", releaseName, chart, "--reset-values", "--wait", "--timeout", "5s"); err == nil {
			t.Errorf("it is taken: %s", out)
		}
		unchanged(t)
	})
	t.Run("a rollback replaces a pod that does not get ready", func(t *testing.T) {
		broken := strings.Replace(values("three"), "{name: out, stdout: {}}", "{name: out, nats: {urls: ['nats://nobody:4222']}}", 1)
		if out, err := r.helm(broken, "upgrade", releaseName, chart, "--reset-values", "--wait", "--timeout", "10s"); err == nil {
			t.Fatalf("it is taken: %s", out)
		}
		bad := r.get()
		r.mustHelm("", "rollback", releaseName, "2")
		r.awaitReady(bad)
		r.createConfigMap("upgrade", "rolled-back")
		r.awaitEvent("rolled-back", "two")
	})
	t.Run("probes speak TLS where what it serves is for those with a token", func(t *testing.T) {
		r.createCertificate("kbridge-http", "a-token-of-many-characters")
		secured := strings.Replace(values("two"), "config:", `credentials:
  - {secret: kbridge-http, mountPath: /etc/kbridge/http}
config:
  server:
    address: ":8443"
    auth: {tokenFile: /etc/kbridge/http/token}
    tls: {certFile: /etc/kbridge/http/tls.crt, keyFile: /etc/kbridge/http/tls.key}`, 1)
		before := r.get()
		r.upgrade(secured) // waits for the kubelet's readiness probe
		p := r.awaitReady(before)
		c := p.Spec.Containers[0]
		if live := c.LivenessProbe; live.HTTPGet == nil || live.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("the liveness probe is %+v", live)
		}
		if ready := c.ReadinessProbe; ready.Exec == nil || !slices.Contains(ready.Exec.Command, "--url=https://127.0.0.1:8443") {
			t.Errorf("the readiness probe is %+v", ready)
		}
		// Longer than it takes the kubelet to restart what fails its liveness probe.
		alive := time.Now().Add(time.Duration(c.LivenessProbe.FailureThreshold*c.LivenessProbe.PeriodSeconds+5) * time.Second)
		eventually(t, "the kubelet has probed it for long enough", func() error {
			if left := time.Until(alive); left > 0 {
				return errors.New(left.String())
			}
			return nil
		})
		if said := r.mustExec("kbridge", "ready", "--url", "https://127.0.0.1:8443", "--insecure-skip-tls-verify"); strings.TrimSpace(said) != "ok" {
			t.Errorf("kbridge ready says %q", said)
		}
		if p := r.get(); p.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("it was restarted: %s", r.describe())
		}
		r.upgrade(values("two"))
	})
	t.Run("an uninstalled one leaves its state behind", func(t *testing.T) {
		r.mustHelm("", "uninstall", releaseName)
		eventually(t, "the pod goes", func() error {
			if r.get() != nil {
				return errors.New("it is there")
			}
			return nil
		})
		claim, err := cluster.client.CoreV1().PersistentVolumeClaims(r.namespace).Get(t.Context(), "data-"+pod, metav1.GetOptions{})
		if err != nil || claim.Status.Phase != corev1.ClaimBound {
			t.Fatalf("the claim: %v, %+v", err, claim.Status)
		}
		r.createConfigMap("upgrade", "meanwhile")
		r.install(values("two"))
		r.awaitEvent("meanwhile", "two")
		if again := r.printed()["rolled-back"]; len(again) > 0 {
			t.Errorf("what was told before is told again: %+v", again)
		}
	})
}

// createCertificate makes a Secret with a certificate of its own and a token.
func (r *release) createCertificate(name, token string) {
	r.t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"kbridge"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		r.t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{
		"token":   token,
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	}}
	if _, err := cluster.client.CoreV1().Secrets(r.namespace).Create(r.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// awaitEvent waits for an event of the object, which names the cluster.
func (r *release) awaitEvent(name, cluster string) {
	r.t.Helper()
	eventually(r.t, "an event of "+name, func() error {
		for _, e := range r.printed()[name] {
			if e.Cluster == cluster {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

func TestAMissingPermissionIsNamedInReadyzAndInThePodsEvents(t *testing.T) {
	r := newRelease(t, "forbidden")
	// The account may do nothing, so that one entry is enough to be named.
	out, err := r.helm(fmt.Sprintf(forConfigMaps, "c", "forbidden")+"\nrbac: {create: false}", "install", releaseName, chart, "--wait", "--timeout", "10s")
	if err == nil {
		t.Fatalf("it is taken: %s", out)
	}
	want := `configmaps is forbidden: User "system:serviceaccount:forbidden:kbridge" cannot`
	eventually(t, "the pod's events name it", func() error {
		if events := r.events(); !strings.Contains(events, "Readiness probe failed: kbridge: ") || !strings.Contains(events, want) {
			return errors.New(events)
		}
		return nil
	})
	answer, err := cluster.client.CoreV1().Services(r.namespace).ProxyGet("http", releaseName, "http", "readyz", nil).DoRaw(t.Context())
	if !strings.Contains(string(answer), want) {
		t.Errorf("/readyz through the Service: %v: %s", err, answer)
	}
	// Granted, as `kbridge rbac` prints it, it gets ready.
	r.upgrade(fmt.Sprintf(forConfigMaps, "c", "forbidden"))
	r.awaitReady(nil)
}
