// Command vulncheck runs govulncheck over kbridge and fails where kbridge's code reaches a known vulnerability of a module
// that go.mod requires. With -std it also fails for those of Go's standard library, which another compiler and no change
// of this repository mends; without, they are printed.
//
// The database is vuln.go.dev. Where that cannot be reached it is the copy in the module golang.org/x/vulndb, which the
// module proxy has, and which may be weeks old: its date is printed. Where neither can be reached, it says that nothing
// was checked and does not fail: a build must not depend on a service that is away.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	scanner  = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	service  = "https://vuln.go.dev"
	copies   = "golang.org/x/vulndb@latest"
	patience = 10 * time.Second // for the service to answer
	program  = "./cmd/kbridge"
)

func main() {
	std := flag.Bool("std", false, "fail for vulnerabilities of the standard library too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := check(ctx, os.Stdout, *std)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func check(ctx context.Context, out io.Writer, std bool) error {
	db, err := database(ctx, out, service, func() (dir, version string, err error) { return moduleCopy(ctx) })
	if err != nil {
		fmt.Fprintf(out, "vulncheck: NOT CHECKED, as no database can be reached: %v\n", err)
		return nil
	}
	report, err := scan(ctx, db)
	if err != nil {
		return err
	}
	found, err := read(bytes.NewReader(report))
	if err != nil {
		return err
	}
	return found.judge(out, std)
}

// database returns the address of a database, for govulncheck, and says which it is.
func database(ctx context.Context, out io.Writer, service string, fallback func() (dir, version string, err error)) (string, error) {
	away := reach(ctx, service+"/index/db.json")
	if away == nil {
		fmt.Fprintf(out, "vulncheck: the database is %s\n", service)
		return service, nil
	}
	dir, version, err := fallback()
	if err != nil {
		return "", errors.Join(away, err)
	}
	fmt.Fprintf(out, "vulncheck: %v; the database is the module golang.org/x/vulndb, as of its version %s\n", away, version)
	return "file://" + filepath.ToSlash(dir), nil
}

func reach(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return nil
}

// moduleCopy downloads the module with the database's sources: a folder of OSV documents, which govulncheck reads as they are.
func moduleCopy(ctx context.Context) (dir, version string, err error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", copies)
	cmd.Stderr = &stderr
	text, runErr := cmd.Output() // with an error there is a document as well
	var module struct{ Dir, Version, Error string }
	if err := json.Unmarshal(text, &module); err != nil {
		return "", "", fmt.Errorf("download %s: %w\n%s", copies, errors.Join(runErr, err), stderr.Bytes())
	}
	if module.Error != "" || runErr != nil {
		return "", "", fmt.Errorf("download %s: %w: %s", copies, errors.Join(runErr), module.Error)
	}
	dir = filepath.Join(module.Dir, "data", "osv")
	if documents, _ := filepath.Glob(filepath.Join(dir, "GO-*.json")); len(documents) == 0 {
		return "", "", fmt.Errorf("%s has no documents in data/osv", copies)
	}
	return dir, module.Version, nil
}

// scan returns govulncheck's messages.
func scan(ctx context.Context, db string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "run", scanner, "-format", "json", "-db", db, program)
	cmd.Stderr = &stderr
	report, err := cmd.Output() // in JSON a finding is no error
	if err != nil {
		return nil, fmt.Errorf("run govulncheck: %w\n%s", err, stderr.Bytes())
	}
	return report, nil
}
