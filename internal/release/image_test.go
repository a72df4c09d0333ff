package release

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// imagePaths are all that the image has.
var imagePaths = []string{
	"etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt",
	"usr/", "usr/local/", "usr/local/bin/", "usr/local/bin/kbridge", "usr/share/", "usr/share/licenses/", "usr/share/licenses/kbridge/",
	"usr/share/licenses/kbridge/THIRD_PARTY_LICENSES.txt", "usr/share/sbom/", "usr/share/sbom/kbridge.cdx.json", "usr/share/zoneinfo.zip",
	"var/", "var/lib/", "var/lib/kbridge/",
}

func checkImage(t *testing.T, o Options, files map[string][]byte) {
	dir := t.TempDir()
	for name, h := range unpack(t, files["kbridge_0.1.0-test_image.tar"], false) {
		if strings.HasSuffix(name, "/") {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(h.Linkname), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tagged, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := tagged.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "0.1.0-test" {
		t.Fatalf("the archive has %v, want the image 0.1.0-test", manifest.Manifests)
	}
	index, err := tagged.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.String() != "linux/amd64" {
		t.Fatalf("the image is for %v, want linux/amd64", manifest.Manifests)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(o.configuration(), config.Config); diff != "" || config.OS != "linux" || config.Architecture != "amd64" || !config.Created.Equal(at) {
		t.Errorf("the configuration is %+v\n%s", config, diff)
	}
	checkLayers(t, image, files)
}

func checkLayers(t *testing.T, image v1.Image, files map[string][]byte) {
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for name, h := range unpack(t, data, false) {
			all[name] = h.Linkname
			wantMode, wantOwner := int64(0o644), 0
			if strings.HasSuffix(name, "/") || name == "usr/local/bin/kbridge" {
				wantMode = 0o755
			}
			if name == "var/lib/kbridge/" {
				wantOwner = 65532
			}
			if h.Mode != wantMode || h.Uid != wantOwner || h.Gid != wantOwner {
				t.Errorf("%s has the mode %o and belongs to %d:%d", name, h.Mode, h.Uid, h.Gid)
			}
		}
	}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, imagePaths) {
		t.Errorf("the image has\n%q, want\n%q", got, imagePaths)
	}
	archive := unpack(t, files["kbridge_0.1.0-test_linux_amd64.tar.gz"], true)
	for inImage, inArchive := range map[string]string{
		"usr/local/bin/kbridge": "kbridge", "usr/share/sbom/kbridge.cdx.json": "sbom.cdx.json",
		"usr/share/licenses/kbridge/THIRD_PARTY_LICENSES.txt": "THIRD_PARTY_LICENSES.txt",
	} {
		if h := archive["kbridge_0.1.0-test_linux_amd64/"+inArchive]; h == nil || h.Linkname != all[inImage] {
			t.Errorf("%s is not the archive's", inImage)
		}
	}
}

func TestTheImageIsConfiguredAsTheDockerfilesIs(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, stage, found := strings.Cut(strings.ReplaceAll(string(text), "\\\n", " "), "\nFROM scratch\n")
	if !found {
		t.Fatal("the last stage of the Dockerfile is not one from scratch")
	}
	got := v1.Config{Labels: map[string]string{}, ExposedPorts: map[string]struct{}{}}
	stage = strings.NewReplacer("${VERSION}", version, "${REVISION}", commit).Replace(stage)
	pair := regexp.MustCompile(`([^\s=]+)=("[^"]*"|\S+)`)
	for line := range strings.Lines(stage) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "", "#", "ARG":
		case "COPY":
			if rest != "--from=build /out/ /" {
				t.Errorf("the Dockerfile copies %q", rest)
			}
		case "LABEL":
			for _, m := range pair.FindAllStringSubmatch(rest, -1) {
				got.Labels[m[1]] = strings.Trim(m[2], `"`)
			}
		case "ENV":
			got.Env = append(got.Env, strings.Fields(rest)...)
		case "USER":
			got.User = rest
		case "WORKDIR":
			got.WorkingDir = rest
		case "EXPOSE":
			got.ExposedPorts[rest+"/tcp"] = struct{}{}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &got.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &got.Cmd)
		default:
			t.Errorf("the Dockerfile has the instruction %s, which is not compared", instruction)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(got, Options{Version: version, Commit: commit}.configuration()); diff != "" {
		t.Errorf("the Dockerfile's image (-) and the release's (+) differ:\n%s", diff)
	}
	// Its files are made by the same code.
	if !strings.Contains(string(text), "go run ./internal/release/build -tree ") {
		t.Error("the Dockerfile makes its files by other means")
	}
}

func TestTheImagesFilesAreWrittenAsTheyAreInTheArchive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a folder is given to another user, which root alone may do: CI runs as root")
	}
	dir := t.TempDir()
	entries, err := Options{}.tree(program{binary: []byte("binary"), sbom: []byte("{}")}, []byte("licenses"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeTree(dir, entries); err != nil {
		t.Fatal(err)
	}
	written, err := filesIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range written {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.name == w.name })
		if i < 0 || string(entries[i].data) != string(w.data) {
			t.Errorf("%s is not the one of the archive", w.name)
		}
	}
	if len(written) != len(entries)-1 { // the folder
		t.Errorf("there are %d files, want %d", len(written), len(entries)-1)
	}
}

func TestTheImageTrustsAuthorities(t *testing.T) {
	rest := authorities()
	count := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !cert.IsCA {
			t.Errorf("%v is no authority: %v", cert, err)
		}
		count++
	}
	if count < 50 || len(rest) != 0 {
		t.Errorf("there are %d authorities, and %d bytes besides", count, len(rest))
	}
}
