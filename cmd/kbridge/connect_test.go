package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/rbac"
	"github.com/kbridge-io/kbridge/internal/testcluster"
	"github.com/kbridge-io/kbridge/state"
	"github.com/kbridge-io/kbridge/state/file"
)

// tries runs `kbridge check --connect`, and expects each of the patterns to match a line
// of its output, and as many gaps as are wanted.
func tries(t *testing.T, gaps int, args []string, patterns ...string) string {
	t.Helper()
	code, out, errs := asProcess(t, append([]string{"check", "--connect"}, args...)...)
	wantCode := 0
	if gaps > 0 {
		wantCode = exitFailed
	}
	if code != wantCode {
		t.Errorf("exit code %d, want %d: %s", code, wantCode, errs)
	}
	if n := len(regexp.MustCompile(`(?m)^\w+ +gap `).FindAllString(out, -1)); n != gaps {
		t.Errorf("%d gaps, want %d", n, gaps)
	}
	for _, p := range patterns {
		if !regexp.MustCompile(`(?m)^` + p + `$`).MatchString(out) {
			t.Errorf("%s is not found", p)
		}
	}
	if t.Failed() {
		t.Logf("found:\n%s%s", out, errs)
	}
	return out
}

// asProcess runs a command line to its end in a process of its own, as it is beside a kbridge
// that runs: client-go's logger is the process's.
func asProcess(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		t.Fatalf("kbridge %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func createConfigMaps(t *testing.T, cluster *testcluster.Cluster, namespace string, n int, labels map[string]any) {
	t.Helper()
	in := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	for i := range n {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("c", i), "labels": labels},
		}}
		if _, err := in.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckConnectFindsNothingMissingWhereAllIsThere(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	createConfigMaps(t, cluster, ns, 3, map[string]any{"app": ns})
	createConfigMaps(t, cluster, other, 2, map[string]any{"app": ns})
	broker := natsserver.New(t, "")
	dir := t.TempDir()
	config := writeConfig(t, fmt.Sprintf(`
cluster: prod
resources:
  - {name: here, resource: configmaps, namespaces: [%[1]s, %[2]s], sinks: [n]}
  - {name: labelled, resource: configmaps, labelSelector: app=%[1]s, excludeNamespaces: [%[2]s], sinks: [out]}
  - {name: one, resource: configmaps, fieldSelector: metadata.name=c1, namespaces: [%[1]s], sinks: [dead]}
  - {group: apps, resource: deployments, namespaces: [%[1]s]}
  - {resource: namespaces, excludeNamespaces: [%[1]s]}
sinks:
  - {name: n, nats: {urls: ['%[3]s']}}
  - {name: dead, nats: {urls: ['%[3]s'], stream: {name: D, subjects: [d.>, bad.>]}, subject: 'd.{name}'}, deadLetter: {subject: bad.letters}}
  - {name: out, stdout: {}}
state: {file: {dir: '%[4]s/state'}}
server: {address: '127.0.0.1:0'}
`, ns, other, broker.URL(), dir))
	account := newAccount(t, cluster)
	for _, o := range account.roles(t, config) {
		account.create(t, o)
	}
	kubeconfig := account.kubeconfig(t)
	out := tries(t, 0, []string{"--config", config, "--kubeconfig", kubeconfig},
		`config       ok       \S+/kbridge.yaml: valid`,
		`cluster      ok       https://127.0.0.1:\d+: Kubernetes v1\.\d+\.\d+ answers, as system:serviceaccount:`+account.namespace+`:kbridge`,
		// Where the configuration names the cluster its identity is not asked for in the roles.
		`cluster      warning  https://\S+: kbridge may not get the namespace kube-system: another cluster .*`,
		`resources    ok       here: ConfigMap in v1, namespaced, namespaces `+ns+`, `+other+`; objects: `+ns+` 3, `+other+` 2`,
		`resources    ok       labelled: ConfigMap in v1, namespaced, all namespaces but `+other+`, labels app=`+ns+`; objects: 3`,
		`resources    ok       one: ConfigMap in v1, namespaced, namespaces `+ns+`, fields metadata.name=c1; objects: `+ns+` 1`,
		`resources    ok       deployments.apps: Deployment in apps/v1, .*; objects: `+ns+` 0`,
		`resources    warning  namespaces: excludeNamespaces leaves nothing out: namespaces are cluster-scoped`,
		`resources    ok       namespaces: Namespace in v1, cluster-scoped, .*; objects: \d\d?`,
		`permissions  ok       configmaps: it may list and watch`,
		`permissions  ok       deployments.apps in `+ns+`: it may list and watch`,
		`sinks        ok       n: logged in at nats://\S+: nats-server .*`,
		`sinks        ok       n: a start would create stream KBRIDGE for k8s.>: .*`,
		`sinks        ok       n: it may publish events to k8s.prod.core.configmaps.`+ns+`.\*, .*k8s.prod.core.namespaces._.\*`,
		`sinks        ok       n: dead letters go to `+dir+`/state/dead/n.jsonl`,
		`sinks        ok       dead: dead letters: the created stream would store bad.letters`,
		`sinks        ok       out: events are printed`,
		`state        ok       `+dir+`/state: it is not there: a start would make it, and begin with a snapshot of everything`,
		`no gaps: a start finds what it needs \(ok: \d+, warnings: 2, skipped: 0\)`,
	)
	if n := strings.Count(out, "it may list and watch"); n != 3 { // what is granted everywhere is not asked for again
		t.Errorf("%d lines say what may be watched, want 3", n)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the check has made %v, %v", entries, err)
	}
	account.runs(t, config, isReady) // what was found is true
}

func TestCheckConnectDisturbsNoKbridgeBesideIt(t *testing.T) {
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	broker := natsserver.New(t, "")
	dir := t.TempDir()
	config := writeConfig(t, fmt.Sprintf(`
resources: [{resource: configmaps, namespaces: [%s]}]
sinks: [{name: n, nats: {urls: ['%s']}}, {name: out, stdout: {}}]
state: {file: {dir: '%s'}}
server: {address: '127.0.0.1:0'}
`, ns, broker.URL(), dir))
	r := start(t, "run", "--config", config, "--kubeconfig", cluster.Kubeconfig(), "--log-format", "json")
	r.log.waitFor(t, `"listed"`)
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(r.log.String())[1]
	createConfigMaps(t, cluster, ns, 1, nil)
	r.out.waitFor(t, `"name":"c0"`)
	before := r.log.String()
	for range 3 {
		tries(t, 0, []string{"--config", config, "--kubeconfig", cluster.Kubeconfig()},
			fmt.Sprintf(`state        ok       %s: in use by process %d`, dir, os.Getpid()),
			`sinks        ok       n: stream KBRIDGE stores k8s.>: \d+ messages, \S+`,
			`resources    ok       configmaps: .*; objects: `+ns+` \d`)
	}
	if body := get(t, "http://"+address+"/readyz"); !isReady(body) {
		t.Errorf("/readyz says %s", body)
	}
	in := cluster.Dynamic(t).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(ns)
	if err := in.Delete(t.Context(), "c0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.out.waitFor(t, "dev.kbridge.object.deleted")
	if more := strings.TrimPrefix(r.log.String(), before); more != "" {
		t.Errorf("meanwhile it has logged\n%s", more)
	}
	r.end(t)
	tries(t, 0, []string{"--config", config, "--kubeconfig", cluster.Kubeconfig()}, `state        ok       \S+: format \d, opened 1 times, watches: 1, epoch 0`)
}

func TestCheckConnectNamesEachPermissionThatIsMissingWithTheRuleThatMendsIt(t *testing.T) {
	cluster := testcluster.Shared(t)
	a, b := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
	config := writeConfig(t, fmt.Sprintf(`
resources:
  - {resource: pods}
  - {group: apps, resource: deployments, namespaces: [%s]}
  - {resource: secrets, namespaces: [%[1]s, %[2]s]}
sinks: [{name: out, stdout: {}}]
`, a, b))
	account := newAccount(t, cluster)
	args := []string{"--config", config, "--kubeconfig", account.kubeconfig(t), "--data-dir", t.TempDir()}
	tries(t, 5, args,
		`cluster      skipped  https://\S+: its identity: kbridge may not get the namespace kube-system`,
		`resources    ok       pods: Pod in v1, namespaced, all namespaces; objects: not counted, as it may not be listed`,
		`permissions  gap      pods: it may not list and watch; add to a ClusterRole: \{apiGroups: \[""\], resources: \[pods\], verbs: \[list, watch\]\}`,
		`permissions  gap      namespaces/kube-system: it may not get; add to a ClusterRole: \{apiGroups: \[""\], resources: \[namespaces\], resourceNames: \[kube-system\], verbs: \[get\]\}`,
		`permissions  gap      deployments.apps in `+a+`: it may not list and watch; add to a Role of the namespace `+a+`: \{apiGroups: \["apps"\], resources: \[deployments\], verbs: \[list, watch\]\}`,
		`permissions  gap      secrets in `+b+`: .*`,
		`5 gaps: a start would not do all that the configuration asks for .*`,
	)
	// Mend one gap after the other, with the rule that is told, one verb at a time.
	for gaps := 5; gaps > 0; {
		_, out, _ := kbridge(t, append([]string{"check", "--connect", "-o", "json"}, args...)...)
		var report struct {
			Gaps     int
			Findings []struct {
				Outcome, Subject string
				Mend             *rbac.Grant
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if report.Gaps != gaps {
			t.Fatalf("%d gaps, want %d:\n%s", report.Gaps, gaps, out)
		}
		for _, f := range report.Findings {
			if f.Outcome != "gap" {
				continue
			}
			if len(f.Mend.Rule.Verbs) == 1 {
				gaps-- // it was in two halves, or is one verb
			}
			f.Mend.Rule.Verbs = f.Mend.Rule.Verbs[:1]
			account.grant(t, *f.Mend)
			break
		}
	}
	tries(t, 0, args, `cluster      ok       https://\S+: its identity is \S+, and events name it \S+`, `resources    ok       pods: .*; objects: \d+`)
}

// The API server takes a namespace for one of its own objects, so a Role in it is enough.
func TestCheckConnectTakesARoleOfKubeSystemForItsIdentity(t *testing.T) {
	cluster := testcluster.Shared(t)
	account := newAccount(t, cluster)
	account.grant(t, rbac.Grant{Kind: "Role", Namespace: "kube-system", Rule: rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}}})
	config := writeConfig(t, "resources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\n")
	tries(t, 1, []string{"--config", config, "--kubeconfig", account.kubeconfig(t), "--data-dir", t.TempDir()},
		`cluster      ok       https://\S+: its identity is .*`, `permissions  ok       namespaces/kube-system: it may get`, `permissions  gap      pods: .*`)
}

// grant makes a role with the rule and binds it to the account.
func (a account) grant(t *testing.T, g rbac.Grant) {
	t.Helper()
	p := rbac.Permissions{Cluster: []rbacv1.PolicyRule{g.Rule}}
	if g.Kind == "Role" {
		p = rbac.Permissions{Namespaces: map[string][]rbacv1.PolicyRule{g.Namespace: {g.Rule}}}
	}
	name := fmt.Sprintf("for-%s-%s", g.Rule.Verbs[0], g.Rule.Resources[0])
	for _, o := range p.Objects(rbac.Account{Name: name, Namespace: a.namespace, ServiceAccount: "kbridge"}) {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		a.create(t, &unstructured.Unstructured{Object: object})
	}
}

func TestCheckConnectSaysWhatAWrongResourceMeans(t *testing.T) {
	cluster := testcluster.Shared(t)
	cluster.ApplyCRD(t, "check.example.com", "gadgets", "Gadget", testcluster.ClusterScoped)
	for entry, want := range map[string]string{
		"resource: pod":                                                `pod: the server does not have pod; perhaps \{resource: pods\} is meant`,
		"resource: po":                                                 `po: .*; perhaps \{resource: pods\} is meant`,
		"resource: deployments":                                        `deployments: .*; perhaps \{group: apps, resource: deployments\} is meant`,
		"resource: deploy":                                             `deploy: .*; perhaps \{group: apps, resource: deployments\} is meant`,
		"group: apps, resource: deployment":                            `deployment.apps: .*; perhaps \{group: apps, resource: deployments\} is meant`,
		"group: apps, resource: deploymnets":                           `deploymnets.apps: .*; perhaps \{group: apps, resource: deployments\} is meant`,
		"resource: ingress":                                            `ingress: .*; perhaps \{group: networking.k8s.io, resource: ingresses\} is meant`,
		"resource: pods, version: v2":                                  `pods: the server does not have pods in version v2; perhaps \{version: v1, resource: pods\} is meant`,
		"resource: events, version: v9":                                `events: .*; perhaps \{version: v1, resource: events\} is meant`,
		"resource: nothing-like-it":                                    `nothing-like-it: the server does not have nothing-like-it`,
		"resource: bindings":                                           `bindings: bindings in version v1 can not be listed and watched: it offers \[create\]`,
		"resource: nodes, namespaces: [a]":                             `nodes: it is cluster-scoped and can not be selected by namespaces: .*`,
		"resource: pods, fieldSelector: spec.volumes=x":                `pods: Pod in v1, .*: list: .*field label not supported.*`,
		"group: check.example.com, resource: gadgets, namespaces: [a]": `gadgets.check.example.com: it is cluster-scoped .*`,
		"group: check.example.com, resource: gadget, excludeNamespaces: [a-b]": `gadget.check.example.com: .*; perhaps \{group: check.example.com, resource: gadgets\} is meant`,
	} {
		t.Run(entry, func(t *testing.T) {
			config := writeConfig(t, "cluster: c\nresources: [{"+entry+"}]\nsinks: [{name: out, stdout: {}}]\n")
			out := tries(t, 1, []string{"--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir()}, `resources    gap      `+want)
			if !strings.Contains(want, "field label") && !strings.Contains(out, "permissions  skipped  ") {
				t.Errorf("its permissions are not skipped:\n%s", out)
			}
		})
	}
}

func TestCheckConnectTellsWhyTheClusterDoesNotAnswer(t *testing.T) {
	cluster := testcluster.Shared(t)
	stranger := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testcluster.WriteKubeconfig(stranger, cluster.UserConfig("no-token-of-anybody")); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	config := writeConfig(t, "resources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\n")
	strict := writeConfig(t, fmt.Sprintf("strict: true\nresources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\nstate: {file: {dir: '%s'}}\n", t.TempDir()))
	for name, c := range map[string]struct {
		config, kubeconfig string
		gaps               int
		want               []string
	}{
		"nobody listens":      {config, kubeconfigOf(t, "server: 'http://127.0.0.1:1'"), 1, []string{`cluster      gap      http://127.0.0.1:1: ask for the server's version: .*connection refused`}},
		"nobody says a word":  {config, kubeconfigOf(t, "server: 'http://"+silent.Addr().String()+"'"), 1, []string{`cluster      gap      http://\S+: no answer within 300ms`}},
		"a token of nobody":   {config, stranger, 1, []string{`cluster      gap      https://\S+: ask for the server's version: the server has asked for the client to provide credentials`}},
		"there is no file":    {config, "/does/not/exist", 1, []string{`cluster      gap      kubeconfig: find the API server: .*/does/not/exist.*`}},
		"it is to be checked": {strict, kubeconfigOf(t, "server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true"), 2, []string{`cluster      gap      https://127.0.0.1:1: kubeconfig: any certificate .*, expected nothing to warn of, as strict is true`}},
	} {
		t.Run(name, func(t *testing.T) {
			limit := "10s"
			if strings.Contains(name, "says") {
				limit = "300ms"
			}
			tries(t, c.gaps, []string{"--config", c.config, "--kubeconfig", c.kubeconfig, "--data-dir", t.TempDir(), "--timeout", limit}, append(c.want,
				`resources    skipped  pods: no API server answers`, `permissions  skipped  pods: no API server answers`, `sinks        ok       out: events are printed`)...)
		})
	}
}

// Where the API server does not let everybody ask what they may do, nothing is said to be
// allowed.
func TestCheckConnectSaysThatPermissionsCanNotBeFoundOut(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			fmt.Fprint(w, `{"major":"1","minor":"20","gitVersion":"v1.20.0"}`)
		case "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
		case "/api/v1":
			fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}`)
		case "/api/v1/pods":
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","remainingItemCount":41,"continue":"x"},"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}]}`)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not \u001b[31mfor you","code":403}`)
		}
	}))
	defer server.Close()
	config := writeConfig(t, "cluster: c\nresources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\n")
	out := tries(t, 1, []string{"--config", config, "--kubeconfig", kubeconfigOf(t, "server: '"+server.URL+"'"), "--data-dir", t.TempDir()},
		`cluster      ok       http://\S+: Kubernetes v1.20.0 answers`,
		`resources    ok       pods: .*; objects: 42`,
		`permissions  gap      pods: whether it may list can not be found out: ask for a permission: .*`)
	if strings.Contains(out, "\x1b") {
		t.Errorf("what the server says is printed as it is: %q", out)
	}
}

func TestCheckConnectLooksAtTheStateAndWhatItKnows(t *testing.T) {
	cluster := testcluster.Shared(t)
	dir := t.TempDir()
	s, err := file.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(&state.Batch{Views: map[state.ViewID]*state.ViewChange{"secrets||||": {Info: state.ViewInfo{Cluster: "another"}}, "pods||||": {}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	config := writeConfig(t, fmt.Sprintf("resources: [{resource: pods}, {resource: nodes}]\nsinks: [{name: out, stdout: {}}]\nstate: {file: {dir: '%s'}}\n", dir))
	args := []string{"--config", config, "--kubeconfig", cluster.Kubeconfig()}
	tries(t, 0, args,
		`state        ok       \S+: format \d, opened 1 times, watches: 2, epoch 0`,
		`state        warning  \S+: it is of the cluster another, and \S+ answers: .*`,
		`state        warning  \S+: a start would forget what the configuration does not select any more: secrets`,
		`state        ok       \S+: a start would begin with a snapshot of nodes`)
	if err := os.WriteFile(filepath.Join(dir, file.Name), []byte(strings.Repeat("x", 1<<16)), 0o600); err != nil {
		t.Fatal(err)
	}
	tries(t, 1, args, `state        gap      \S+: the file is damaged .*`)
}

func TestCheckConnectLooksWhereTheEmbeddedServerAndTheDeadLettersGo(t *testing.T) {
	cluster := testcluster.Shared(t)
	config := writeConfig(t, "cluster: c\nresources: [{resource: pods}]\n")
	dir := t.TempDir()
	args := []string{"--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", dir}
	tries(t, 0, args, `sinks        ok       embedded: a start would run a nats-server in `+dir+`/embedded, on 127.0.0.1, which keeps 1GiB`)
	broker, err := embedded.Start(embedded.Options{Dir: embeddedDir(dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Stop()
	tries(t, 0, args, fmt.Sprintf(`sinks        ok       embedded: an in-process nats-server is in %s/embedded already, of process %d`, dir, os.Getpid()))
	if err := os.WriteFile(filepath.Join(dir, "dead"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tries(t, 1, args, `sinks        gap      embedded: dead letters: .*not a directory.*`)
}

func TestCheckConnectTriesKafka(t *testing.T) {
	kafka := kafkabroker.Shared(t)
	cluster := testcluster.Shared(t)
	ns := cluster.CreateNamespace(t)
	config := writeConfig(t, fmt.Sprintf(`
cluster: c
resources: [{resource: configmaps, namespaces: [%s], types: [added, deleted]}, {group: apps, resource: deployments, types: [added]}]
sinks: [{name: k, kafka: {brokers: ['%s'], topic: '%[1]s.{namespace}.{kind}.{type}', replication: 1}}, {name: away, kafka: {brokers: ['127.0.0.1:1']}}]
`, ns, kafka.Addrs(kafkabroker.Plaintext)[0]))
	named := func(namespace, kind string, types ...string) string {
		for i, name := range types {
			types[i] = ns + "." + namespace + "." + kind + "." + name
		}
		return strings.Join(types, ", ")
	}
	tries(t, 1, []string{"--config", config, "--kubeconfig", cluster.Kubeconfig(), "--data-dir", t.TempDir()},
		`sinks        ok       k: logged in at 127.0.0.1:\d+; brokers of the cluster: 1`,
		`sinks        warning  k: topics that depend on the objects can not be looked at: `+named(`\*`, "Deployment", "started", "completed", "added"),
		`sinks        ok       k: a start would create the topics `+named(ns, "ConfigMap", "added", "completed", "deleted", "started")+` with partitions: 6, replicas: 1, .*`,
		`sinks        gap      away: connect to 127.0.0.1:1: .*connection refused`)
}

func TestCheckRefusesFlagsThatMeanNothing(t *testing.T) {
	config := writeConfig(t, "resources: [{resource: pods}]")
	for _, args := range [][]string{
		{"check", "--config", config, "-o", "json"}, {"check", "--config", config, "--connect", "-o", "xml"}, {"check", "--config", config, "--connect", "--timeout", "0s"},
	} {
		if code, _, errs := kbridge(t, args...); code != exitUsage {
			t.Errorf("%q: exit code %d: %s", args, code, errs)
		}
	}
}

func TestCheckConnectEndsWhenItIsInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	config := writeConfig(t, "resources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var out lockedBuffer
	go func() {
		ended <- execute(ctx, []string{"check", "--connect", "--config", config, "--kubeconfig", kubeconfigOf(t, "server: 'http://"+silent.Addr().String()+"'"), "--timeout", "1h", "--data-dir", t.TempDir()}, &out, &out)
	}()
	if c, err := silent.Accept(); err == nil {
		defer c.Close()
	}
	cancel()
	if code := <-ended; code != exitFailed {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
