package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/testbuild"
)

// axe looks for what keeps people with a screen reader, or poor sight, out of a page. Its package comes from npm; the
// checksum is the one that npm has of it.
const (
	axeVersion  = "4.14.1"
	axeChecksum = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

var errNoNPM = errors.New("npm is not installed: `make browser` installs it")

// axe returns the script, from the user's cache once it is there.
func axe(ctx context.Context) (string, error) {
	cache, err := testbuild.CacheDir("axe-core", "")
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "axe-core-"+axeVersion+".tgz")
	data, err := os.ReadFile(file)
	if err != nil {
		if data, err = download(ctx); err != nil {
			return "", err
		}
		if err := keep(file, data); err != nil {
			return "", err
		}
	}
	if sum := sha512.Sum512(data); base64.StdEncoding.EncodeToString(sum[:]) != axeChecksum {
		return "", fmt.Errorf("%s is not what npm has published as axe-core %s: remove it", file, axeVersion)
	}
	return unpack(data, "package/axe.min.js")
}

func download(ctx context.Context) ([]byte, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, errNoNPM
	}
	dir, err := os.MkdirTemp("", "kbridge-axe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, npm, "pack", "axe-core@"+axeVersion)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return os.ReadFile(filepath.Join(dir, "axe-core-"+axeVersion+".tgz"))
}

// keep writes a file that is whole or not there.
func keep(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), "part-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(data)
	return errors.Join(err, temporary.Close(), os.Rename(temporary.Name(), file))
}

// unpack returns one file of a package.
func unpack(data []byte, name string) (string, error) {
	packed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(packed); ; {
		header, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if header.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}

func TestAxeFindsNothingInLightAndDarkOnLargeScreensAndSmall(t *testing.T) {
	s := serve(t, config.Server{}, busy("connection refused"))
	for _, width := range []int64{1200, 360} {
		b := look(t, s, width, 900, "checkout")
		script, err := axe(t.Context())
		if errors.Is(err, errNoNPM) && os.Getenv("CI") != "true" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.media("prefers-reduced-motion", "reduce")
		eval[any](b, script+"; null")
		for _, scheme := range []string{"light", "dark"} {
			b.media("prefers-color-scheme", scheme)
			for _, problem := range b.axe() {
				t.Errorf("%d pixels wide, %s: %s", width, scheme, problem)
			}
			if back := eval[string](b, "getComputedStyle(document.body).backgroundColor"); (back == "rgb(255, 255, 255)") != (scheme == "light") {
				t.Errorf("in %s the background is %s", scheme, back)
			}
		}
		// What it would find: text that is hardly seen, and a button without a name.
		eval[any](b, `document.getElementById("about").style.color = "#777"; document.getElementById("pause").textContent = ""; null`)
		if found := strings.Join(b.axe(), "\n"); !strings.Contains(found, "color-contrast") || !strings.Contains(found, "button-name") {
			t.Errorf("axe does not see what is wrong: %s", found)
		}
	}
}

// axe returns what axe has against the page as it is, all rules and best practices.
func (b *tab) axe() []string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`axe.run().then((r) => {
		if (r.passes.length < 20) throw new Error("only " + r.passes.length + " rules were looked at");
		return r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html + " " + n.failureSummary).join("; "));
	})`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}
