package config

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// validator checks what a Config means, after its form was found right or its
// wrong parts were noted.
type validator struct {
	*source
	c *Config
}

func (c *Config) validate(src *source) {
	v := validator{src, c}
	if c.Cluster != "" && !clusterName.MatchString(c.Cluster) {
		v.bad("cluster", show(c.Cluster), "letters, digits, '.', '_' and '-'")
	}
	if q := c.Kubernetes.QPS; !(q >= minQPS && q <= maxQPS) {
		v.bad("kubernetes.qps", strconv.FormatFloat(q, 'g', -1, 64), "a number from 0.001 to 1000000")
	}
	v.atLeast("kubernetes.burst", c.Kubernetes.Burst, 1)
	if m := c.Kubernetes.MaxObject; m < minObject || m > maxObject {
		v.bad("kubernetes.maxObject", m.String(), fmt.Sprintf("%s to %s", Size(minObject), Size(maxObject)))
	}
	if len(c.Resources) == 0 {
		v.bad("resources", "none", "at least one")
	}
	for i := range c.Resources {
		v.resource(item("resources", i), &c.Resources[i])
	}
	v.overlaps()
	for i := range c.Sinks {
		v.sink(item("sinks", i), &c.Sinks[i])
	}
	v.sinksTogether()
	if c.State != nil {
		v.state("state", c.State)
	}
	v.server("server", &c.Server)
	if c.Tracing != nil {
		v.tracing("tracing", c.Tracing)
	}
	if c.Strict && len(v.problems) == 0 {
		for _, w := range c.warnings() {
			v.add(w.path, w.text, "nothing to warn of, as strict is true")
		}
	}
}

// clusterName keeps a cluster whole in a URI and in a subject's token.
var clusterName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// The client takes a float32, of which 0 is its own default and infinity none.
const (
	minQPS = 0.001
	maxQPS = 1_000_000
)

// An object that etcd takes has 1.5 MiB at most, unless it is told otherwise; client-go
// takes no larger frame of a watch.
const (
	minObject = 1 << 20
	maxObject = 16 << 20
)

// minResync keeps one snapshot of a large resource from running into the next.
const minResync = 10 * time.Second

// minVerify spares the API server: each comparison lists the metadata of all objects.
const minVerify = time.Minute

// bad notes a problem unless decoding noted one there.
func (v validator) bad(path, value, want string) {
	if !v.rejected(path) {
		v.add(path, value, want)
	}
}

func (v validator) atLeast(path string, n, least int) {
	if n < least {
		v.bad(path, strconv.Itoa(n), fmt.Sprintf("at least %d", least))
	}
}

func (v validator) resource(path string, r *Resource) {
	at := func(key string) string { return path + "." + key }
	if r.Name != "" && len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
		v.bad(at("name"), show(r.Name), "a name of lower-case letters, digits, '-' and '.'")
	}
	if r.Group != "" && len(validation.IsDNS1123Subdomain(r.Group)) > 0 {
		v.bad(at("group"), show(r.Group), "the name of an API group, such as apps, without a version")
	}
	if r.Version != "" && len(validation.IsDNS1035Label(r.Version)) > 0 {
		v.bad(at("version"), show(r.Version), "an API version such as v1 or v1beta1")
	}
	if len(validation.IsDNS1035Label(r.Resource)) > 0 {
		v.bad(at("resource"), shown(r.Resource), wantResource(r.Resource))
	}
	v.namespaces(at("namespaces"), r.Namespaces)
	v.namespaces(at("excludeNamespaces"), r.ExcludeNamespaces)
	if len(r.Namespaces) > 0 && len(r.ExcludeNamespaces) > 0 {
		v.bad(at("excludeNamespaces"), "excludeNamespaces beside namespaces", "one of the two")
	}
	if _, err := labels.Parse(r.LabelSelector); err != nil {
		v.bad(at("labelSelector"), show(r.LabelSelector), fmt.Sprintf("a label selector such as app=checkout,tier!=test (%v)", err))
	}
	if _, err := fields.ParseSelector(r.FieldSelector); err != nil {
		v.bad(at("fieldSelector"), show(r.FieldSelector), "a field selector such as metadata.name=checkout")
	}
	for i, t := range r.Types {
		v.enum(item(at("types"), i), string(t), t)
	}
	v.unique(at("types"), strs(r.Types))
	if r.Resync != 0 && r.Resync < minResync {
		v.bad(at("resync"), r.Resync.String(), "0 or at least 10s")
	}
	if r.Verify != 0 && r.Verify < minVerify {
		v.bad(at("verify"), r.Verify.String(), "0 or at least 1m")
	}
	v.enum(at("onStart"), string(r.OnStart), r.OnStart)
	for i, s := range r.Drop {
		p, err := ParsePath(s)
		if err != nil {
			v.bad(item(at("drop"), i), show(s), fmt.Sprintf("a path such as metadata.labels[example.com/team] (%v)", err))
		} else if isNeeded(p) {
			v.bad(item(at("drop"), i), show(s), "a field that events can do without")
		}
	}
	v.enum(at("secrets"), string(r.Secrets), r.Secrets)
	v.enum(at("data"), string(r.Data), r.Data)
	for i, name := range r.Sinks {
		if !slices.ContainsFunc(v.c.Sinks, func(s Sink) bool { return s.Name == name }) {
			v.bad(item(at("sinks"), i), show(name), "the name of an entry of sinks")
		}
	}
	v.unique(at("sinks"), r.Sinks)
}

func (v validator) namespaces(path string, names []string) {
	for i, ns := range names {
		if len(validation.IsDNS1123Label(ns)) > 0 {
			v.bad(item(path, i), show(ns), "a namespace: at most 63 lower-case letters, digits and '-'")
		}
	}
	v.unique(path, names)
}

func (v validator) unique(path string, list []string) {
	first := map[string]int{}
	for i, s := range list {
		if j, ok := first[s]; ok {
			v.bad(item(path, i), show(s), fmt.Sprintf("it once, and it is %s already", item(path, j)))
		} else {
			first[s] = i
		}
	}
}

// enum checks a value that did not pass the decoder.
func (v validator) enum(path, s string, e enum) {
	if !slices.Contains(e.values(), s) {
		v.bad(path, show(s), oneOf(e.values()))
	}
}

// overlaps notes entries that would send one object's events to one sink twice.
// Only namespace lists prove that two entries have no object in common; the
// version does not tell objects apart.
func (v validator) overlaps() {
	earlier := map[string][]int{}
	for i := range v.c.Resources {
		r, path := &v.c.Resources[i], item("resources", i)
		if v.rejectedIn(path) {
			continue
		}
		for _, j := range earlier[r.GroupResource()] {
			if o := &v.c.Resources[j]; sharesSink(r, o) && sharesNamespace(r, o) {
				other := item("resources", j)
				if line := v.line(other); line > 0 {
					other = fmt.Sprintf("%s (line %d)", other, line)
				}
				v.add(path, r.GroupResource()+" for the same sink as "+other, "entries of one resource and sink to have lists of namespaces with none in common")
				break
			}
		}
		earlier[r.GroupResource()] = append(earlier[r.GroupResource()], i)
	}
}

func sharesSink(a, b *Resource) bool {
	return len(a.Sinks) == 0 || len(b.Sinks) == 0 || slices.ContainsFunc(a.Sinks, b.SendsTo)
}

func sharesNamespace(a, b *Resource) bool {
	switch {
	case len(a.Namespaces) > 0:
		return slices.ContainsFunc(a.Namespaces, b.selectsNamespace)
	case len(b.Namespaces) > 0:
		return slices.ContainsFunc(b.Namespaces, a.selectsNamespace)
	}
	return true
}

func (v validator) sink(path string, s *Sink) {
	at := func(key string) string { return path + "." + key }
	if len(validation.IsDNS1123Label(s.Name)) > 0 {
		v.bad(at("name"), shown(s.Name), "a name of at most 63 lower-case letters, digits and '-'")
	}
	v.enum(at("format"), string(s.Format), s.Format)
	if s.Window.Bytes < 1 {
		v.bad(at("window.bytes"), s.Window.Bytes.String(), "at least 1")
	}
	v.atLeast(at("window.events"), s.Window.Events, 1)
	v.enum(at("whenFull"), string(s.WhenFull), s.WhenFull)
	switch _, given := v.lines[at("foldAfter")]; {
	case s.FoldAfter < 0:
		v.bad(at("foldAfter"), s.FoldAfter.String(), "0 or more")
	case s.WhenFull == WhenFullBlock && (given || s.FoldAfter != DefaultSink().FoldAfter):
		// Without a file, what is not the default was given.
		v.bad(at("foldAfter"), "foldAfter beside whenFull: block", "one of the two")
	}
	v.enum(at("oversize"), string(s.Oversize), s.Oversize)
	v.between(at("poison.attempts"), s.Poison.Attempts, 0, math.MaxInt32)
	if s.Poison.After < 0 {
		v.bad(at("poison.after"), s.Poison.After.String(), "0 or more")
	}
	v.deadLetter(at("deadLetter"), s)
	var kinds []string
	for _, kind := range []struct {
		key   string
		given bool
	}{{"nats", s.NATS != nil}, {"kafka", s.Kafka != nil}, {"stdout", s.Stdout != nil}} {
		if kind.given {
			kinds = append(kinds, kind.key)
		}
	}
	switch {
	case len(kinds) > 1:
		v.bad(path, strings.Join(kinds, " and ")+" in one entry", "one kind of sink, the other in an entry of its own")
	case len(kinds) == 0 && !v.rejectedIn(path):
		v.bad(path, "no kind of sink", "nats, kafka or stdout")
	}
	if s.Stdout != nil && s.Format == FormatBinary {
		v.bad(at("format"), show(string(s.Format)), "structured: standard output has no headers")
	}
	if s.NATS != nil {
		v.nats(at("nats"), s.NATS)
	}
	if s.Kafka != nil {
		v.kafka(at("kafka"), s.Kafka)
	}
}

func (v validator) deadLetter(path string, s *Sink) {
	d := &s.DeadLetter
	if _, given := v.lines[path+".subject"]; given || d.Subject != "" {
		if err := checkSubject(d.Subject); err != nil {
			v.bad(path+".subject", show(d.Subject), fmt.Sprintf("a subject such as dead.%s (%v)", cmp.Or(s.Name, "live"), err))
		} else if s.NATS == nil && (s.Stdout != nil || s.Kafka != nil) {
			v.bad(path+".subject", show(d.Subject), "file: only a nats sink has subjects")
		}
	}
	if d.File != "" && d.Subject != "" {
		v.bad(path, "file and subject", "one of the two")
	}
}

// sinksTogether checks what one sink has to leave to another.
func (v validator) sinksTogether() {
	names, files, stdout := map[string]string{}, map[string]string{}, ""
	for i, s := range v.c.Sinks {
		path := item("sinks", i)
		once := func(first map[string]string, key, value, want string) {
			at := path + "." + key
			if line := v.line(first[value]); first[value] != "" && line > 0 {
				v.bad(at, show(value), fmt.Sprintf("%s (line %d has it)", want, line))
			} else if first[value] != "" {
				v.bad(at, show(value), want)
			} else if value != "" {
				first[value] = at
			}
		}
		once(names, "name", s.Name, "a name that no other sink has")
		if s.DeadLetter.File != "" {
			once(files, "deadLetter.file", filepath.Clean(s.DeadLetter.File), "a file that no other sink has")
		}
		if s.Stdout != nil && stdout != "" {
			v.bad(path+".stdout", "a second stdout sink", "one, and "+stdout+" is one already")
		} else if s.Stdout != nil {
			stdout = path
		}
	}
}

func (v validator) state(path string, s *State) {
	switch {
	case s.File == nil && !v.rejectedIn(path):
		v.bad(path+".file", "missing", "it, with the folder that keeps the state: {dir: /var/lib/kbridge}")
	case s.File != nil && s.File.Dir == "":
		v.bad(path+".file.dir", "missing", "a folder such as /var/lib/kbridge")
	}
}

func (v validator) server(path string, s *Server) {
	if s.Address != "" {
		if _, port, err := net.SplitHostPort(s.Address); err != nil || !isPort(port) {
			v.bad(path+".address", show(s.Address), "host:port, :port or an empty string")
		}
	}
	file := func(key, name, like string) {
		if name == "" {
			v.bad(path+"."+key, "missing", "a file such as "+like)
		}
	}
	if s.Auth != nil {
		file("auth.tokenFile", s.Auth.TokenFile, "/etc/kbridge/http/token")
	}
	if s.TLS != nil {
		file("tls.certFile", s.TLS.CertFile, "/etc/kbridge/http/tls.crt")
		file("tls.keyFile", s.TLS.KeyFile, "/etc/kbridge/http/tls.key")
	}
}

// together checks two keys that need each other.
func (v validator) together(path, a, aValue, b, bValue string) {
	if aValue != "" && bValue == "" {
		v.bad(path+"."+b, "missing", "a file, as there is "+a)
	} else if aValue == "" && bValue != "" {
		v.bad(path+"."+a, "missing", "it, as there is "+b)
	}
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

func strs[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}
