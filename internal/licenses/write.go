package licenses

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Table returns docs/THIRD_PARTY_LICENSES.md. An error names each license that is unknown or not taken.
func Table(modules []Module) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(`# Third-party licenses

The modules that are linked into kbridge on at least one of the platforms that it is released for, read from
what the compiler links and from the files in the modules. ` + "`go generate ./internal/licenses`" + ` writes this page.
The texts of the licenses and the notices are in ` + "`THIRD_PARTY_LICENSES.txt`" + `, in each archive of a release and in
the image under ` + "`/usr/share/licenses/kbridge`" + `. kbridge itself is under the [Apache License 2.0](../LICENSE).
Besides, the image has two sets of data: certificate authorities of Mozilla (MPL 2.0), as the module
golang.org/x/crypto/x509roots/fallback has them, and the time zones of the IANA (public domain), as Go has them.

Taken are ` + strings.Join(permissive, ", ") + `.

| module | version | license | notices |
| --- | --- | --- | --- |
`)
	var errs []error
	for _, m := range modules {
		kinds, err := m.Kinds()
		errs = append(errs, err)
		var notices []string
		for _, f := range m.Files {
			if !license.MatchString(f.Name[strings.LastIndex(f.Name, "/")+1:]) {
				notices = append(notices, f.Name)
			}
		}
		version := m.Version
		if m.Path == standardLibrary {
			version = "the compiler's"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.Path, version, strings.Join(kinds, ", "), strings.Join(notices, ", "))
	}
	return b.Bytes(), errors.Join(errs...)
}

// Texts returns all licenses and notices in one text. One that several modules have in the same words is there once.
func Texts(modules []Module) []byte {
	var order []string // texts, as they come
	of := map[string][]string{}
	for _, m := range modules {
		for _, f := range m.Files {
			text := string(f.Text)
			if of[text] == nil {
				order = append(order, text)
			}
			name := m.Path
			if m.Version != "" {
				name += "@" + m.Version
			}
			of[text] = append(of[text], name+"/"+f.Name)
		}
	}
	var b bytes.Buffer
	b.WriteString("The licenses and notices of what is linked into kbridge. Each text is preceded by the files that have it.\n")
	rule := "\n" + strings.Repeat("=", 80) + "\n"
	for _, text := range order {
		b.WriteString(rule + strings.Join(of[text], "\n") + rule + "\n" + strings.TrimRight(text, "\n") + "\n")
	}
	return b.Bytes()
}
