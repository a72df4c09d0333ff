package config

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAFileThatSetsNothingButAResourceGetsEveryDefault(t *testing.T) {
	t.Parallel()
	got := mustParse(t, "resources: [{resource: pods}]\nsinks: [{name: live, nats: {urls: ['nats://n:4222']}}, {name: out, stdout: {}}]")
	want := &Config{
		Kubernetes: Kubernetes{QPS: 100, Burst: 200, MaxObject: 16 << 20},
		Resources: []Resource{{
			Resource: "pods", Types: []EventType{"added", "updated", "deleted", "synced"},
			OnStart: "resume", DropDefaults: true, Secrets: "redact", Data: "object",
		}},
		Sinks: []Sink{
			{
				Name: "live", Format: "structured", Window: Window{Bytes: 67108864, Events: 65536},
				WhenFull: "fold", FoldAfter: 5 * time.Second, Oversize: "deadLetter", Poison: Poison{100, 30 * time.Minute},
				NATS: &NATS{
					URLs: []string{"nats://n:4222"},
					Stream: Stream{
						Name: "KBRIDGE", Create: true, Subjects: []string{"k8s.>"}, MaxAge: 24 * time.Hour, MaxBytes: 1073741824,
						Replicas: 1, Storage: "file", Discard: "old", Duplicates: 2 * time.Minute,
					},
					Subject:    "k8s.{cluster}.{group}.{resource}.{namespace}.{name}",
					AckTimeout: 10 * time.Second,
				},
			},
			{
				Name: "out", Format: "structured", Window: Window{Bytes: 67108864, Events: 65536},
				WhenFull: "fold", FoldAfter: 5 * time.Second, Oversize: "deadLetter", Poison: Poison{100, 30 * time.Minute}, Stdout: &Stdout{},
			},
		},
		Server: Server{Address: ":8080"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEveryKeyReachesItsField(t *testing.T) {
	t.Parallel()
	got := mustParse(t, `
cluster: prod-eu
kubernetes: {qps: 2.5, burst: 7, maxObject: 2MiB}
resources:
  - group: apps
    version: v1
    resource: deployments
    namespaces: [shop, billing]
    labelSelector: app=checkout
    fieldSelector: metadata.name!=x
    types: [deleted, added]
    resync: 10m
    onStart: snapshot
    drop: [status]
    dropDefaults: false
    secrets: include
    data: change
    name: checkout
    verify: 1h
    sinks: [live]
  - resource: pods
    group: core
    excludeNamespaces: [kube-system]
sinks:
  - name: live
    format: binary
    window: {bytes: 1.5Gi, events: 10}
    foldAfter: 1m
    oversize: trim
    poison: {attempts: 7, after: 1h}
    deadLetter: {file: /dead}
    nats:
      urls: [tls://a:1, 'nats://b']
      stream: {name: S, create: false, subjects: [a, 'b.*'], maxAge: 1d12h, maxBytes: 5, replicas: 5, storage: memory, discard: new, duplicates: 90s}
      subject: 'a.{type}'
      user: me
      passwordFile: /pw
      tls: {ca: /ca, cert: /cert, key: /key, serverName: n, insecureSkipVerify: true}
      ackTimeout: 1m30s
  - name: audit
    whenFull: block
    deadLetter: {subject: dead.audit}
    nats: {urls: [nats://c]}
state: {file: {dir: /state}}
server: {address: '', auth: {tokenFile: /t}, tls: {certFile: /c, keyFile: /k, clientCAFile: /a}, debug: true}
`)
	audit, auditNATS := DefaultSink(), DefaultNATS()
	auditNATS.URLs = []string{"nats://c"}
	audit.Name, audit.WhenFull, audit.DeadLetter.Subject, audit.NATS = "audit", WhenFullBlock, "dead.audit", &auditNATS
	pods := DefaultResource()
	pods.Resource, pods.Group, pods.ExcludeNamespaces = "pods", "core", []string{"kube-system"}
	want := &Config{
		Cluster:    "prod-eu",
		Kubernetes: Kubernetes{QPS: 2.5, Burst: 7, MaxObject: 2 << 20},
		Resources: []Resource{{
			Group: "apps", Version: "v1", Resource: "deployments", Namespaces: []string{"shop", "billing"},
			LabelSelector: "app=checkout", FieldSelector: "metadata.name!=x", Types: []EventType{Deleted, Added},
			Resync: 10 * time.Minute, OnStart: OnStartSnapshot,
			Drop: []string{"status"}, Secrets: SecretsInclude, Data: DataChange, Name: "checkout", Verify: time.Hour, Sinks: []string{"live"},
		}, pods},
		Sinks: []Sink{{
			Name: "live", Format: FormatBinary, Window: Window{Bytes: 3 << 29, Events: 10},
			WhenFull: WhenFullFold, FoldAfter: time.Minute, Oversize: OversizeTrim, Poison: Poison{7, time.Hour}, DeadLetter: DeadLetter{File: "/dead"},
			NATS: &NATS{
				URLs: []string{"tls://a:1", "nats://b"},
				Stream: Stream{
					Name: "S", Subjects: []string{"a", "b.*"}, MaxAge: 36 * time.Hour, MaxBytes: 5,
					Replicas: 5, Storage: StorageMemory, Discard: DiscardNew, Duplicates: 90 * time.Second,
				},
				Subject: "a.{type}", User: "me", PasswordFile: "/pw",
				TLS:        &TLS{CA: "/ca", Cert: "/cert", Key: "/key", ServerName: "n", InsecureSkipVerify: true},
				AckTimeout: 90 * time.Second,
			},
		}, audit},
		State: &State{File: &StateFile{Dir: "/state"}},
		Server: Server{
			Auth: &Auth{TokenFile: "/t"}, TLS: &ServerTLS{CertFile: "/c", KeyFile: "/k", ClientCAFile: "/a"}, Debug: true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestDefaultsAreNotSharedBetweenEntries(t *testing.T) {
	t.Parallel()
	a, b := DefaultResource(), DefaultResource()
	a.Types[0] = "x"
	n, m := DefaultNATS(), DefaultNATS()
	n.Stream.Subjects[0] = "x"
	if b.Types[0] != Added || m.Stream.Subjects[0] != "k8s.>" {
		t.Error("changing one entry's default changed another's")
	}
}

func TestLoadReadsAFileAndNamesItInProblems(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("resources:\n  - {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	want := file + ":2: resources[0].resource: missing, expected a lower-case plural such as deployments, without its group"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Load(file + ".absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file yields %v", err)
	}
}

func TestAConfigThatWasBuiltInGoIsValidatedWithoutLines(t *testing.T) {
	t.Parallel()
	c, r, live, out, n := Default(), DefaultResource(), DefaultSink(), DefaultSink(), DefaultNATS()
	r.Resource, n.URLs = "pods", []string{"nats://n"}
	live.Name, live.NATS, out.Name, out.Stdout = "live", &n, "out", &Stdout{}
	c.Resources, c.Sinks = []Resource{r}, []Sink{live, out}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Sinks[0].WhenFull = WhenFullBlock // with the default of foldAfter, which nobody gave
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Kubernetes.QPS = math.NaN()
	c.Resources = append(c.Resources, r)
	c.Resources[0].Types, c.Resources[0].Secrets, c.Resources[0].Data = []EventType{"gone"}, "hide", "both"
	c.Resources[0].Resync, c.Resources[0].OnStart = -time.Hour, "replay"
	c.Resources[0].Name, c.Resources[0].Verify = "A_b", time.Second
	c.Sinks[0].Window.Bytes, c.Sinks[0].Format = -1, "avro"
	c.Sinks[0].WhenFull, c.Sinks[0].FoldAfter, c.Sinks[0].Oversize, c.Sinks[0].DeadLetter.Subject = "drop", -1, "split", "a..b"
	c.Sinks[1].WhenFull, c.Sinks[1].FoldAfter, c.Sinks[1].DeadLetter = WhenFullBlock, time.Second, DeadLetter{File: "/d", Subject: "dead"}
	c.State = &State{}
	n.Stream = Stream{Name: "S", Create: true, MaxBytes: -1, Replicas: 1, Storage: "disk", Discard: "all", Duplicates: time.Hour}
	c.Sinks[1].Name = "live"
	want := []string{
		`config: kubernetes.qps: NaN, expected a number from 0.001 to 1000000`,
		`config: resources[0].name: "A_b", expected a name of lower-case letters, digits, '-' and '.'`,
		`config: resources[0].types[0]: "gone", expected one of added, updated, deleted, synced`,
		`config: resources[0].resync: -1h0m0s, expected 0 or at least 10s`,
		`config: resources[0].verify: 1s, expected 0 or at least 1m`,
		`config: resources[0].onStart: "replay", expected one of resume, snapshot`,
		`config: resources[0].secrets: "hide", expected one of redact, include`,
		`config: resources[0].data: "both", expected one of object, change`,
		`config: resources[1]: pods for the same sink as resources[0], expected entries of one resource and sink to have lists of namespaces with none in common`,
		`config: sinks[0].format: "avro", expected one of structured, binary`,
		`config: sinks[0].window.bytes: -1, expected at least 1`,
		`config: sinks[0].whenFull: "drop", expected one of fold, block`,
		`config: sinks[0].foldAfter: -1ns, expected 0 or more`,
		`config: sinks[0].oversize: "split", expected one of deadLetter, trim`,
		`config: sinks[0].deadLetter.subject: "a..b", expected a subject such as dead.live (a token is empty)`,
		`config: sinks[0].nats.stream.subjects: none, expected at least one`,
		`config: sinks[0].nats.stream.maxBytes: -1, expected 0 or more`,
		`config: sinks[0].nats.stream.storage: "disk", expected one of file, memory`,
		`config: sinks[0].nats.stream.discard: "all", expected one of old, new`,
		`config: sinks[1].foldAfter: foldAfter beside whenFull: block, expected one of the two`,
		`config: sinks[1].deadLetter.subject: "dead", expected file: only a nats sink has subjects`,
		`config: sinks[1].deadLetter: file and subject, expected one of the two`,
		`config: sinks[1].name: "live", expected a name that no other sink has`,
		`config: state.file: missing, expected it, with the folder that keeps the state: {dir: /var/lib/kbridge}`,
	}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestAResourceKnowsItsNameGroupSinksAndTypes(t *testing.T) {
	t.Parallel()
	r := Resource{Group: "apps", Resource: "deployments", Sinks: []string{"a"}, Types: []EventType{Added}}
	if r.GroupResource() != "deployments.apps" || r.APIGroup() != "apps" || !r.SendsTo("a") || r.SendsTo("b") || !r.SendsType(Added) || r.SendsType(Deleted) {
		t.Errorf("%+v", r)
	}
	r = Resource{Group: "core", Resource: "pods"}
	if r.GroupResource() != "pods" || r.APIGroup() != "" || !r.SendsTo("b") || !r.SendsType(Deleted) {
		t.Errorf("%+v", r)
	}
}

func TestDropAddsToTheDefaultsUnlessTheyAreOff(t *testing.T) {
	t.Parallel()
	r := DefaultResource()
	r.Drop = []string{"a.b"}
	fixed := [][]string{{"metadata", "managedFields"}, {"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"}}
	got, err := r.DropPaths()
	if diff := cmp.Diff(append(fixed, []string{"a", "b"}), got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	r.DropDefaults = false
	got, err = r.DropPaths()
	if diff := cmp.Diff([][]string{{"a", "b"}}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	r.Drop = []string{"a..b"}
	if _, err := r.DropPaths(); err == nil {
		t.Error("a wrong path is no error")
	}
}

func TestAliasesWork(t *testing.T) {
	t.Parallel()
	c := mustParse(t, "resources:\n  - {resource: pods, namespaces: &ns [a, b]}\n  - {resource: services, namespaces: *ns}\n")
	if diff := cmp.Diff([]string{"a", "b"}, c.Resources[1].Namespaces); diff != "" {
		t.Error(diff)
	}
}
