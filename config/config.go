// Package config owns the YAML file: its structs, their defaults, strict
// loading and validation. It says what the file means and what is wrong with
// it; it opens no connection and reads none of the files that the
// configuration names. What a setting does is left to the package it is for.
package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"
)

//go:generate go test -run Generated -update .

// The comments of the fields below are the one source of the descriptions in
// schema.json and of the tables in docs/CONFIG.md; run go generate after a
// change. Tags: `required` marks a key that has no default ("one": exactly one
// of those so marked), `nonempty` a list that may be left out but not be empty.

// Config is the whole file.
type Config struct {
	// The cluster's name, as it stands in every event. Letters, digits, `.`, `_` and `-`. Left out, it is the UID of the namespace kube-system.
	Cluster string `yaml:"cluster"`
	// Limits of the client that talks to the API server.
	Kubernetes Kubernetes `yaml:"kubernetes"`
	// What to watch; one entry a resource.
	Resources []Resource `yaml:"resources" required:"true"`
	// Where events go. Left out, kbridge starts a NATS server of its own on 127.0.0.1 and publishes there.
	Sinks []Sink `yaml:"sinks"`
	// What survives a restart, and where. Left out, nothing does: a start announces everything again, and what was deleted meanwhile goes unnoticed.
	State *State `yaml:"state"`
	// The HTTP server for metrics, health and status.
	Server Server `yaml:"server"`
	// Traces of events, as OpenTelemetry has them. Left out, there are none.
	Tracing *Tracing `yaml:"tracing"`
	// Whether what kbridge would warn of is an error, so that it does not start: a login without TLS, say, or no `state`. The kubeconfig counts too.
	Strict bool `yaml:"strict"`
}

// Kubernetes limits the client that talks to the API server.
type Kubernetes struct {
	// Requests a second that the client may make on average. The default serves 200 resources.
	QPS float64 `yaml:"qps"`
	// Requests that the client may make at once.
	Burst int `yaml:"burst"`
	// How large an object may be, `1MiB` to `16MiB`. A list or a watch that has a larger one fails, and is begun anew.
	MaxObject Size `yaml:"maxObject"`
}

// Resource selects the objects of one resource and says what is sent of them.
type Resource struct {
	// The entry's name, as its events and metrics have it in `entry`: lower-case letters, digits, `-` and `.`. Left out, it is that of the resource, as in `deployments.apps`.
	Name string `yaml:"name"`
	// The API group, such as `apps`. Empty or `core` is the core group (pods, services, configmaps).
	Group string `yaml:"group"`
	// The API version, such as `v1`. Left out, it is the one that the server prefers.
	Version string `yaml:"version"`
	// The resource's name as in a URL: lower-case, plural, without its group.
	Resource string `yaml:"resource" required:"true"`
	// Only objects of these namespaces. Left out, those of all. Each is watched for itself, and needs permission in that namespace alone; of more than 100 it is one watch of all namespaces, where that is allowed.
	Namespaces []string `yaml:"namespaces" nonempty:"true"`
	// No objects of these namespaces. Not together with `namespaces`.
	ExcludeNamespaces []string `yaml:"excludeNamespaces"`
	// Only objects with such labels, as `kubectl get -l` takes it.
	LabelSelector string `yaml:"labelSelector"`
	// Only objects with such fields, as `kubectl get --field-selector` takes it. Which fields work depends on the resource; `metadata.name` and `metadata.namespace` always do.
	FieldSelector string `yaml:"fieldSelector"`
	// Only events of these types.
	Types []EventType `yaml:"types" nonempty:"true"`
	// How often all objects that are known are re-emitted, as a snapshot: `synced` events between two markers. The server is not asked. At least `10s`; `0` is never.
	Resync time.Duration `yaml:"resync"`
	// What a start does for the objects that it knows from `state`: go on where the last run ended, or also re-emit all of them, as a snapshot.
	OnStart OnStart `yaml:"onStart"`
	// Paths of object fields that are left out of events, in addition to `metadata.managedFields` and the last-applied annotation of kubectl.
	Drop []string `yaml:"drop"`
	// Whether those two are dropped. `false` leaves only the paths in `drop`.
	DropDefaults bool `yaml:"dropDefaults"`
	// What becomes of the values in a Secret.
	Secrets Secrets `yaml:"secrets"`
	// What an event's `data` is: the object itself, or a map with the object under `object`.
	Data Data `yaml:"data"`
	// How often the objects that are known are compared with those that the server has. What differs is mended, and a `verified` event tells the outcome. At least `1m`; `0` is never.
	Verify time.Duration `yaml:"verify"`
	// Names of the sinks that get these events. Left out, all do.
	Sinks []string `yaml:"sinks" nonempty:"true"`

	// OneWatch says that one watch of all namespaces serves the list of them. It is no key:
	// what is allowed decides. See ManyNamespaces.
	OneWatch bool `yaml:"-"`
}

// ManyNamespaces is the number of namespaces from which on one watch of all of them costs
// less than one for each: a server has to hold each of them open, and to answer each start.
const ManyNamespaces = 100

// Watches are the namespaces of the entry's watches; the empty one is all namespaces.
func (r *Resource) Watches() []string {
	if len(r.Namespaces) == 0 || r.OneWatch {
		return []string{""}
	}
	return r.Namespaces
}

// Sink is one destination, of exactly one kind.
type Sink struct {
	// A unique name: lower-case letters, digits and `-`.
	Name string `yaml:"name" required:"true"`
	// How a CloudEvent becomes a message: one JSON document, or attributes in headers and the object alone in the body.
	Format Format `yaml:"format"`
	// How much may be under way to this sink, unacknowledged.
	Window Window `yaml:"window"`
	// What happens when the window is full: the sink falls behind by itself, and of each object gets what is true when there is room again; or the watches wait, and with them the other sinks of the same resources.
	WhenFull WhenFull `yaml:"whenFull"`
	// How long the window has to be full before the sink falls behind; until then the watches wait. Only with `whenFull: fold`.
	FoldAfter time.Duration `yaml:"foldAfter"`
	// What becomes of an event that is larger than the broker takes: it is kept as a dead letter, or sent with the object's metadata and without its body, marked `truncated: true`.
	Oversize Oversize `yaml:"oversize"`
	// When an event that fails again and again, while others of this sink are acknowledged, becomes a dead letter.
	Poison Poison `yaml:"poison"`
	// Where events are kept that the sink refuses for good, or that are given up.
	DeadLetter DeadLetter `yaml:"deadLetter"`
	// A NATS JetStream stream.
	NATS *NATS `yaml:"nats" required:"one"`
	// A Kafka cluster.
	Kafka *Kafka `yaml:"kafka" required:"one"`
	// Standard output, one JSON document a line.
	Stdout *Stdout `yaml:"stdout" required:"one"`
}

// Window bounds what a lane holds for its sink.
type Window struct {
	// Bytes of encoded events.
	Bytes Size `yaml:"bytes"`
	// Number of events.
	Events int `yaml:"events"`
}

// Poison says when an event that fails again and again is given up: when it has failed so
// often and for so long.
type Poison struct {
	// How often it has to fail, each time with another event acknowledged since the time before; `0` never gives up.
	Attempts int `yaml:"attempts"`
	// How long it has to fail so.
	After time.Duration `yaml:"after"`
}

// DeadLetter says where refused events are kept: in a file or on a subject.
type DeadLetter struct {
	// The file that keeps refused events, one JSON document a line; no symbolic link. With neither of the two, kbridge picks one beside its state.
	File string `yaml:"file"`
	// The subject that refused events are published to, instead of a file. Only for a `nats` sink; no template. A stream must store it.
	Subject string `yaml:"subject"`
}

// NATS is a sink that publishes to JetStream.
type NATS struct {
	// Servers of one NATS cluster, as `nats://`, `tls://`, `ws://` or `wss://` and host and port.
	URLs []string `yaml:"urls" required:"true"`
	// The stream that stores the events.
	Stream Stream `yaml:"stream"`
	// The template of a message's subject. In braces: `cluster`, `group`, `version`, `resource`, `kind`, `namespace`, `name`, `type`.
	Subject string `yaml:"subject"`
	// Credentials file (JWT and seed) to log in with.
	Creds string `yaml:"creds"`
	// File of the nkey seed to log in with.
	NKey string `yaml:"nkey"`
	// File of the token to log in with.
	TokenFile string `yaml:"tokenFile"`
	// User name to log in with, together with `passwordFile`.
	User string `yaml:"user"`
	// File of the user's password.
	PasswordFile string `yaml:"passwordFile"`
	// TLS settings. Given, even as `{}`, TLS is required whatever the URL says.
	TLS *TLS `yaml:"tls"`
	// How long to wait for the stream's acknowledgement before an event is published again: `100ms` to `24d`.
	AckTimeout time.Duration `yaml:"ackTimeout"`
	// What the subjects of answers begin with, for an account that may not subscribe to `_INBOX.>`: `_INBOX_kbridge`, say.
	InboxPrefix string `yaml:"inboxPrefix"`
	// The JetStream domain that has the stream, where it is another one than that of the servers in `urls`: `hub`, say, of leaf nodes.
	Domain string `yaml:"domain"`
	// What the subjects of JetStream's API begin with, where an account imports it under another name than `$JS.API`. Not beside `domain`.
	APIPrefix string `yaml:"apiPrefix"`
	// How large a message may be, with its headers: a larger event counts as one that the server does not take. `0` is the server's own limit. For leaf nodes, whose hub takes less than they do.
	MaxPayload Size `yaml:"maxPayload"`
}

// Stream describes the JetStream stream. Everything but the name matters only
// where kbridge creates it.
type Stream struct {
	// The stream's name.
	Name string `yaml:"name"`
	// Whether kbridge creates the stream if it is absent. It never changes one that exists.
	Create bool `yaml:"create"`
	// Subjects that a created stream stores.
	Subjects []string `yaml:"subjects" nonempty:"true"`
	// How long a created stream keeps an event; `0` is for ever.
	MaxAge time.Duration `yaml:"maxAge"`
	// How much a created stream keeps; `0` is no limit.
	MaxBytes Size `yaml:"maxBytes"`
	// Copies that a created stream keeps on as many servers, 1 to 5.
	Replicas int `yaml:"replicas"`
	// Where a created stream keeps events.
	Storage Storage `yaml:"storage"`
	// What a created stream does when it is full: forget its oldest events, or refuse new ones.
	Discard Discard `yaml:"discard"`
	// How long a created stream recognises a repeated event.
	Duplicates time.Duration `yaml:"duplicates"`
}

// Kafka is a sink that publishes to a Kafka cluster.
type Kafka struct {
	// Servers of one Kafka cluster to begin with, each as host and port. The others are learnt from them.
	Brokers []string `yaml:"brokers" required:"true"`
	// The template of a record's topic. In braces: `cluster`, `group`, `version`, `resource`, `kind`, `namespace`, `name`, `type`.
	Topic string `yaml:"topic"`
	// Whether kbridge creates a topic that is absent, or waits until it is there. It never changes one that exists.
	TopicPolicy TopicPolicy `yaml:"topicPolicy"`
	// Partitions of a created topic; `0` is the brokers' default. The events of one object share a partition.
	Partitions int `yaml:"partitions"`
	// Copies of a created topic on as many brokers; `0` is the brokers' default.
	Replication int `yaml:"replication"`
	// What a created topic forgets: what is older than `retention`, or all but the last record of each object.
	CleanupPolicy CleanupPolicy `yaml:"cleanupPolicy"`
	// How long a created topic keeps a record that its `cleanupPolicy` deletes; `0` is for ever.
	Retention time.Duration `yaml:"retention"`
	// Whether a `deleted` event is followed by a record with its key and no value, so that a compacted topic forgets the object.
	Tombstones bool `yaml:"tombstones"`
	// Which brokers must have a record before it counts as delivered: all replicas that are in sync, the leader, or none.
	Acks Acks `yaml:"acks"`
	// How batches of records are compressed.
	Compression Compression `yaml:"compression"`
	// How long a record may wait for others to fill its batch, `24d` at most.
	Linger time.Duration `yaml:"linger"`
	// How large a batch may become, before compression.
	BatchBytes Size `yaml:"batchBytes"`
	// TLS settings. Given, even as `{}`, TLS is required.
	TLS *TLS `yaml:"tls"`
	// How to log in.
	SASL *SASL `yaml:"sasl"`
	// How long to wait for the acknowledgement before an event is published again: `100ms` to `24d`.
	AckTimeout time.Duration `yaml:"ackTimeout"`
}

// SASL is how a client logs in to Kafka.
type SASL struct {
	// How the client proves who it is.
	Mechanism Mechanism `yaml:"mechanism" required:"true"`
	// User name, together with `passwordFile`. For `PLAIN` and `SCRAM`.
	User string `yaml:"user"`
	// File of the user's password.
	PasswordFile string `yaml:"passwordFile"`
	// File of the token, for `OAUTHBEARER`.
	TokenFile string `yaml:"tokenFile"`
	// Where `OAUTHBEARER` gets a token instead, with the client credentials grant.
	TokenURL string `yaml:"tokenURL"`
	// The client's id at `tokenURL`.
	ClientID string `yaml:"clientID"`
	// File of the client's secret at `tokenURL`.
	ClientSecretFile string `yaml:"clientSecretFile"`
	// Scopes to ask `tokenURL` for.
	Scopes []string `yaml:"scopes"`
	// The region of the cluster, for `AWS_MSK_IAM`. Left out, that of the environment.
	Region string `yaml:"region"`
}

// TLS is a client's side of TLS. Its files are PEM.
type TLS struct {
	// Authorities that may have signed the server's certificate. Left out, the system's.
	CA string `yaml:"ca"`
	// The client's certificate, together with `key`.
	Cert string `yaml:"cert"`
	// The client's private key.
	Key string `yaml:"key"`
	// The name that the server's certificate must have. Left out, the host that is connected to.
	ServerName string `yaml:"serverName"`
	// Accept any certificate of the server. For tests only.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// Stdout is a sink that prints events. It has no settings.
type Stdout struct{}

// State is what survives a restart.
type State struct {
	// A file in a folder of this machine.
	File *StateFile `yaml:"file" required:"true"`
}

// StateFile keeps the state in a file.
type StateFile struct {
	// The folder, which is made if it is absent. Each kbridge needs one of its own. One that anybody may write to, or that another user owns, is refused; a group's is not.
	Dir string `yaml:"dir" required:"true"`
}

// Server is the HTTP server for metrics, health and status.
type Server struct {
	// Host and port to listen on. Empty turns the server off.
	Address string `yaml:"address"`
	// Who may read it. Left out, everybody who reaches it may, and sees no names of objects unless from the same machine. The probes `/healthz` and `/readyz` are open to all.
	Auth *Auth `yaml:"auth"`
	// The server's side of TLS. Left out, the server speaks HTTP in clear.
	TLS *ServerTLS `yaml:"tls"`
	// Whether Go's profiles (`/debug/pprof/`) are served, on a port of the loopback interface that the log names.
	Debug bool `yaml:"debug"`
}

// Auth says who may read what the HTTP server serves.
type Auth struct {
	// File of a token of at least 16 characters. Who reads has to send it: as `Authorization: Bearer TOKEN`, or as the password that a browser asks for, with any user name.
	TokenFile string `yaml:"tokenFile" required:"true"`
}

// ServerTLS is the HTTP server's side of TLS. Its files are PEM.
type ServerTLS struct {
	// The server's certificate, followed by those of intermediate authorities.
	CertFile string `yaml:"certFile" required:"true"`
	// The certificate's private key.
	KeyFile string `yaml:"keyFile" required:"true"`
	// Authorities of which a client has to have a certificate, for all but the probes. Left out, clients need none.
	ClientCAFile string `yaml:"clientCAFile"`
}

// Tracing is where spans of events go, and of how many.
type Tracing struct {
	// The URL of a collector that takes OTLP over HTTP, such as `http://otel-collector:4318`. What it does not take is dropped, and counted.
	OTLPEndpoint string `yaml:"otlpEndpoint" required:"true"`
	// The share of events that are traced: more than 0, and 1 at most.
	SampleRatio float64 `yaml:"sampleRatio"`
}

// EventType is a type of event, as `types` names it.
type EventType string

// The event types.
const (
	Added   EventType = "added"
	Updated EventType = "updated"
	Deleted EventType = "deleted"
	Synced  EventType = "synced"
)

// OnStart is what a start does for the objects that it knows from the state.
type OnStart string

// The ways to start.
const (
	OnStartResume   OnStart = "resume"
	OnStartSnapshot OnStart = "snapshot"
)

// Secrets says what becomes of the values in a Secret.
type Secrets string

// The treatments of Secrets.
const (
	SecretsRedact  Secrets = "redact"
	SecretsInclude Secrets = "include"
)

// Data says what an event's data is.
type Data string

// The shapes of data.
const (
	DataObject Data = "object"
	DataChange Data = "change"
)

// Format is how a CloudEvent becomes a message.
type Format string

// The formats.
const (
	FormatStructured Format = "structured"
	FormatBinary     Format = "binary"
)

// WhenFull is what happens when a sink's window is full.
type WhenFull string

// The policies of a full window.
const (
	WhenFullFold  WhenFull = "fold"
	WhenFullBlock WhenFull = "block"
)

// Oversize is what becomes of an event that is larger than the broker takes.
type Oversize string

// The treatments of events that are too large.
const (
	OversizeDeadLetter Oversize = "deadLetter"
	OversizeTrim       Oversize = "trim"
)

// Storage is where a stream keeps events.
type Storage string

// The storages.
const (
	StorageFile   Storage = "file"
	StorageMemory Storage = "memory"
)

// Discard is what a full stream does.
type Discard string

// The policies of a full stream.
const (
	DiscardOld Discard = "old"
	DiscardNew Discard = "new"
)

// TopicPolicy is what becomes of a topic that is absent.
type TopicPolicy string

// The policies of absent topics.
const (
	TopicCreate  TopicPolicy = "create"
	TopicRequire TopicPolicy = "require"
)

// CleanupPolicy is what a topic forgets.
type CleanupPolicy string

// The cleanup policies.
const (
	CleanupDelete  CleanupPolicy = "delete"
	CleanupCompact CleanupPolicy = "compact"
	CleanupBoth    CleanupPolicy = "compact,delete"
)

// Acks says which brokers must have a record.
type Acks string

// The acknowledgements.
const (
	AcksAll  Acks = "all"
	AcksOne  Acks = "one"
	AcksNone Acks = "none"
)

// Compression is how batches are compressed.
type Compression string

// The compressions.
const (
	CompressionNone   Compression = "none"
	CompressionGzip   Compression = "gzip"
	CompressionSnappy Compression = "snappy"
	CompressionLZ4    Compression = "lz4"
	CompressionZstd   Compression = "zstd"
)

// Mechanism is a SASL mechanism.
type Mechanism string

// The mechanisms.
const (
	SASLPlain       Mechanism = "PLAIN"
	SASLSCRAM256    Mechanism = "SCRAM-SHA-256"
	SASLSCRAM512    Mechanism = "SCRAM-SHA-512"
	SASLOAuthBearer Mechanism = "OAUTHBEARER"
	SASLMSKIAM      Mechanism = "AWS_MSK_IAM"
)

// enum is a string of which only some values are allowed.
type enum interface{ values() []string }

func (EventType) values() []string { return []string{"added", "updated", "deleted", "synced"} }
func (OnStart) values() []string   { return []string{"resume", "snapshot"} }
func (Secrets) values() []string   { return []string{"redact", "include"} }
func (Data) values() []string      { return []string{"object", "change"} }
func (Format) values() []string    { return []string{"structured", "binary"} }
func (WhenFull) values() []string  { return []string{"fold", "block"} }
func (Oversize) values() []string  { return []string{"deadLetter", "trim"} }
func (Storage) values() []string   { return []string{"file", "memory"} }
func (Discard) values() []string   { return []string{"old", "new"} }

func (TopicPolicy) values() []string   { return []string{"create", "require"} }
func (CleanupPolicy) values() []string { return []string{"delete", "compact", "compact,delete"} }
func (Acks) values() []string          { return []string{"all", "one", "none"} }
func (Compression) values() []string   { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }
func (Mechanism) values() []string {
	return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"}
}

// defaulter is a struct that stands in a list or behind a pointer, so that its
// defaults are set where it appears.
type defaulter interface{ setDefaults() }

func (c *Config) setDefaults() {
	c.Kubernetes = Kubernetes{QPS: 100, Burst: 200, MaxObject: 16 << 20}
	c.Server = Server{Address: ":8080"}
}

func (t *Tracing) setDefaults() { t.SampleRatio = 0.01 }

func (r *Resource) setDefaults() {
	r.Types = []EventType{Added, Updated, Deleted, Synced}
	r.OnStart = OnStartResume
	r.DropDefaults = true
	r.Secrets = SecretsRedact
	r.Data = DataObject
}

func (s *Sink) setDefaults() {
	s.Format = FormatStructured
	s.Window = Window{Bytes: 64 << 20, Events: 65536}
	s.WhenFull = WhenFullFold
	s.FoldAfter = 5 * time.Second
	s.Oversize = OversizeDeadLetter
	s.Poison = Poison{Attempts: 100, After: 30 * time.Minute}
}

func (n *NATS) setDefaults() {
	n.Stream = Stream{
		Name:       "KBRIDGE",
		Create:     true,
		Subjects:   []string{"k8s.>"},
		MaxAge:     24 * time.Hour,
		MaxBytes:   1 << 30,
		Replicas:   1,
		Storage:    StorageFile,
		Discard:    DiscardOld,
		Duplicates: 2 * time.Minute,
	}
	n.Subject = "k8s.{cluster}.{group}.{resource}.{namespace}.{name}"
	n.AckTimeout = 10 * time.Second
}

func (k *Kafka) setDefaults() {
	*k = Kafka{
		Topic:         "k8s.{group}.{resource}",
		TopicPolicy:   TopicCreate,
		Partitions:    6,
		CleanupPolicy: CleanupDelete,
		Retention:     7 * 24 * time.Hour,
		Acks:          AcksAll,
		Compression:   CompressionZstd,
		Linger:        5 * time.Millisecond,
		BatchBytes:    1 << 20,
		AckTimeout:    10 * time.Second,
	}
}

func defaults[T any, P interface {
	*T
	defaulter
}]() T {
	var t T
	P(&t).setDefaults()
	return t
}

// Default returns the configuration of a file that sets nothing. It selects no
// resource and so is not valid by itself.
func Default() Config { return defaults[Config]() }

// DefaultResource returns an entry of resources that sets nothing.
func DefaultResource() Resource { return defaults[Resource]() }

// DefaultSink returns an entry of sinks that sets nothing, not even its kind.
func DefaultSink() Sink { return defaults[Sink]() }

// DefaultNATS returns a nats that sets nothing, not even its URLs.
func DefaultNATS() NATS { return defaults[NATS]() }

// DefaultKafka returns a kafka that sets nothing, not even its brokers.
func DefaultKafka() Kafka { return defaults[Kafka]() }

// Load reads and checks the file. A file that was read and is wrong yields an
// *Error with everything that is wrong with it.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(path, data)
}

// Parse checks the file's content; name is what problems call the file. Its
// error is an *Error.
func Parse(name string, data []byte) (*Config, error) {
	src := &source{lines: map[string]int{"": 1}, wrong: map[string]bool{}}
	c := decode(src, data)
	if c != nil {
		c.validate(src)
	}
	if err := src.err(name); err != nil {
		return nil, err
	}
	return c, nil
}

// Validate reports everything that is wrong with a configuration that did not
// come from Parse, as an *Error without lines.
func (c *Config) Validate() error {
	src := &source{}
	c.validate(src)
	return src.err("config")
}

// APIGroup returns the group as the API server names it: "" for core.
func (r *Resource) APIGroup() string {
	if r.Group == "core" {
		return ""
	}
	return r.Group
}

// GroupResource returns the resource as kubectl names it: "deployments.apps", "pods".
func (r *Resource) GroupResource() string {
	if g := r.APIGroup(); g != "" {
		return r.Resource + "." + g
	}
	return r.Resource
}

// Entry returns the name of the entry, as its events have it.
func (r *Resource) Entry() string { return cmp.Or(r.Name, r.GroupResource()) }

// SendsTo reports whether the sink gets this resource's events.
func (r *Resource) SendsTo(sink string) bool {
	return len(r.Sinks) == 0 || slices.Contains(r.Sinks, sink)
}

// SendsType reports whether events of this type are sent.
func (r *Resource) SendsType(t EventType) bool {
	return len(r.Types) == 0 || slices.Contains(r.Types, t)
}

// IncludesSecrets reports whether this resource's events have the values that
// stand in Secrets.
func (r *Resource) IncludesSecrets() bool {
	return r.APIGroup() == "" && r.Resource == "secrets" && r.Secrets == SecretsInclude
}

// selectsNamespace reports whether objects of the namespace are selected.
func (r *Resource) selectsNamespace(ns string) bool {
	if len(r.Namespaces) > 0 {
		return slices.Contains(r.Namespaces, ns)
	}
	return !slices.Contains(r.ExcludeNamespaces, ns)
}

// DropPaths returns what is dropped from objects, defaults included, as
// ParsePath returns it. It fails only where Validate does.
func (r *Resource) DropPaths() ([][]string, error) {
	var paths [][]string
	if r.DropDefaults {
		paths = append(paths, []string{"metadata", "managedFields"}, []string{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"})
	}
	for _, s := range r.Drop {
		p, err := ParsePath(s)
		if err != nil {
			return nil, fmt.Errorf("parse drop path %q: %w", s, err)
		}
		paths = append(paths, p)
	}
	return paths, nil
}
