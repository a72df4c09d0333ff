package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/pe"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/internal/testhelm"
)

const (
	version = "v0.1.0-test"
	commit  = "0123456789abcdef0123456789abcdef01234567"
)

var at = time.Date(2026, 11, 30, 4, 18, 7, 0, time.UTC)

// options are those of a small release: of all platforms, one of each kind of archive, of which one has an image.
func options(t *testing.T, source string) Options {
	t.Helper()
	helm, err := testhelm.Path(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Source: source, Out: filepath.Join(t.TempDir(), "dist"), Version: version, Commit: commit, Time: at,
		Platforms: []string{"linux/amd64", "windows/arm64"}, Helm: helm, Log: t.Output(),
	}
}

// checkout copies the repository's files into a folder.
func checkout(t *testing.T, dir string) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "bin" || name == "dist" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(dir, name), 0o700)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTwoReleasesOfOneCommitAreEqualAndWhole(t *testing.T) {
	first, second := options(t, t.TempDir()), options(t, filepath.Join(t.TempDir(), "somewhere", "else"))
	checkout(t, first.Source)
	checkout(t, second.Source)
	for _, o := range []Options{first, second} {
		if err := Build(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		// What the second one's user has set.
		t.Setenv("TZ", "Pacific/Chatham")
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		t.Setenv("GOFLAGS", "-gcflags=-N")
		t.Setenv("GOAMD64", "v3")
	}
	names, files := read(t, first.Out)
	others, again := read(t, second.Out)
	if strings.Join(names, " ") != strings.Join(others, " ") {
		t.Fatalf("there are %q, and then %q", names, others)
	}
	for _, name := range names {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s differs from one build to the next", name)
		}
	}
	if want := "SHA256SUMS kbridge-0.1.0.tgz kbridge_0.1.0-test_image.tar kbridge_0.1.0-test_linux_amd64.cdx.json " +
		"kbridge_0.1.0-test_linux_amd64.tar.gz kbridge_0.1.0-test_windows_arm64.cdx.json kbridge_0.1.0-test_windows_arm64.zip"; strings.Join(names, " ") != want {
		t.Errorf("there are %q, want %s", names, want)
	}
	t.Run("TheArchiveForLinuxHasAKbridgeThatRuns", func(t *testing.T) { checkLinux(t, files) })
	t.Run("TheArchiveForWindowsHasAProgramForIt", func(t *testing.T) { checkWindows(t, files) })
	t.Run("TheChecksumsAreThoseOfAllFiles", func(t *testing.T) { checkSums(t, files) })
	t.Run("TheChartInstallsThisVersion", func(t *testing.T) { checkChart(t, files) })
	t.Run("TheImageHasTheProgramOfTheArchive", func(t *testing.T) { checkImage(t, first, files) })
}

func read(t *testing.T, dir string) (names []string, files map[string][]byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name())
		files[e.Name()] = data
	}
	return names, files
}

// unpack returns the files of a tar archive, and checks what all have in common.
func unpack(t *testing.T, data []byte, compressed bool) map[string]*tar.Header {
	t.Helper()
	var r io.Reader = bytes.NewReader(data)
	if compressed {
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = z
	}
	headers := map[string]*tar.Header{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(at) || h.Uname != "" || h.Uid != 0 && h.Name != "var/lib/kbridge/" {
			t.Errorf("%s is of %s and belongs to %d %s", h.Name, h.ModTime, h.Uid, h.Uname)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		h.Linkname = string(content) // of the files here none is a link
		headers[h.Name] = h
	}
}

func checkLinux(t *testing.T, files map[string][]byte) {
	const top = "kbridge_0.1.0-test_linux_amd64/"
	in := unpack(t, files["kbridge_0.1.0-test_linux_amd64.tar.gz"], true)
	for name, want := range map[string]string{
		"LICENSE": "Apache License", "README.md": "# kbridge", "CHANGELOG.md": "# Changelog", "docs/GUARANTEES.md": "# Guarantees",
		"examples/quickstart.yaml": "resources:", "config/schema.json": `"$schema"`,
		"THIRD_PARTY_LICENSES.txt": "github.com/prometheus/client_golang@", "sbom.cdx.json": `"bomFormat": "CycloneDX"`,
		"completion/bash/kbridge": "__start_kbridge", "completion/zsh/_kbridge": "#compdef kbridge",
		"completion/fish/kbridge.fish": "complete -c kbridge", "completion/powershell/kbridge.ps1": "Register-ArgumentCompleter",
		"man/man1/kbridge.1": "kbridge-tail(1)", "man/man1/kbridge-run.1": `\fB--config\fP`, "man/man1/kbridge-tail.1": version,
		"man/man1/kbridge-check.1": "without state ~/.local/state/kbridge",
	} {
		if h := in[top+name]; h == nil || !strings.Contains(h.Linkname, want) {
			t.Errorf("%s is not there, or does not have %q", name, want)
		} else if h.Mode != 0o644 {
			t.Errorf("%s has the mode %o", name, h.Mode)
		}
	}
	var sbom struct {
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name string }
	}
	if err := json.Unmarshal(files["kbridge_0.1.0-test_linux_amd64.cdx.json"], &sbom); err != nil {
		t.Fatal(err)
	}
	if c := sbom.Metadata.Component; c.Name != "github.com/kbridge-io/kbridge" || c.Version != version || !strings.Contains(fmt.Sprint(sbom.Components), "github.com/nats-io/nats.go") {
		t.Errorf("the list of components is of %v and has %v", c, sbom.Components)
	}
	program := in[top+"kbridge"]
	if program == nil || program.Mode != 0o755 {
		t.Fatalf("there is no program: %v", program)
	}
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		t.Skip("the program of the archive is for linux/amd64, and this is not")
	}
	path := filepath.Join(t.TempDir(), "kbridge")
	if err := os.WriteFile(path, []byte(program.Linkname), 0o755); err != nil {
		t.Fatal(err)
	}
	said, err := run(t.Context(), ".", nil, path, "version")
	if want := "kbridge v0.1.0-test (0123456789ab) " + runtime.Version() + " linux/amd64\n"; err != nil || string(said) != want {
		t.Errorf("it says %q, %v, want %q", said, err, want)
	}
	if help, err := run(t.Context(), ".", nil, path, "man", t.TempDir()); err == nil {
		t.Errorf("what writes man pages is in the released program: %s", help)
	}
}

func checkWindows(t *testing.T, files map[string][]byte) {
	data := files["kbridge_0.1.0-test_windows_arm64.zip"]
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		if !f.Modified.Equal(at) {
			t.Errorf("%s is of %s", f.Name, f.Modified)
		}
		if f.Name != "kbridge_0.1.0-test_windows_arm64/kbridge.exe" {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		binary, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		program, err := pe.NewFile(bytes.NewReader(binary))
		if err != nil || program.Machine != pe.IMAGE_FILE_MACHINE_ARM64 {
			t.Errorf("the program is none of Windows on arm64: %v", err)
		}
		return
	}
	t.Error("there is no kbridge.exe")
}

func checkSums(t *testing.T, files map[string][]byte) {
	lines := strings.Split(strings.TrimSuffix(string(files["SHA256SUMS"]), "\n"), "\n")
	if len(lines) != len(files)-1 {
		t.Errorf("there are sums of %d files, want %d", len(lines), len(files)-1)
	}
	for _, line := range lines {
		sum, name, _ := strings.Cut(line, "  ")
		if data, ok := files[name]; !ok || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%q is not the sum of a file that is there", line)
		}
	}
}

func checkChart(t *testing.T, files map[string][]byte) {
	in := unpack(t, files["kbridge-0.1.0.tgz"], true)
	if h := in["kbridge/Chart.yaml"]; h == nil || !strings.Contains(h.Linkname, "appVersion: 0.1.0-test") {
		t.Errorf("Chart.yaml is %v, want this version in it", h)
	}
	if in["kbridge/values.yaml"] == nil || in["kbridge/templates/statefulset.yaml"] == nil {
		t.Errorf("the chart is not whole: %v", in)
	}
}

func TestAReleaseThatIsNotOneIsRefused(t *testing.T) {
	good := Options{Out: t.TempDir(), Version: version, Time: at, Platforms: []string{"linux/amd64"}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "old.tar.gz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Options){
		"is no version": func(o *Options) { o.Version = "" },
		`"v1 oops"`:     func(o *Options) { o.Version = "v1 oops" },
		"is not known":  func(o *Options) { o.Time = time.Time{} },
		"no platform":   func(o *Options) { o.Platforms = nil },
		"plan9/amd64":   func(o *Options) { o.Platforms = []string{"plan9/amd64"} },
		"is not empty":  func(o *Options) { o.Out = full },
	} {
		o := good
		spoil(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
