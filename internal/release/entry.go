package release

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// entry is a file in an archive or in the image, or a folder, whose name ends with a slash.
type entry struct {
	name  string // with slashes, without one in front
	mode  fs.FileMode
	owner int // user and group
	data  []byte
}

func (e entry) folder() bool { return strings.HasSuffix(e.name, "/") }

// sorted returns the entries by name, with the folders that they need and do not name.
func sorted(entries []entry) []entry {
	named := map[string]bool{}
	for _, e := range entries {
		named[e.name] = true
	}
	all := slices.Clone(entries)
	for _, e := range entries {
		for i, c := range strings.TrimSuffix(e.name, "/") {
			if folder := e.name[:i+1]; c == '/' && !named[folder] {
				named[folder] = true
				all = append(all, entry{name: folder, mode: 0o755})
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all
}

// writeTar writes the entries in their order, all of one time.
func writeTar(w io.Writer, entries []entry, at time.Time) error {
	t := tar.NewWriter(w)
	for _, e := range sorted(entries) {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(e.data)),
			Uid: e.owner, Gid: e.owner, ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatUSTAR,
		}
		if e.folder() {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(e.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// writeTarGz compresses writeTar's output. The header has neither a name nor a time.
func writeTarGz(w io.Writer, entries []entry, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(z, entries, at), z.Close())
}

func writeZip(w io.Writer, entries []entry, at time.Time) error {
	z := zip.NewWriter(w)
	for _, e := range sorted(entries) {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at.UTC().Truncate(time.Second)}
		h.SetMode(e.mode)
		if e.folder() {
			h.Method = zip.Store
			h.SetMode(e.mode | fs.ModeDir)
		}
		f, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(e.data); err != nil {
			return err
		}
	}
	return z.Close()
}
