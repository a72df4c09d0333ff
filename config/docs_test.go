package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func againstSchema(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return schema.Validate(doc)
}

// documented returns the files of examples/, the YAML of docs/CONFIG.md, and what the docs
// of single sinks say of them.
func documented(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	examples, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(examples) < 2 {
		t.Fatalf("examples are %v, %v", examples, err)
	}
	for _, f := range examples {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[f] = string(b)
	}
	docs, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```$").FindAllStringSubmatch(string(docs), -1) {
		// A block within a list is indented, which YAML does not mind.
		texts["CONFIG.md: "+strings.TrimSpace(m[1])] = m[1]
	}
	for _, kind := range []string{"nats", "kafka"} {
		name := strings.ToUpper(kind) + ".md"
		docs, err := os.ReadFile("../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		// What stands under the sink's key, indented as a block.
		blocks := regexp.MustCompile("(?m)^    "+kind+":\n(      .*\n)+").FindAllString(string(docs), -1)
		if len(blocks) == 0 {
			t.Fatalf("%s has no settings", name)
		}
		for _, block := range blocks {
			texts[name+": "+block] = "resources:\n  - resource: pods\nsinks:\n  - name: live\n" + block
		}
	}
	if len(texts) < 8 {
		t.Fatalf("only %d texts found", len(texts))
	}
	return texts
}

func TestEveryDocumentedFileIsValidAndFitsTheSchema(t *testing.T) {
	t.Parallel()
	schema := compiledSchema(t)
	for name, text := range documented(t) {
		if _, err := Parse(name, []byte(text)); err != nil {
			t.Error(err)
		}
		if err := againstSchema(t, schema, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSchemaRefusesWhatTheDecoderRefuses(t *testing.T) {
	t.Parallel()
	schema := compiledSchema(t)
	pods := "resources: [{resource: pods}]\n"
	for _, text := range []string{
		"{}",
		"resources: []",
		"resources: [{}]",
		"resources: [{resource: pods, filter: x}]",
		"resources: [{resource: pods, namespaces: []}]",
		"resources: [{resource: pods, secrets: hide}]",
		"resources: [{resource: pods, types: [gone]}]",
		"resources: [{resource: pods, dropDefaults: 'yes'}]",
		"resources: [{resource: pods, resync: 600}]",
		"resources: [{resource: pods, onStart: replay}]",
		pods + "state: {}",
		pods + "state: {file: {}}",
		pods + "state: {file: {dir: ''}}",
		pods + "state: {redis: {}}",
		pods + "server: {auth: {}}",
		pods + "server: {auth: {tokenFile: ''}}",
		pods + "server: {tls: {certFile: /c}}",
		pods + "server: {debug: 1}",
		pods + "sinks: [{name: a, stdout: {}, whenFull: drop}]",
		pods + "sinks: [{name: a, stdout: {}, foldAfter: 5}]",
		pods + "sinks: [{name: a, stdout: {}, oversize: split}]",
		pods + "kubernetes: {qps: fast}",
		pods + "sinks: [{name: a}]",
		pods + "sinks: [{name: a, stdout: {}, nats: {urls: [nats://n]}}]",
		pods + "sinks: [{name: a, stdout: {}, window: {bytes: 10 apples}}]",
		pods + "sinks: [{name: a, nats: {urls: []}}]",
		pods + "sinks: [{name: a, nats: {urls: [nats://n], ackTimeout: soon}}]",
		pods + "sinks: [{name: a, nats: {urls: [nats://n], ackTimeout: 10}}]",
	} {
		if err := againstSchema(t, schema, text); err == nil {
			t.Errorf("the schema takes %s", text)
		}
		if _, err := Parse("f", []byte(text)); err == nil {
			t.Errorf("Parse takes %s", text)
		}
	}
	for _, text := range []string{
		pods + "sinks: []",
		pods + "state: {file: {dir: d}}",
		"resources: [{resource: pods, resync: 0}, {resource: nodes, resync: 10s, onStart: resume}]",
		pods + "sinks: [{name: a, stdout: {}, foldAfter: 0}, {name: b, whenFull: block, oversize: trim, deadLetter: {subject: dead}, nats: {urls: [nats://n]}}]",
		pods + "sinks: [{name: a, stdout: {}, window: {bytes: 1000, events: 1}}]",
		pods + "sinks: [{name: a, nats: {urls: [nats://n], stream: {maxAge: 0, maxBytes: 1.5Gi}, tls: {}}}]",
	} {
		if err := againstSchema(t, schema, text); err != nil {
			t.Errorf("the schema refuses %s: %v", text, err)
		}
		if _, err := Parse("f", []byte(text)); err != nil {
			t.Errorf("Parse refuses %s: %v", text, err)
		}
	}
}
