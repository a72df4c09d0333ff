package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Options are what Rules are made of.
type Options struct {
	// APIVersion and Kind go in front of a document that has none, as the items of lists of built-in types have
	// none. Where they are empty nothing is added.
	APIVersion, Kind string
	// Drop holds the paths that are left out, each a list of object keys. A path that reaches an array goes on
	// into each of its elements. The fields that identify an object can not be dropped.
	Drop [][]string
	// RedactSecret says that the documents are core/v1 Secrets, and that their values must not be kept.
	RedactSecret bool
}

// Rules say what of a document is kept. They are compiled once per resource and safe for concurrent use.
type Rules struct {
	apiVersion, kind string
	redact           bool
	root             node
	// prefix is what goes behind the opening brace, by what the document lacks (lacksAPIVersion, lacksKind),
	// each with a comma at its end.
	prefix [4]string
}

const (
	lacksAPIVersion = 1 << iota
	lacksKind
)

// node is one key of the paths that are of interest. Everything below a key without a node is passed over.
type node struct {
	drop     bool
	field    field
	children []child
}

type child struct {
	key string
	raw string // the raw key that needs no decoding; a lone quote, which none equals, for a key with a backslash
	*node
}

// field names what is read at a node, where it is reached through objects only.
type field uint8

const (
	noField field = iota
	fieldAPIVersion
	fieldKind
	fieldMetadata
	fieldNamespace
	fieldName
	fieldUID
	fieldResourceVersion
	fieldAnnotations
	fieldInitialEventsEnd
	fieldData
	fieldStringData
)

// fields are the paths of what is read. The last two, and the annotations' content, matter to Secrets only.
var fields = [...][]string{
	fieldAPIVersion:       {"apiVersion"},
	fieldKind:             {"kind"},
	fieldMetadata:         {"metadata"},
	fieldNamespace:        {"metadata", "namespace"},
	fieldName:             {"metadata", "name"},
	fieldUID:              {"metadata", "uid"},
	fieldResourceVersion:  {"metadata", "resourceVersion"},
	fieldAnnotations:      {"metadata", "annotations"},
	fieldInitialEventsEnd: {"metadata", "annotations", "k8s.io/initial-events-end"},
	fieldData:             {"data"},
	fieldStringData:       {"stringData"},
}

// identity are the fields without which an event, or a stored body that passes the scan again, could not say what
// it is about.
var identity = []field{
	fieldAPIVersion, fieldKind, fieldMetadata, fieldNamespace, fieldName, fieldUID, fieldResourceVersion,
}

// copies are the annotations in which tools keep a copy of the object. They go whatever their value. Other copies are
// found by what they look like (hidden.go), or by the values that they hold (search.go).
var copies = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	"objectset.rio.cattle.io/applied",
	"kapp.k14s.io/original",
	"banzaicloud.com/last-applied",
}

// New compiles o. It reports every path that can not be dropped.
func New(o Options) (*Rules, error) {
	r := &Rules{apiVersion: o.APIVersion, kind: o.Kind, redact: o.RedactSecret}
	for f := fieldAPIVersion; f <= fieldInitialEventsEnd; f++ {
		r.root.at(fields[f]).field = f
	}
	if o.RedactSecret {
		if o.Kind != "Secret" {
			return nil, errors.New("scan: only kind Secret can be redacted")
		}
		for _, f := range []field{fieldData, fieldStringData} {
			r.root.at(fields[f]).field = f
		}
		for _, name := range copies {
			r.root.at([]string{"metadata", "annotations", name}).drop = true
		}
	}
	var errs []error
	for _, path := range o.Drop {
		if err := checkDrop(path); err != nil {
			errs = append(errs, err)
			continue
		}
		r.root.at(path).drop = true
	}
	for lacks := range r.prefix {
		if lacks&lacksAPIVersion != 0 {
			r.prefix[lacks] += front("apiVersion", o.APIVersion)
		}
		if lacks&lacksKind != 0 {
			r.prefix[lacks] += front("kind", o.Kind)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

func checkDrop(path []string) error {
	if len(path) == 0 {
		return errors.New("scan: an empty path can not be dropped")
	}
	for _, key := range path {
		if !utf8.ValidString(key) {
			return fmt.Errorf("scan: path %q can not be dropped: it is not valid UTF-8", path)
		}
	}
	for _, f := range identity {
		if slices.Equal(path, fields[f]) {
			return fmt.Errorf("scan: %s can not be dropped: it identifies the object", strings.Join(path, "."))
		}
	}
	return nil
}

func front(key, value string) string {
	if value == "" {
		return ""
	}
	quoted, err := json.Marshal(value)
	if err != nil {
		panic("BUG: a string that can not be encoded: " + err.Error())
	}
	return `"` + key + `":` + string(quoted) + `,`
}

// at returns the node at path, which it adds where it is missing.
func (n *node) at(path []string) *node {
	for _, key := range path {
		i := slices.IndexFunc(n.children, func(c child) bool { return c.key == key })
		if i < 0 {
			i = len(n.children)
			c := child{key: key, raw: key, node: new(node)}
			if strings.Contains(key, `\`) {
				c.raw = `"`
			}
			n.children = append(n.children, c)
		}
		n = n.children[i].node
	}
	return n
}

// child returns the node of a raw key, or nil.
func (n *node) child(raw []byte) *node {
	for i := range n.children {
		if c := &n.children[i]; len(c.raw) == len(raw) && c.raw == string(raw) {
			return c.node
		}
	}
	if plain(raw) {
		return nil
	}
	for i := range n.children {
		if c := &n.children[i]; isText(raw, c.key) {
			return c.node
		}
	}
	return nil
}
