package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// values.schema.json and the table of the chart's README.md are made here from values.yaml and its comments, and from
// the schema of kbridge's own configuration.

func TestGeneratedSchemaOfTheValuesIsCurrent(t *testing.T) {
	checkGenerated(t, "values.schema.json", valuesSchema(t, values(t)))
}

var valuesTable = regexp.MustCompile(`(?s)(<!-- values -->\n).*(<!-- end of values -->)`)

func TestGeneratedTableOfTheValuesIsCurrent(t *testing.T) {
	old, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !valuesTable.Match(old) {
		t.Fatal("README.md has no place for the table")
	}
	var table bytes.Buffer
	table.WriteString("\n| value | type | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, v := range values(t) {
		v.rows(&table)
	}
	table.WriteString("\n")
	checkGenerated(t, "README.md", valuesTable.ReplaceAllFunc(old, func(b []byte) []byte {
		m := valuesTable.FindSubmatch(b)
		return bytes.Join([][]byte{m[1], table.Bytes(), m[2]}, nil)
	}))
}

func checkGenerated(t *testing.T, name string, want []byte) {
	t.Helper()
	file := filepath.Join(folder, name)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go generate ./test/chart", name)
	}
}

// value is one key of values.yaml.
type value struct {
	path     string
	about    string
	hints    map[string]string // the lines with an @
	node     *yaml.Node
	children []value
}

func values(t *testing.T) []value {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return children(t, doc.Content[0], "")
}

func children(t *testing.T, node *yaml.Node, path string) []value {
	t.Helper()
	var list []value
	for i := 0; i < len(node.Content); i += 2 {
		key, val := node.Content[i], node.Content[i+1]
		v := value{path: strings.TrimPrefix(path+"."+key.Value, "."), node: val, hints: map[string]string{}}
		comment := key.HeadComment
		// The comment of the file comes before that of its first key.
		if parts := strings.Split(comment, "\n\n"); len(parts) > 1 {
			comment = parts[len(parts)-1]
		}
		var about []string
		for line := range strings.SplitSeq(comment, "\n") {
			line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
			if hint, ok := strings.CutPrefix(line, "@"); ok {
				name, rest, _ := strings.Cut(hint, " ")
				v.hints[name] = rest
			} else {
				about = append(about, line)
			}
		}
		v.about = strings.TrimSpace(strings.Join(about, " "))
		if _, open := v.hints["open"]; val.Kind == yaml.MappingNode && !open && v.path != "config" {
			v.children = children(t, val, v.path)
		} else if v.about == "" {
			t.Errorf("values.yaml: %s has no comment", v.path)
		}
		list = append(list, v)
	}
	return list
}

func (v value) key() string { return v.path[strings.LastIndexByte(v.path, '.')+1:] }

func (v value) list(hint string) []string {
	var words []string
	for word := range strings.SplitSeq(v.hints[hint], ",") {
		words = append(words, strings.TrimSpace(word))
	}
	return words
}

// kind is the type as JSON Schema names it.
func (v value) kind(t *testing.T) string {
	switch {
	case v.node.Kind == yaml.MappingNode:
		return "object"
	case v.node.Kind == yaml.SequenceNode:
		return "array"
	case v.node.Tag == "!!bool":
		return "boolean"
	case v.node.Tag == "!!int":
		return "integer"
	case v.node.Tag == "!!str":
		return "string"
	}
	t.Fatalf("values.yaml: %s is %s, and of no type", v.path, v.node.Tag)
	return ""
}

func (v value) rows(out *bytes.Buffer) {
	if v.children != nil {
		for _, c := range v.children {
			c.rows(out)
		}
		return
	}
	typ := map[yaml.Kind]string{yaml.MappingNode: "map", yaml.SequenceNode: "list"}[v.node.Kind]
	switch {
	case typ != "":
	case v.hints["enum"] != "":
		typ = ""
		for _, word := range v.list("enum") {
			if word != "" {
				typ += ", `" + word + "`"
			}
		}
		typ = strings.TrimPrefix(typ, ", ")
	case v.hints["type"] != "":
		typ = strings.Join(v.list("type"), " or ")
	default:
		typ = map[string]string{"!!bool": "`true`, `false`", "!!int": "whole number", "!!str": "string"}[v.node.Tag]
	}
	def := ""
	switch {
	case v.path == "config":
		def = "see values.yaml"
	case v.node.Kind == yaml.ScalarNode && v.node.Value != "":
		def = "`" + v.node.Value + "`"
	case len(v.node.Content) > 0:
		def = "`" + flow(v.node) + "`"
	}
	fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", v.path, typ, def, v.about)
}

// flow writes a map or a list on one line.
func flow(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			parts = append(parts, n.Content[i].Value+": "+flow(n.Content[i+1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case yaml.SequenceNode:
		for _, c := range n.Content {
			parts = append(parts, flow(c))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if n.Style == yaml.DoubleQuotedStyle {
		return strconv.Quote(n.Value)
	}
	return n.Value
}

func valuesSchema(t *testing.T, list []value) []byte {
	t.Helper()
	s := objectSchema(t, list)
	s["$schema"] = "http://json-schema.org/draft-07/schema#" // what every Helm knows
	s["title"] = "Values of the chart kbridge"
	// What a chart that has this one as a part hands to all its parts.
	s["properties"].(map[string]any)["global"] = map[string]any{"type": "object"}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func objectSchema(t *testing.T, list []value) map[string]any {
	properties := map[string]any{}
	for _, v := range list {
		properties[v.key()] = v.schema(t)
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

func (v value) schema(t *testing.T) map[string]any {
	if v.path == "config" {
		return configSchema(t, v.about)
	}
	if v.children != nil {
		return objectSchema(t, v.children)
	}
	s := map[string]any{"type": v.kind(t), "description": strings.ReplaceAll(v.about, "`", "")}
	for hint, arg := range v.hints {
		switch hint {
		case "open":
		case "enum":
			s["enum"] = v.list(hint)
		case "type":
			s["type"] = v.list(hint)
		case "min", "max":
			n, err := strconv.Atoi(arg)
			if err != nil {
				t.Fatalf("values.yaml: %s: @%s %s: %v", v.path, hint, arg, err)
			}
			s[map[string]string{"min": "minimum", "max": "maximum"}[hint]] = n
		case "items":
			s["items"] = itemSchema(arg)
		default:
			t.Fatalf("values.yaml: %s: there is no @%s", v.path, hint)
		}
	}
	return s
}

func itemSchema(kind string) map[string]any {
	if kind != "credential" {
		return map[string]any{"type": kind}
	}
	text := func(about string) map[string]any {
		return map[string]any{"type": "string", "minLength": 1, "description": about}
	}
	return map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"secret", "mountPath"},
		"properties": map[string]any{
			"secret":    text("The name of the Secret."),
			"mountPath": text("The folder that gets its keys as files."),
			"items":     map[string]any{"type": "array", "description": "Only these of its keys, as a Secret's volume has them.", "items": map[string]any{"type": "object"}},
		},
	}
}

// configSchema is config/schema.json, within the schema of the values.
func configSchema(t *testing.T, about string) map[string]any {
	data, err := os.ReadFile("../../config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	delete(s, "$schema")
	delete(s, "title")
	s["description"] = strings.ReplaceAll(about, "`", "")
	return s
}
