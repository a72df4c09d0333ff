package kafkabroker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/testserver"
)

const (
	minimumJava = 17 // what Kafka 4 asks for
	reportEvery = 15 * time.Second
)

// Available tells why no broker can be started on this machine, or nil: it takes a Java runtime, and either Maven or
// the jars that an earlier run fetched.
func Available() error {
	if _, err := javaRuntime(); err != nil {
		return err
	}
	d, err := findDistribution()
	if err != nil {
		return err
	}
	if d.whole() {
		return nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("the jars of Kafka %s are not in %s, and Maven (mvn), which would fetch them, is not installed", d.version, d.dir)
	}
	return nil
}

// javaPath is the runtime that JAVA_HOME names, or else the one in the path, as Maven has it.
func javaPath() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		return filepath.Join(home, "bin", "java")
	}
	return "java"
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

// javaRuntime returns a name that no other version or build of Java has, or why there is none that Kafka runs on.
var javaRuntime = sync.OnceValues(func() (string, error) {
	out, err := exec.Command(javaPath(), "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("find Java %d or newer: run %s -version: %w", minimumJava, javaPath(), err)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("find Java %d or newer: %s -version says %q", minimumJava, javaPath(), out)
	}
	if v, err := strconv.Atoi(string(m[1])); err != nil || v < minimumJava {
		return "", fmt.Errorf("find Java %d or newer: this is Java %s", minimumJava, m[1])
	}
	return "java-" + string(m[1]) + "-" + shortSum(out), nil
})

func shortSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:4])
}

// distribution is the set of jars that test/kafka/pom.xml describes.
type distribution struct {
	version string // Kafka's
	pom     string
	dir     string // where the jars are, or will be; it is there only when it is whole
}

// findDistribution looks for test/kafka/pom.xml beside and above the working folder, which for a test is its package's.
func findDistribution() (distribution, error) {
	wd, err := os.Getwd()
	if err != nil {
		return distribution{}, err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		pom := filepath.Join(dir, "test", "kafka", "pom.xml")
		switch data, err := os.ReadFile(pom); {
		case err == nil:
			return readDistribution(pom, data)
		case !errors.Is(err, os.ErrNotExist):
			return distribution{}, err
		case dir == filepath.Dir(dir):
			return distribution{}, fmt.Errorf("no test/kafka/pom.xml in or above %s", wd)
		}
	}
}

func readDistribution(pom string, data []byte) (distribution, error) {
	var project struct {
		Version string `xml:"properties>kafka.version"`
	}
	if err := xml.Unmarshal(data, &project); err != nil {
		return distribution{}, fmt.Errorf("read %s: %w", pom, err)
	}
	if project.Version == "" {
		return distribution{}, fmt.Errorf("read %s: it has no property kafka.version", pom)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return distribution{}, fmt.Errorf("find the user's cache folder: %w", err)
	}
	// Clones share the folder, and may differ in what else the file asks for.
	name := "kafka-" + project.Version + "-" + shortSum(data)
	return distribution{version: project.Version, pom: pom, dir: filepath.Join(cache, "kbridge", name)}, nil
}

func (d distribution) whole() bool {
	info, err := os.Stat(d.dir)
	return err == nil && info.IsDir()
}

// Jars returns the folder with Kafka's jars. Where they are not in the user's cache folder yet, Maven fetches them,
// once for all clones of the repository; of several processes one does so and the others wait. progress may be nil.
func Jars(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	d, err := findDistribution()
	if err != nil {
		return "", fmt.Errorf("find what describes the broker: %w", err)
	}
	if d.whole() {
		return d.dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(d.dir), 0o755); err != nil {
		return "", fmt.Errorf("create the folder for Kafka's jars: %w", err)
	}
	var once sync.Once
	lock, err := testserver.LockFile(ctx, d.dir+".lock", func(*os.File) {
		once.Do(func() { fmt.Fprintln(progress, "kafkabroker: another process fetches Kafka's jars, waiting for it") })
	})
	if err != nil {
		return "", fmt.Errorf("wait for another process to fetch Kafka's jars: %w", err)
	}
	defer lock.Release()
	if d.whole() { // the other process has fetched them
		return d.dir, nil
	}
	if err := d.fetch(ctx, progress); err != nil {
		return "", fmt.Errorf("fetch Kafka %s: %w", d.version, err)
	}
	return d.dir, nil
}

// fetch leaves the whole folder, or none.
func (d distribution) fetch(ctx context.Context, progress io.Writer) error {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "kafkabroker: [%s] %s\n", time.Since(began).Round(time.Second), fmt.Sprintf(format, args...))
	}
	partial := d.dir + ".partial" // the lock keeps others from it
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	say("fetching Kafka %s with Maven, because tests run against a real broker. This happens once for this user: about 45 MB, into %s",
		d.version, d.dir)
	out := testserver.Output{Kind: mavenLine}
	cmd := exec.Command("mvn", "--batch-mode", "--file", d.pom, "dependency:copy-dependencies", "-DoutputDirectory="+partial)
	cmd.Stdout, cmd.Stderr = &out, &out
	proc, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("run Maven: %w", err)
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for proc.Running() {
		select {
		case <-proc.Done():
		case <-tick.C:
			say("%d files downloaded", out.Steps())
		case <-ctx.Done():
			proc.Kill()
			return context.Cause(ctx)
		}
	}
	if err := proc.Wait(); err != nil {
		return fmt.Errorf("mvn dependency:copy-dependencies: %w; the end of its output:\n%s", err, out.Tail())
	}
	if err := os.Rename(partial, d.dir); err != nil {
		return err
	}
	say("fetched")
	return nil
}

// mavenLine says what Maven's lines are.
func mavenLine(line string) testserver.Line {
	switch {
	case strings.Contains(line, "Downloaded from "):
		return testserver.Step
	case strings.Contains(line, "Downloading from "):
		return testserver.Noise
	}
	return testserver.Other
}
