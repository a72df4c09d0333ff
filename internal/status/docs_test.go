package status

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fields are the paths of all fields in the document.
func fields(t *testing.T, typ reflect.Type, path string) (paths []string) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		return fields(t, typ.Elem(), path+"[]")
	case typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]():
		return nil
	}
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "" || strings.ToLower(name[:1]) != name[:1] {
			t.Errorf("%s.%s is called %q", typ, typ.Field(i).Name, name)
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		paths = append(append(paths, at), fields(t, typ.Field(i).Type, at)...)
	}
	return paths
}

func TestTheFieldsInTheDocsAreThoseOfTheDocument(t *testing.T) {
	docs, err := os.ReadFile("../../docs/STATUS.md")
	if err != nil {
		t.Fatal(err)
	}
	section, _, _ := strings.Cut(string(docs), "\n## What can be wrong")
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-zA-Z.\\[\\]]+)` \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	if has := fields(t, reflect.TypeFor[Status](), ""); !slices.Equal(documented, has) {
		t.Errorf("docs/STATUS.md and the document differ:\ndocs %q\ncode %q", documented, has)
	}
}
