package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// schema.json and the tables of docs/CONFIG.md are made here from the structs,
// their defaults and the comments of their fields.

var update = flag.Bool("update", false, "write schema.json and the tables of docs/CONFIG.md")

const docsFile = "../docs/CONFIG.md"

func TestGeneratedSchemaFollowsTheStructs(t *testing.T) {
	t.Parallel()
	checkGenerated(t, "schema.json", generateSchema(t))
}

func TestGeneratedTablesOfTheDocsFollowTheStructs(t *testing.T) {
	t.Parallel()
	checkGenerated(t, docsFile, generateDocs(t))
}

func checkGenerated(t *testing.T, file string, want []byte) {
	t.Helper()
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
		t.Errorf("%s is stale: run go generate ./config", file)
	}
}

// fieldComments returns the comments of config.go by type and field: "Sink.Name".
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				comments[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
		return true
	})
	return comments
}

// key is one key of the file.
type key struct {
	field
	path     string // such as sinks[].nats.urls
	of       string // the path of the map that it stands in
	typ      reflect.Type
	def      reflect.Value
	about    string
	children []key
}

// allKeys returns the keys of the struct v, which holds its defaults.
func allKeys(t *testing.T, comments map[string]string, v reflect.Value, path string) []key {
	t.Helper()
	var keys []key
	for i, f := range keysOf(v.Type()) {
		sf := v.Type().Field(i)
		k := key{field: f, path: strings.TrimPrefix(path+"."+f.key, "."), of: path, typ: sf.Type, def: v.Field(i)}
		if k.about = comments[v.Type().Name()+"."+sf.Name]; k.about == "" || f.key == "" {
			t.Fatalf("%s.%s has no comment or no key", v.Type().Name(), sf.Name)
		}
		switch sf.Type.Kind() {
		case reflect.Struct:
			k.children = allKeys(t, comments, v.Field(i), k.path)
		case reflect.Pointer:
			k.children = allKeys(t, comments, fresh(sf.Type.Elem()), k.path)
		case reflect.Slice:
			if sf.Type.Elem().Kind() == reflect.Struct {
				k.children = allKeys(t, comments, fresh(sf.Type.Elem()), k.path+"[]")
			}
		}
		keys = append(keys, k)
	}
	return keys
}

func rootKeys(t *testing.T) []key {
	t.Helper()
	return allKeys(t, fieldComments(t), reflect.ValueOf(Default()), "")
}

func generateSchema(t *testing.T) []byte {
	t.Helper()
	s := mapSchema(rootKeys(t))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "kbridge configuration"
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func mapSchema(keys []key) map[string]any {
	properties, required, kinds := map[string]any{}, []string{}, []any{}
	for _, k := range keys {
		s := typeSchema(k.typ, k.children)
		s["description"] = strings.ReplaceAll(k.about, "`", "")
		if k.nonempty || k.required == "true" {
			if least, ok := map[reflect.Kind]string{reflect.Slice: "minItems", reflect.String: "minLength"}[k.typ.Kind()]; ok {
				s[least] = 1
			}
		}
		if k.required == "" && k.children == nil && !k.def.IsZero() {
			s["default"] = plainValue(k.def)
		}
		switch k.required {
		case "true":
			required = append(required, k.key)
		case "one":
			kinds = append(kinds, map[string]any{"required": []string{k.key}})
		}
		properties[k.key] = s
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	if len(kinds) > 0 {
		s["oneOf"] = kinds
	}
	return s
}

func typeSchema(typ reflect.Type, children []key) map[string]any {
	switch v := reflect.Zero(typ).Interface().(type) {
	case Size:
		return map[string]any{"type": []string{"integer", "string"}, "minimum": 0, "pattern": sizePattern}
	case time.Duration:
		return map[string]any{"anyOf": []any{map[string]any{"type": "string", "pattern": durationPattern}, map[string]any{"const": 0}}}
	case enum:
		return map[string]any{"type": "string", "enum": v.values()}
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Struct:
		return mapSchema(children)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": typeSchema(typ.Elem(), children)}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "string"}
}

// plainValue returns a default as it stands in the file.
func plainValue(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return plainDuration(x)
	case fmt.Stringer:
		return x.String()
	}
	return v.Interface()
}

func plainDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

var docsTable = regexp.MustCompile(`(?s)(<!-- keys of (\S+) -->\n).*?(<!-- end of keys -->)`)

// generateDocs returns docs/CONFIG.md with its tables as they should be.
func generateDocs(t *testing.T) []byte {
	t.Helper()
	tables := map[string]string{}
	var walk func([]key)
	walk = func(keys []key) {
		for _, k := range keys {
			of := k.of
			if of == "" {
				of = "the-file"
			}
			tables[of] += fmt.Sprintf("| `%s` | %s | %s | %s |\n", k.path, typeText(k), defaultText(k), k.about)
			walk(k.children)
		}
	}
	walk(rootKeys(t))
	old, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	out := docsTable.ReplaceAllFunc(old, func(b []byte) []byte {
		m := docsTable.FindSubmatch(b)
		rows, ok := tables[string(m[2])]
		if !ok {
			t.Errorf("%s has a table of %s, which has no keys", docsFile, m[2])
		}
		delete(tables, string(m[2]))
		return fmt.Appendf(nil, "%s\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n%s\n%s", m[1], rows, m[3])
	})
	for of := range tables {
		t.Errorf("%s has no table of %s", docsFile, of)
	}
	return out
}

func typeText(k key) string {
	typ := k.typ
	if typ.Kind() == reflect.Slice {
		if typ.Elem().Kind() == reflect.Struct {
			return "list of maps"
		}
		k.typ = typ.Elem()
		if k.typ.Kind() == reflect.String && !k.typ.Implements(reflect.TypeFor[enum]()) {
			return "list of strings"
		}
		return "list of " + typeText(k)
	}
	switch v := reflect.Zero(typ).Interface().(type) {
	case Size:
		return "size"
	case time.Duration:
		return "duration"
	case enum:
		return "`" + strings.Join(v.values(), "`, `") + "`"
	}
	return map[reflect.Kind]string{
		reflect.Pointer: "map", reflect.Struct: "map", reflect.Bool: "`true`, `false`",
		reflect.Int: "whole number", reflect.Float64: "number", reflect.String: "string",
	}[typ.Kind()]
}

func defaultText(k key) string {
	switch {
	case k.required == "true":
		return "required"
	case k.required == "one":
		return "one of them"
	case k.typ.Kind() == reflect.Struct || k.def.IsZero() && k.typ.Kind() != reflect.Bool:
		return ""
	case k.typ.Kind() == reflect.Slice:
		return strings.ReplaceAll(fmt.Sprintf("`%v`", k.def), " ", ", ")
	}
	return fmt.Sprintf("`%v`", plainValue(k.def))
}
