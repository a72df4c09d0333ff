package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// numbered is a version of a release. Others, such as a commit's, are not what an image could be tagged with for good.
var numbered = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// chart packages the chart with Helm, which checks it and leaves out what it is told to ignore, and writes the package
// anew, as Helm gives its entries the time of day. The chart's own version is in it; which kbridge it installs is this one.
func (o Options) chart(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "kbridge-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"package", filepath.Join("deploy", "helm", "kbridge"), "--destination", dir}
	if numbered.MatchString(o.Version) {
		args = append(args, "--app-version", strings.TrimPrefix(o.Version, "v"))
	}
	home := []string{"HELM_CACHE_HOME=" + dir, "HELM_CONFIG_HOME=" + dir, "HELM_DATA_HOME=" + dir}
	if _, err := run(ctx, o.Source, home, o.Helm, args...); err != nil {
		return fmt.Errorf("package the chart: %w", err)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("package the chart: there are %d packages, want 1: %w", len(packages), errors.Join(err))
	}
	entries, err := untar(packages[0])
	if err != nil {
		return fmt.Errorf("read the chart's package: %w", err)
	}
	return o.write(filepath.Base(packages[0]), func(w io.Writer) error {
		return writeTarGz(w, entries, o.Time)
	})
}

// untar returns the files of a compressed archive.
func untar(path string) ([]entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: h.Name, mode: fs.FileMode(h.Mode).Perm(), data: data})
	}
}
