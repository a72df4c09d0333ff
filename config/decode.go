package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxAliased bounds the values that are read through aliases, so that a small
// file cannot become a huge configuration.
const maxAliased = 10_000

// decoder fills a Config from YAML nodes. The library's own decoding stops at
// the first of some problems and knows neither path nor value of others.
type decoder struct {
	src     *source
	aliases int // aliases that the current value was reached through
	aliased int // values that were reached through aliases
}

// decode reads the file on top of the defaults. It returns nil where there is
// nothing to go on with.
func decode(src *source, data []byte) *Config {
	root := readYAML(src, data)
	if root == nil {
		return nil
	}
	c := Default()
	if root.Kind == 0 || root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return &c // an empty file
	}
	d := &decoder{src: src}
	d.value(root, reflect.ValueOf(&c).Elem(), "")
	return &c
}

// readYAML returns the file's only document, or nil.
func readYAML(src *source, data []byte) *yaml.Node {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
			src.reject(i+1, "", "bytes that are no text", "YAML in UTF-8")
			return nil
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return &yaml.Node{}
	} else if err != nil {
		addSyntax(src, data, err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		src.reject(second.Line, "", "a second document", "one document in the file")
		return nil
	case !errors.Is(err, io.EOF):
		addSyntax(src, data, err)
		return nil
	}
	return doc.Content[0]
}

// value decodes a node into v, which holds its default and keeps it where the
// node is wrong.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		d.aliases++
		defer func() { d.aliases-- }()
		n = n.Alias
	}
	if d.aliases > 0 {
		if d.aliased++; d.aliased == maxAliased {
			d.src.reject(d.src.line(path), "", "more than "+strconv.Itoa(maxAliased)+" values through aliases", "a file that does not grow so much by its aliases")
		}
		if d.aliased >= maxAliased {
			return
		}
	}
	switch want, ok := d.scalar(n, v); {
	case v.Kind() == reflect.Pointer:
		v.Set(fresh(v.Type().Elem()).Addr())
		d.value(n, v.Elem(), path)
	case v.Kind() == reflect.Struct && n.Kind == yaml.MappingNode && n.ShortTag() == "!!map":
		d.mapping(n, v, path)
	case v.Kind() == reflect.Struct:
		want := "a map"
		if len(keysOf(v.Type())) == 0 {
			want = "{}, as it has no keys"
		}
		d.src.reject(d.src.line(path), path, describe(n), want)
	case v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode && n.ShortTag() == "!!seq":
		d.sequence(n, v, path)
	case v.Kind() == reflect.Slice:
		d.src.reject(d.src.line(path), path, describe(n), "a list")
	case !ok:
		d.src.reject(d.src.line(path), path, describe(n), want)
	}
}

// scalar decodes a scalar. Where it cannot, it says what was expected.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value) (want string, ok bool) {
	tag := ""
	if n.Kind == yaml.ScalarNode {
		tag = n.ShortTag()
	}
	switch v.Interface().(type) {
	case Size:
		s, err := parseSize(n.Value)
		if ok = err == nil && (tag == "!!str" || tag == "!!int"); ok {
			v.SetInt(int64(s))
		}
		return "a size such as 64MiB, 1GiB or 1000000", ok
	case time.Duration:
		t, err := parseDuration(n.Value)
		if ok = err == nil && (tag == "!!str" || tag == "!!int"); ok {
			v.SetInt(int64(t))
		}
		return "a duration such as 10s, 2m, 24h or 7d", ok
	case enum:
		values := v.Interface().(enum).values()
		if ok = tag == "!!str" && slices.Contains(values, n.Value); ok {
			v.SetString(n.Value)
		}
		return oneOf(values), ok
	}
	switch v.Kind() {
	case reflect.String:
		if ok = tag == "!!str"; ok {
			v.SetString(n.Value)
		}
		if tag != "" && n.Value != "" {
			return "a string (put it in quotes)", ok
		}
		return "a string", ok
	case reflect.Bool:
		var b bool
		if ok = tag == "!!bool" && n.Decode(&b) == nil; ok {
			v.SetBool(b)
		}
		return "true or false", ok
	case reflect.Int:
		var i int
		if ok = tag == "!!int" && n.Decode(&i) == nil; ok {
			v.SetInt(int64(i))
		}
		return "a whole number", ok
	case reflect.Float64:
		var f float64
		if ok = (tag == "!!int" || tag == "!!float") && n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0); ok {
			v.SetFloat(f)
		}
		return "a number", ok
	}
	return "", false
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) {
	list := reflect.MakeSlice(v.Type(), 0, 0)
	for i, c := range n.Content {
		if d.aliased >= maxAliased {
			break
		}
		p := item(path, i)
		d.src.lines[p] = c.Line
		e := fresh(v.Type().Elem())
		d.value(c, e, p)
		list = reflect.Append(list, e)
	}
	v.Set(list)
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	fields := keysOf(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		line := k.Line
		if k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			d.src.reject(line, path, describe(k)+" as a key", "a plain key")
			continue
		}
		p := child(path, k.Value)
		if first, ok := seen[k.Value]; ok {
			d.src.reject(line, p, "duplicate key", fmt.Sprintf("it once, and it stands in line %d already", first))
			continue
		}
		seen[k.Value] = line
		f := slices.IndexFunc(fields, func(f field) bool { return f.key == k.Value })
		if f < 0 {
			d.src.reject(line, p, "unknown key", wantKey(v.Type(), k, fields))
			continue
		}
		d.src.lines[p] = line
		d.value(val, v.Field(f), p)
		if s := v.Field(f); fields[f].nonempty && !s.IsNil() && s.Len() == 0 {
			d.src.reject(line, p, "an empty list", "at least one (leave the key out for the default)")
		}
	}
}

// wantKey says what to write in place of an unknown key.
func wantKey(t reflect.Type, k *yaml.Node, fields []field) string {
	if k.ShortTag() == "!!merge" {
		return "the keys themselves, merging is not supported"
	}
	key := k.Value
	if t == reflect.TypeFor[NATS]() || t == reflect.TypeFor[SASL]() {
		switch strings.ToLower(key) {
		case "clientsecret", "secret":
			if t == reflect.TypeFor[SASL]() {
				return "clientSecretFile, the path of a file with the secret: it never stands in this one"
			}
		case "password", "pass", "passwd":
			return "passwordFile, the path of a file with the password: it never stands in this one"
		case "token":
			return "tokenFile, the path of a file with the token: it never stands in this one"
		}
	}
	if len(fields) == 0 {
		return "no keys here"
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	if near := Nearest(key, names); near != "" {
		return didYouMean + near + "?"
	}
	return oneOf(names)
}

// field is a key of a map.
type field struct {
	key      string
	required string // see the tag's description in config.go
	nonempty bool
}

// keysOf returns the keys of a struct, one a field and in their order. Fields that are no
// keys come last.
func keysOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if tag.Get("yaml") == "-" {
			break
		}
		fields = append(fields, field{tag.Get("yaml"), tag.Get("required"), tag.Get("nonempty") != ""})
	}
	return fields
}

// fresh returns a value of the type with its defaults.
func fresh(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if def, ok := p.Interface().(defaulter); ok {
		def.setDefaults()
	}
	return p.Elem()
}

// describe says what a node is.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.AliasNode:
		return "an alias"
	case yaml.MappingNode:
		return "a map" + tagged(n, "!!map")
	case yaml.SequenceNode:
		return "a list" + tagged(n, "!!seq")
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return show(n.Value)
	}
	if n.Value == "" {
		return "nothing"
	}
	q := show(n.Value)
	return q[1 : len(q)-1]
}

// tagged names the tag of a map or a list that says it is something else.
func tagged(n *yaml.Node, plain string) string {
	if tag := n.ShortTag(); tag != plain {
		return " tagged " + show(tag)
	}
	return ""
}
