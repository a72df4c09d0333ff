package release

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/kbridge-io/kbridge/internal/licenses"
)

// common is what all archives have.
type common struct {
	entries  []entry
	licenses []byte
}

// documents are the files of the repository that go into an archive, by glob.
var documents = []string{"LICENSE", "README.md", "CHANGELOG.md", "config/schema.json", "docs/*.md", "examples/*.yaml"}

// shells are those that are completed, and the names under which they look for it.
var shells = map[string]string{"bash": "kbridge", "zsh": "_kbridge", "fish": "kbridge.fish", "powershell": "kbridge.ps1"}

func (o Options) common(ctx context.Context) (common, error) {
	var c common
	for _, pattern := range documents {
		files, err := filepath.Glob(filepath.Join(o.Source, filepath.FromSlash(pattern)))
		if err != nil {
			return common{}, err
		}
		if len(files) == 0 {
			return common{}, fmt.Errorf("there is no %s", pattern)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return common{}, err
			}
			c.entries = append(c.entries, entry{name: path.Join(path.Dir(pattern), filepath.Base(file)), mode: 0o644, data: data})
		}
	}
	written, err := o.written(ctx)
	if err != nil {
		return common{}, err
	}
	c.entries = append(c.entries, written...)
	c.licenses, err = licenseTexts(ctx, o.Source)
	return c, err
}

// written returns what kbridge itself writes about its commands and flags: completion and man pages.
func (o Options) written(ctx context.Context) ([]entry, error) {
	dir, err := os.MkdirTemp("", "kbridge-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, man := filepath.Join(dir, "kbridge"), filepath.Join(dir, "man")
	if _, err := run(ctx, o.Source, reproducible, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "man", "-o", binary, licenses.Program); err != nil {
		return nil, fmt.Errorf("build what writes the man pages: %w", err)
	}
	var entries []entry
	for shell, name := range shells {
		script, err := run(ctx, dir, nil, binary, "completion", shell)
		if err != nil {
			return nil, fmt.Errorf("write the completion for %s: %w", shell, err)
		}
		entries = append(entries, entry{name: "completion/" + shell + "/" + name, mode: 0o644, data: script})
	}
	if err := os.Mkdir(man, 0o755); err != nil {
		return nil, err
	}
	// cobra takes the date on the pages from there, and kbridge a default from the user's folders: a reader's are not known.
	reader := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(o.Time.Unix(), 10), "HOME=~", "XDG_STATE_HOME="}
	if _, err := run(ctx, dir, reader, binary, "man", man, "--source", "kbridge "+o.Version); err != nil {
		return nil, fmt.Errorf("write the man pages: %w", err)
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		data, err := os.ReadFile(filepath.Join(man, page.Name()))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "man/man1/" + page.Name(), mode: 0o644, data: data})
	}
	return entries, nil
}

// licenseTexts returns the licenses and notices of what is linked. One that may not be passed on so is an error.
func licenseTexts(ctx context.Context, source string) ([]byte, error) {
	modules, err := licenses.Linked(ctx, source)
	if err != nil {
		return nil, err
	}
	if _, err := licenses.Table(modules); err != nil {
		return nil, err
	}
	return licenses.Texts(modules), nil
}
