package scan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var defaultDrop = [][]string{
	{"metadata", "managedFields"},
	{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
}

func sample(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.TrimSpace(b)
}

func rules(tb testing.TB, o Options) *Rules {
	tb.Helper()
	r, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// member is one member of an object. An object is a slice of them, so that keys may be there twice.
type member struct {
	key   string
	value any
}

// parse reads one JSON document by the tokens of encoding/json, and keeps duplicate keys and numbers as they are.
func parse(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := parseValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return v, nil
}

func parseValue(d *json.Decoder) (any, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		object := []member{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			object = append(object, member{key.(string), value})
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for d.More() {
			value, err := parseValue(d)
			if err != nil {
				return nil, err
			}
			array = append(array, value)
		}
		_, err = d.Token()
		return array, err
	}
	return tok, nil
}

// decode reads one JSON document as encoding/json does, numbers kept as they are written.
func decode(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return v, nil
}

// collapse turns what parse returns into what decode returns: of two equal keys the last one counts.
func collapse(v any) any {
	switch v := v.(type) {
	case []member:
		object := make(map[string]any, len(v))
		for _, m := range v {
			object[m.key] = collapse(m.value)
		}
		return object
	case []any:
		for i := range v {
			v[i] = collapse(v[i])
		}
	}
	return v
}

// model is what Rules do, said without offsets. It changes v, which parse returned.
func model(v any, o Options) map[string]any {
	var mustGo func(member) bool
	if o.RedactSecret {
		mustGo = copiesIn(v.([]member))
	}
	for _, path := range o.Drop {
		v = remove(v, path)
	}
	if o.RedactSecret {
		top := v.([]member)
		for i := range top {
			switch m := &top[i]; m.key {
			case "data":
				m.value = redacted(m.value, "cmVkYWN0ZWQ=")
			case "stringData":
				m.value = redacted(m.value, "redacted")
			case "metadata":
				metadata, _ := m.value.([]member)
				for i := range metadata {
					if annotations, is := metadata[i].value.([]member); is && metadata[i].key == "annotations" {
						metadata[i].value = slices.DeleteFunc(annotations, mustGo)
					}
				}
			}
		}
	}
	object := collapse(v).(map[string]any)
	for key, value := range map[string]string{"apiVersion": o.APIVersion, "kind": o.Kind} {
		if _, there := object[key]; !there && value != "" {
			object[key] = value
		}
	}
	return object
}

func redacted(v any, with string) any {
	switch v := v.(type) {
	case nil:
		return nil
	case []member:
		for i := range v {
			v[i].value = with
		}
		return v
	}
	return with
}

// copiesIn says which annotations of a Secret hold a copy of it. Whether a text holds a value is what search says;
// search_test.go is about that.
func copiesIn(secret []member) func(annotation member) bool {
	var values []string
	var name, namespace string
	strange := false
	for _, m := range secret {
		object, isObject := m.value.([]member)
		switch m.key {
		case "data", "stringData":
			strange = strange || !isObject && m.value != nil
			for _, v := range object {
				text, isText := v.value.(string)
				strange = strange || !isText && v.value != nil
				if value, err := base64.StdEncoding.DecodeString(text); err == nil && m.key == "data" {
					text = string(value)
				}
				values = append(values, text)
			}
		case "metadata":
			name, namespace = "", ""
			for _, v := range object {
				switch v.key {
				case "name":
					name, _ = v.value.(string)
				case "namespace":
					namespace, _ = v.value.(string)
				}
			}
		}
	}
	var s search
	s.reset(math.MaxInt32)
	for _, v := range values {
		if v != name && v != namespace && v != "redacted" {
			s.add([]byte(v))
		}
	}
	s.prepare()
	return func(annotation member) bool {
		text, isText := annotation.value.(string)
		return strange || isCopy(annotation) || isText && s.finds([]byte(text))
	}
}

// isCopy says whether an annotation is a copy of its object, whatever it holds.
func isCopy(annotation member) bool {
	if slices.Contains(copies, annotation.key) {
		return true
	}
	switch v := annotation.value.(type) {
	case string:
		v = strings.TrimLeftFunc(v, func(r rune) bool {
			return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("\ufeff\"'`\\", r)
		})
		return strings.HasPrefix(v, "{") || strings.HasPrefix(v, "[")
	case nil:
		return false
	}
	return true
}

func remove(v any, path []string) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = remove(v[i], path)
		}
	case []member:
		if len(path) == 1 {
			return slices.DeleteFunc(v, func(m member) bool { return m.key == path[0] })
		}
		for i := range v {
			if v[i].key == path[0] {
				v[i].value = remove(v[i].value, path[1:])
			}
		}
	}
	return v
}

// modelMeta is the metadata of a document whose fields have the right types.
func modelMeta(object map[string]any, o Options) (m Meta) {
	text := func(in map[string]any, key string) string {
		s, _ := in[key].(string)
		return s
	}
	m.APIVersion, m.Kind = text(object, "apiVersion"), text(object, "kind")
	if _, there := object["apiVersion"]; !there {
		m.APIVersion = o.APIVersion
	}
	if _, there := object["kind"]; !there {
		m.Kind = o.Kind
	}
	metadata, _ := object["metadata"].(map[string]any)
	m.Namespace, m.Name = text(metadata, "namespace"), text(metadata, "name")
	if m.Key = m.Name; m.Namespace != "" {
		m.Key = m.Namespace + "/" + m.Name
	}
	m.UID, m.ResourceVersion = text(metadata, "uid"), text(metadata, "resourceVersion")
	annotations, _ := metadata["annotations"].(map[string]any)
	m.InitialEventsEnd = text(annotations, "k8s.io/initial-events-end") == "true"
	return m
}
