package release

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is whom kbridge runs as in the image.
const user = 65532

// platformTree is what the image has for a platform.
type platformTree struct {
	program
	entries []entry
}

// Write makes the image's files in a folder, for the Dockerfile: those of one platform. The folder may be there.
func Write(ctx context.Context, o Options, dir string) error {
	if len(o.Platforms) != 1 {
		return errors.New("an image's files are those of one platform")
	}
	p, err := o.compile(ctx, o.Platforms[0])
	if err != nil {
		return err
	}
	texts, err := licenseTexts(ctx, o.Source)
	if err != nil {
		return err
	}
	entries, err := o.tree(p, texts)
	if err != nil {
		return err
	}
	return writeTree(dir, entries)
}

func writeTree(dir string, entries []entry) error {
	for _, e := range sorted(entries) {
		path := filepath.Join(dir, filepath.FromSlash(e.name))
		var err error
		if e.folder() {
			err = os.MkdirAll(path, e.mode)
		} else {
			err = os.WriteFile(path, e.data, e.mode)
		}
		if err == nil {
			err = os.Chmod(path, e.mode) // whatever the umask is
		}
		if err == nil && e.owner != 0 {
			err = os.Chown(path, e.owner, e.owner)
		}
		if err != nil {
			return fmt.Errorf("write the image's files: %w", err)
		}
	}
	return nil
}

// tree returns the files of the image: kbridge, and what a program needs of a system.
func (o Options) tree(p program, licenses []byte) ([]entry, error) {
	base, err := system()
	if err != nil {
		return nil, err
	}
	return append(base,
		entry{name: "usr/local/bin/kbridge", mode: 0o755, data: p.binary},
		entry{name: "usr/share/sbom/kbridge.cdx.json", mode: 0o644, data: p.sbom},
		entry{name: "usr/share/licenses/kbridge/THIRD_PARTY_LICENSES.txt", mode: 0o644, data: licenses},
	), nil
}

// system returns what is in the image beside kbridge: authorities, time zones, a user, and a folder that it may write.
func system() ([]entry, error) {
	root, err := run(context.Background(), ".", nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	zones, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, fmt.Errorf("read the time zones: %w", err)
	}
	return []entry{
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
		{name: "usr/share/zoneinfo.zip", mode: 0o644, data: zones},
		{name: "etc/passwd", mode: 0o644, data: fmt.Appendf(nil, "kbridge:x:%d:%d::/var/lib/kbridge:/sbin/nologin\n", user, user)},
		{name: "etc/group", mode: 0o644, data: fmt.Appendf(nil, "kbridge:x:%d:\n", user)},
		{name: "var/lib/kbridge/", mode: 0o755, owner: user},
	}, nil
}

// authorities returns those that Mozilla trusts without a condition, in the version of go.mod. The system's would differ
// from machine to machine, and may have been added to: an image that trusted a company's proxy would be trusted by others.
// A condition, such as a date after which an authority's certificates do not count, cannot be written into the file.
func authorities() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
		}
	}
	return b.Bytes()
}
