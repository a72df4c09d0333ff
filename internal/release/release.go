// Package release makes what is released of kbridge: an archive for each platform, the image, the chart, and the
// checksums of all of them. What it makes follows from the source, the version, the commit's time and the compiler's
// version, byte for byte: not from the folder, the clock, the user or what the machine has installed.
package release

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kbridge-io/kbridge/internal/licenses"
)

// Options say what is made.
type Options struct {
	Source    string    // the repository's folder
	Out       string    // the folder for what is made; it must not be there, or be empty
	Version   string    // what `kbridge version` says, such as v0.1.0
	Commit    string    // the whole hash
	Time      time.Time // of everything in the archives: the commit's
	Platforms []string  // such as linux/amd64: those of licenses.Platforms, or some of them
	Helm      string    // the program that packages the chart
	Log       io.Writer // says how it gets on
}

// name is how the version stands in the names of files and in the image's tag: without the v.
func (o Options) name() string { return "kbridge_" + strings.TrimPrefix(o.Version, "v") }

// Build makes everything. After an error the folder is not a release: the checksums, which come last, are not there.
func Build(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	common, err := o.common(ctx)
	if err != nil {
		return err
	}
	var images []platformTree
	for _, platform := range o.Platforms {
		fmt.Fprintln(o.Log, "release:", platform)
		p, err := o.compile(ctx, platform)
		if err != nil {
			return err
		}
		if err := o.archive(p, common); err != nil {
			return err
		}
		if p.system == "linux" {
			tree, err := o.tree(p, common.licenses)
			if err != nil {
				return err
			}
			images = append(images, platformTree{p, tree})
		}
	}
	fmt.Fprintln(o.Log, "release: the image and the chart")
	if err := o.image(images); err != nil {
		return err
	}
	if err := o.chart(ctx); err != nil {
		return err
	}
	return o.checksums()
}

func (o Options) check() error {
	switch {
	case o.Version == "" || strings.ContainsAny(o.Version, "/ \t\n"):
		return fmt.Errorf("%q is no version", o.Version)
	case o.Time.IsZero():
		return errors.New("the time of the commit is not known")
	case len(o.Platforms) == 0:
		return errors.New("there is no platform to build for")
	}
	for _, p := range o.Platforms {
		if !slices.Contains(licenses.Platforms, p) {
			return fmt.Errorf("kbridge is not released for %s, but for %s", p, strings.Join(licenses.Platforms, ", "))
		}
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	there, err := os.ReadDir(o.Out)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("%s is not empty: what is there would look like a part of the release", o.Out)
	}
	return nil
}

// archive writes the archive of a platform, and its list of components beside it.
func (o Options) archive(p program, c common) error {
	name := o.name() + "_" + p.system + "_" + p.processor
	entries := []entry{
		{name: p.file(), mode: 0o755, data: p.binary},
		{name: "sbom.cdx.json", mode: 0o644, data: p.sbom},
		{name: "THIRD_PARTY_LICENSES.txt", mode: 0o644, data: c.licenses},
	}
	entries = append(entries, c.entries...)
	for i := range entries {
		entries[i].name = name + "/" + entries[i].name
	}
	if err := o.write(name+".cdx.json", func(w io.Writer) error { _, err := w.Write(p.sbom); return err }); err != nil {
		return err
	}
	if p.system == "windows" {
		return o.write(name+".zip", func(w io.Writer) error { return writeZip(w, entries, o.Time) })
	}
	return o.write(name+".tar.gz", func(w io.Writer) error { return writeTarGz(w, entries, o.Time) })
}

// checksums writes SHA256SUMS, as sha256sum reads it.
func (o Options) checksums() error {
	files, err := os.ReadDir(o.Out) // sorted by name
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(o.Out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return o.write("SHA256SUMS", func(w io.Writer) error { _, err := io.WriteString(w, lines.String()); return err })
}

// write makes a file of the release, which is not there yet.
func (o Options) write(name string, content func(io.Writer) error) error {
	f, err := os.OpenFile(filepath.Join(o.Out, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(content(f), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
