package licenses

import (
	"bytes"
	"context"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"
)

// page is made here from what is linked.
const page = "../../docs/THIRD_PARTY_LICENSES.md"

var update = flag.Bool("update", false, "write docs/THIRD_PARTY_LICENSES.md")

var linked = sync.OnceValues(func() ([]Module, error) { return Linked(context.Background(), "../..") })

func modules(t *testing.T) []Module {
	t.Helper()
	list, err := linked()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestGeneratedPageIsCurrentAndEachLicenseIsKnownAndTaken(t *testing.T) {
	want, err := Table(modules(t))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go generate ./internal/licenses", page)
	}
}

// Each of these is linked on one platform alone, is Go's own, or has a license below its root.
func TestWhatAnyPlatformLinksIsListedWithAllOfItsFiles(t *testing.T) {
	files := map[string]string{}
	for _, m := range modules(t) {
		for _, f := range m.Files {
			files[m.Path] += " " + f.Name
		}
	}
	for path, want := range map[string][]string{
		"Go":                                   {"LICENSE", "PATENTS"},
		"github.com/inconshreveable/mousetrap": {"LICENSE"},                                           // Windows
		"github.com/prometheus/procfs":         {"LICENSE", "NOTICE"},                                 // Linux
		"github.com/aws/aws-sdk-go-v2":         {"LICENSE.txt", "NOTICE.txt"},                         // a notice with an ending
		"github.com/klauspost/compress":        {"LICENSE", "s2/LICENSE", "internal/snapref/LICENSE"}, // below
		"github.com/spf13/cobra":               {"LICENSE.txt"},
	} {
		for _, name := range want {
			if !strings.Contains(files[path]+" ", " "+name+" ") {
				t.Errorf("of %s there is%s, want %s too", path, files[path], name)
			}
		}
	}
	for _, path := range []string{"github.com/kbridge-io/kbridge", "go.uber.org/goleak", "gonum.org/v1/plot", "github.com/google/licensecheck"} {
		if files[path] != "" {
			t.Errorf("%s is listed, and is not linked from another module", path)
		}
	}
}

func TestALicenseThatIsUnknownOrNotTakenIsAnError(t *testing.T) {
	taken, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const gpl = "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License " +
		"as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"one that is taken":          {[]File{{"LICENSE", taken}}, ""},
		"none":                       {nil, "has no license"},
		"a notice alone":             {[]File{{"NOTICE", taken}}, "has no license"},
		"one of its own":             {[]File{{"LICENSE", []byte("Be good to each other, and to the sea.")}}, "LICENSE: the license is not known"},
		"one that asks for more":     {[]File{{"LICENSE", []byte(gpl)}}, "LICENSE: GPL-3.0-or-later is not among"},
		"a second one that does":     {[]File{{"LICENSE", taken}, {"sub/COPYING", []byte(gpl)}}, "sub/COPYING: GPL-3.0-or-later"},
		"an addition that is larger": {[]File{{"LICENSE", append(bytes.Repeat([]byte("And you owe us a word. "), 1000), taken...)}}, "the license is not known"},
	} {
		_, err := Table([]Module{{Path: "example.com/m", Version: "v1.0.0", Files: c.files}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTheTextsHaveEachFileOnceWithAllThatHaveIt(t *testing.T) {
	same := File{"LICENSE", []byte("the same\n")}
	text := string(Texts([]Module{{"a", "v1", []File{same}}, {"b", "v2", []File{same, {"NOTICE", []byte("b's own\n")}}}}))
	if strings.Count(text, "the same") != 1 || strings.Count(text, "b's own") != 1 {
		t.Errorf("in\n%s\na text is missing or there twice", text)
	}
	if !strings.Contains(text, "a@v1/LICENSE\nb@v2/LICENSE\n") || !strings.Contains(text, "b@v2/NOTICE\n") {
		t.Errorf("in\n%s\na file is not named", text)
	}
	all := string(Texts(modules(t)))
	for _, m := range modules(t) {
		for _, f := range m.Files {
			if !strings.Contains(all, m.Path) || !strings.Contains(all, strings.TrimRight(string(f.Text), "\n")) {
				t.Errorf("%s of %s is not in the texts", f.Name, m.Path)
			}
		}
	}
}
