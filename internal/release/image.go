package release

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// configuration is the image's, as the last stage of the Dockerfile has it: a test compares them.
func (o Options) configuration() v1.Config {
	return v1.Config{
		Labels: map[string]string{
			"org.opencontainers.image.title":       "kbridge",
			"org.opencontainers.image.description": "Turns a Kubernetes cluster into a stream of CloudEvents on NATS JetStream or Kafka",
			"org.opencontainers.image.source":      "https://github.com/kbridge-io/kbridge",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     o.Version,
			"org.opencontainers.image.revision":    o.Commit,
		},
		Env:          []string{"PATH=/usr/local/bin", "ZONEINFO=/usr/share/zoneinfo.zip", "XDG_STATE_HOME=/var/lib"},
		User:         fmt.Sprintf("%d:%d", user, user),
		WorkingDir:   "/var/lib/kbridge",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		Entrypoint:   []string{"/usr/local/bin/kbridge"},
		Cmd:          []string{"run", "--config", "/etc/kbridge/config.yaml"},
	}
}

// image writes the image of all platforms as an OCI archive, tagged with the version. Without platforms of Linux there is none.
func (o Options) image(trees []platformTree) error {
	if len(trees) == 0 {
		return nil
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range trees {
		image, err := o.platformImage(t)
		if err != nil {
			return fmt.Errorf("make the image for %s/%s: %w", t.system, t.processor, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: t.system, Architecture: t.processor},
		}})
	}
	tagged := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		Annotations: map[string]string{"org.opencontainers.image.ref.name": strings.TrimPrefix(o.Version, "v")},
	}})
	dir, err := os.MkdirTemp("", "kbridge-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if _, err := layout.Write(dir, tagged); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	entries, err := filesIn(dir)
	if err != nil {
		return err
	}
	return o.write(o.name()+"_image.tar", func(w io.Writer) error { return writeTar(w, entries, o.Time) })
}

// platformImage puts what seldom changes into a layer of its own, below kbridge.
func (o Options) platformImage(t platformTree) (v1.Image, error) {
	var below, above []entry
	for _, e := range t.entries {
		if strings.HasPrefix(e.name, "usr/local/") || strings.Contains(e.name, "/kbridge.cdx.json") || strings.Contains(e.name, "/licenses/") {
			above = append(above, e)
		} else {
			below = append(below, e)
		}
	}
	image, err := mutate.ConfigFile(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), &v1.ConfigFile{
		OS: t.system, Architecture: t.processor, Created: v1.Time{Time: o.Time.UTC()}, Config: o.configuration(),
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	for _, l := range []struct {
		what    string
		entries []entry
	}{{"authorities, time zones, the user", below}, {"kbridge", above}} {
		layer, err := tarLayer(l.entries, o.Time)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{
			Created: v1.Time{Time: o.Time.UTC()}, CreatedBy: "kbridge's release: " + l.what,
		}}); err != nil {
			return nil, err
		}
	}
	return image, nil
}

func tarLayer(entries []entry, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, entries, at); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

// filesIn returns the files of a folder as entries.
func filesIn(dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, relErr := filepath.Rel(dir, path)
		data, readErr := os.ReadFile(path)
		entries = append(entries, entry{name: filepath.ToSlash(name), mode: 0o644, data: data})
		return errors.Join(relErr, readErr)
	})
	return entries, err
}
