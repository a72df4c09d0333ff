package test

import (
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// values are random ones that are in objects, each in one object, and how they are looked
// for: packing may replace a few bytes of a text that come by chance elsewhere, so each
// piece of a value, plain and in base64, gives it away.
type values struct {
	t      *testing.T
	pieces map[string]int // by their text, of which value
	count  int
}

// piece is the length of what no other text has by chance.
const piece = 12

func newValues(t *testing.T) *values { return &values{t: t, pieces: map[string]int{}} }

// add returns another value.
func (v *values) add() string {
	text := incompressible(v.t, 48)
	for _, form := range []string{text, base64.StdEncoding.EncodeToString([]byte(text))} {
		for at := range len(form) - piece {
			v.pieces[form[at:at+piece]] = v.count
		}
	}
	v.count++
	return text
}

// in returns how many of the values are in the text.
func (v *values) in(text []byte) int {
	found := map[int]bool{}
	for at := range max(0, len(text)-piece) {
		if n, is := v.pieces[string(text[at:at+piece])]; is {
			found[n] = true
		}
	}
	return len(found)
}

// onDisk returns how many of the values are in any file of the folder: those that have a
// name, and those that the process has open and that have none.
func (v *values) onDisk(dir string, p *process) (most int) {
	v.t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.child.PID()))
	if err != nil {
		v.t.Fatal(err)
	}
	nameless := 0
	for _, fd := range files {
		to, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(to, dir) || !strings.HasSuffix(to, "(deleted)") {
			continue
		}
		nameless++
		most = max(most, v.inFile(fd))
	}
	if p.child.Running() && nameless == 0 {
		v.t.Error("the file with the bodies of the index is not found")
	}
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			most = max(most, v.inFile(path))
		}
		return err
	}); err != nil {
		v.t.Fatal(err)
	}
	return most
}

func (v *values) inFile(path string) int {
	v.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		v.t.Fatal(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.in(content)
}

// perResource is enough for a dictionary, with as many bodies that it packs.
const perResource = 64

// fill makes objects, or changes them, each of which has one of the values.
func fill(t *testing.T, cluster *testcluster.Cluster, v *values, gvr schema.GroupVersionResource, apiVersion, kind, ns string) {
	t.Helper()
	in := cluster.Dynamic(t).Resource(gvr).Namespace(ns)
	for i := range perResource {
		value := v.add()
		if gvr == secrets {
			value = base64.StdEncoding.EncodeToString([]byte(value))
		}
		o := object(apiVersion, kind, ns, fmt.Sprint("o", i), map[string]any{"data": map[string]any{"password": value, "user": "YWRtaW4="}})
		eventually(t, "an object is stored", func() error { // what was just defined is not served yet
			_, err := in.Create(t.Context(), o, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				_, err = in.Update(t.Context(), o, metav1.UpdateOptions{})
			}
			return err
		})
	}
}

func TestValuesThatAreNotAllowedAnyMoreLeaveTheState(t *testing.T) {
	secretsOf := func(mode string, namespaces ...string) string {
		return fmt.Sprintf("\n  - {resource: secrets, namespaces: [%s], secrets: %s}", strings.Join(namespaces, ", "), mode)
	}
	const others = "\n  - {resource: namespaces}"
	for name, c := range map[string]struct {
		kind          string
		before, after func(ns, other string) string
	}{
		"secrets are redacted": {"Secret",
			func(ns, _ string) string { return secretsOf("include", ns) },
			func(ns, _ string) string { return secretsOf("redact", ns) }},
		"the resource is taken out": {"Secret",
			func(ns, _ string) string { return secretsOf("include", ns) + others },
			func(string, string) string { return others }},
		"a namespace is taken out": {"Secret",
			func(ns, other string) string { return secretsOf("include", ns, other) },
			func(_, other string) string { return secretsOf("include", other) }},
		"a path is dropped": {"ConfigMap",
			func(ns, _ string) string { return fmt.Sprintf("\n  - {resource: configmaps, namespaces: [%s]}", ns) },
			func(ns, _ string) string {
				return fmt.Sprintf("\n  - {resource: configmaps, namespaces: [%s], drop: [data.password]}", ns)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := testcluster.Shared(t)
			server := natsserver.New(t, "")
			ns, other := cluster.CreateNamespace(t), cluster.CreateNamespace(t)
			gvr := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(c.kind) + "s"}
			v, dir := newValues(t), t.TempDir()
			fill(t, cluster, newValues(t), gvr, "v1", c.kind, other) // which may stay
			fill(t, cluster, v, gvr, "v1", c.kind, ns)
			rest := stateIn(dir) + rawSink(server, "")
			p := start(t, cluster, "\ncluster: test\nresources:"+c.before(ns, other)+rest)
			p.ready()
			p.stored()
			fill(t, cluster, v, gvr, "v1", c.kind, ns) // what was before is where nothing refers to it
			p.stored()

			// What a sink that is away is behind on has bodies of its own.
			server.Stop()
			in := cluster.Dynamic(t).Resource(gvr).Namespace(ns)
			for i := range perResource / 2 {
				if err := in.Delete(t.Context(), fmt.Sprint("o", i), metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the deletions wait for the broker", func() error {
				if n := p.metric("kbridge_window_events") + p.metric("kbridge_behind_objects"); n < perResource/2 {
					return fmt.Errorf("%v events", n)
				}
				return nil
			})
			p.stored()
			if n := v.onDisk(dir, p); n < perResource {
				t.Fatalf("%d of %d values are found while they may be there: they are looked for in vain", n, v.count)
			}
			p.kill()

			p.configuration = "\ncluster: test\nresources:" + c.after(ns, other) + rest
			p.again()
			eventually(t, "/readyz has nothing to say but that the broker is away", func() error {
				body, _ := p.get("/readyz")
				if strings.Contains(body, "sink live") && strings.Count(strings.TrimSpace(body), "\n") == 0 {
					return nil
				}
				return fmt.Errorf("it says %s", body)
			})
			if n := v.onDisk(dir, p); n > 0 {
				t.Errorf("%d of %d values are in the folder", n, v.count)
			}
			if n := p.metric("kbridge_state_residue_seconds"); n != 0 {
				t.Errorf("kbridge_state_residue_seconds is %v", n)
			}
			server.Start()
			p.ready()
			p.stored()
			if n := v.onDisk(dir, p); n > 0 {
				t.Errorf("%d of %d values are in the folder when all is delivered", n, v.count)
			}
			p.stop()
			if n := v.onDisk(dir, p); n > 0 {
				t.Errorf("%d of %d values are in the folder after a stop", n, v.count)
			}
		})
	}
}

func TestReadyzSaysWhyValuesOfEarlierRulesAreStillInTheState(t *testing.T) {
	cluster := testcluster.Shared(t)
	server := natsserver.New(t, "")
	ns := cluster.CreateNamespace(t)
	const group, plural = "scrub.kbridge.dev", "gadgets"
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	gvr := cluster.ApplyCRD(t, group, plural, "Gadget", testcluster.Namespaced)
	v, dir := newValues(t), t.TempDir()
	fill(t, cluster, v, gvr, group+"/v1", "Gadget", ns)
	rest := stateIn(dir) + rawSink(server, "")
	entry := fmt.Sprintf("\ncluster: test\nresources:\n  - {group: %s, resource: %s, namespaces: [%s]", group, plural, ns)
	p := start(t, cluster, entry+"}"+rest)
	p.ready()
	p.stored()
	p.stop()

	// While the resource is not there, what is stored of it can not be stored anew.
	client := cluster.Dynamic(t).Resource(crds)
	if err := client.Delete(t.Context(), plural+"."+group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the custom resource is gone", func() error {
		if _, err := client.Get(t.Context(), plural+"."+group, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there, or: %w", err)
		}
		return nil
	})
	p.configuration = entry + ", drop: [data.password]}" + rest
	p.again()
	eventually(t, "/readyz says what keeps them there", func() error {
		body, err := p.get("/readyz")
		if err == nil || !strings.Contains(body, "values of earlier rules") || !strings.Contains(body, plural+"."+group) {
			return fmt.Errorf("%w: %s", err, body)
		}
		return nil
	})
	if n := v.onDisk(dir, p); n < perResource/2 {
		t.Errorf("%d of %d values are found: they are looked for in vain", n, v.count)
	}
	if n := p.metric("kbridge_state_residue_seconds"); n <= 0 {
		t.Errorf("kbridge_state_residue_seconds is %v", n)
	}
	cluster.ApplyCRD(t, group, plural, "Gadget", testcluster.Namespaced)
	p.ready()
	if n := v.onDisk(dir, p); n > 0 {
		t.Errorf("%d of %d values are in the folder", n, v.count)
	}
	if said := p.logs.String(); !strings.Contains(said, "the state has no values of earlier rules any more") {
		t.Errorf("kbridge said\n%s", said)
	}
	p.stop()
}
