//go:build unix

// Command demo shows kbridge at work, from nothing: it builds kbridge, starts a real
// Kubernetes API server, lets `kbridge run` watch it and `kbridge tail` show the
// events, changes a few objects, some of them while kbridge is killed, and checks that
// each change became one event, in order, and that the value of a Secret is nowhere.
// It ends by itself, with 1 where something is missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/kbridge-io/kbridge/internal/child"
	"github.com/kbridge-io/kbridge/internal/testcluster"
)

// patience is how long anything that must come may take, on a slow machine.
const patience = time.Minute

var picture = flag.String("picture", "", "a file for a picture of what kbridge tail prints (SVG)")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, and with it its children
	err := demonstrate(ctx)
	switch {
	case ctx.Err() != nil:
		say("stopped; nothing is left behind")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo: FAILED:", err)
		os.Exit(1)
	}
}

// say prints a text, in lines that fit a terminal of 80 columns.
func say(format string, args ...any) {
	const most = 80 - len("demo: ")
	for paragraph := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			if line != "" && len(line)+1+len(word) > most {
				fmt.Println("demo: " + line)
				line = ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		fmt.Println("demo: " + line)
	}
}

// demo is one run. Its methods are called from one goroutine.
type demo struct {
	dir     string
	binary  string
	config  string
	address string // of kbridge's HTTP server
	cluster *testcluster.Cluster
	bridge  *child.Process
	log     text // kbridge's, of all its runs
	// committed is how often the state was stored when the first snapshots had ended.
	committed int
}

func demonstrate(ctx context.Context) (err error) {
	say("kbridge turns the changes in a Kubernetes cluster into a stream of events. This starts a real API server and a real kbridge, changes a few objects, and shows what comes out. The first time it builds etcd and kube-apiserver, which takes about 11 minutes on two cores; after that, seconds.")
	d := &demo{}
	if d.dir, err = os.MkdirTemp("", "kbridge-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()

	if d.cluster, err = testcluster.Start(ctx, testcluster.Options{Progress: os.Stdout}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cluster.Stop()) }()
	say("a Kubernetes API server runs at %s", d.cluster.URL)

	if err := d.build(ctx); err != nil {
		return err
	}
	client, err := newClient(ctx, d.cluster)
	if err != nil {
		return err
	}
	if err := d.configure(); err != nil {
		return err
	}
	if err := d.startBridge(ctx); err != nil {
		return err
	}
	defer func() { d.bridge.Kill() }() // the last one
	if err := d.awaitBridge(ctx, client); err != nil {
		return d.explained(ctx, err)
	}
	return d.explained(ctx, d.change(ctx, client))
}

// explained shows the end of kbridge's log where something went wrong.
func (d *demo) explained(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil {
		lines := strings.Split(strings.TrimSpace(d.log.String()), "\n")
		say("the end of kbridge's log:")
		fmt.Println(strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return err
}

func (d *demo) build(ctx context.Context) error {
	say("building kbridge")
	d.binary = filepath.Join(d.dir, "kbridge")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", d.binary, "github.com/kbridge-io/kbridge/cmd/kbridge").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build kbridge: %w\n%s", err, out)
	}
	return nil
}

// configuration has no sink: kbridge publishes to a NATS server of its own.
const configuration = `cluster: demo
resources:
  - {group: apps, resource: deployments, namespaces: [shop]}
  - {resource: configmaps, namespaces: [shop]}
  - {resource: secrets, namespaces: [shop]}
  - {group: demo.kbridge.dev, resource: widgets, namespaces: [shop]}
state: {file: {dir: '%s'}}
server: {address: '%s'}
`

func (d *demo) configure() (err error) {
	if d.address, err = freeAddress(); err != nil {
		return err
	}
	d.config = filepath.Join(d.dir, "kbridge.yaml")
	text := fmt.Sprintf(configuration, d.data(), d.address)
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		return err
	}
	say("starting `kbridge run --embedded` with this configuration:")
	fmt.Print("\n    ", strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    "), "\n\n")
	return nil
}

func (d *demo) startBridge(ctx context.Context) (err error) {
	cmd := exec.Command(d.binary, "run", "--embedded", "--config", d.config,
		"--kubeconfig", d.cluster.Kubeconfig(), "--log-level", "debug")
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	if d.bridge, err = child.Start(cmd); err != nil {
		return fmt.Errorf("start kbridge run: %w", err)
	}
	return ctx.Err()
}

// whileDown kills kbridge, as a machine that fails does, lets the action happen while
// it is away, and starts it again. What kbridge has stored is up to a second old then,
// but it has stored something: one that is killed in its very first second begins anew.
func (d *demo) whileDown(do action) action {
	return func(ctx context.Context, c *client) (string, error) {
		err := d.poll(ctx, "kbridge's storing its state", func() error {
			n, err := d.commits(ctx)
			if err == nil && n <= d.committed {
				err = fmt.Errorf("kbridge_state_commits_total is %d", n)
			}
			return err
		})
		if err != nil {
			return "", err
		}
		d.bridge.Kill()
		version, err := do(ctx, c)
		if err != nil {
			return "", err
		}
		return version, d.startBridge(ctx)
	}
}

// data is where kbridge keeps its state, and its embedded server beside it.
func (d *demo) data() string { return filepath.Join(d.dir, "data") }

// freeAddress picks a port that nobody has. Another process may take it before
// kbridge does; kbridge then says so and ends.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// awaitBridge shows that kbridge waits for a resource that the server does not
// have, defines it, and waits until kbridge is ready.
func (d *demo) awaitBridge(ctx context.Context, c *client) error {
	err := d.poll(ctx, "kbridge's saying that it waits for widgets", func() error {
		code, body, err := d.readiness(ctx)
		if err == nil && (code != http.StatusServiceUnavailable || strings.Count(body, "\n") != 1 || !strings.Contains(body, "widgets.demo.kbridge.dev")) {
			err = fmt.Errorf("/readyz answers %d: %s", code, strings.TrimSpace(body))
		}
		if err == nil {
			say("it watches, and waits for what is not there yet; http://%s/readyz says: %s", d.address, strings.TrimSpace(body))
		}
		return err
	})
	if err != nil {
		return err
	}
	say("defining the custom resource widgets.demo.kbridge.dev")
	if err := c.defineWidgets(ctx); err != nil {
		return err
	}
	return d.poll(ctx, "kbridge's getting ready", func() error {
		code, body, err := d.readiness(ctx)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz answers %d: %s", code, strings.TrimSpace(body))
		}
		return err
	})
}

func (d *demo) readiness(ctx context.Context) (code int, body string, err error) {
	return d.get(ctx, "/readyz")
}

// commits is how often kbridge has stored its state since it was started.
func (d *demo) commits(ctx context.Context) (int, error) {
	_, body, err := d.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(body, "\nkbridge_state_commits_total ")
	n, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(n)
}

func (d *demo) get(ctx context.Context, path string) (code int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.address+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// poll waits until check returns nil. It gives up where kbridge has ended.
func (d *demo) poll(ctx context.Context, what string, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-tick.C:
			if last = check(); last == nil {
				return nil
			}
		case <-d.bridge.Done():
			return fmt.Errorf("wait for %s: kbridge has ended: %w", what, d.bridge.Wait())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; %w", what, ctx.Err(), last)
		}
	}
}

// change makes the changes, each with its event shown below it, and checks what came.
func (d *demo) change(ctx context.Context, c *client) error {
	secret, err := newSecret()
	if err != nil {
		return err
	}
	steps := d.steps(secret)
	say("starting `kbridge tail` with the same configuration: it shows the snapshots that kbridge began with, which find nothing yet; after that, each change is followed by its line")
	fmt.Println()
	shown := newTranscript()
	colour := "never"
	if term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" {
		colour = "always"
	}
	cmd := exec.Command(d.binary, "tail", "--config", d.config, "--all", "--count", fmt.Sprint(len(markers)+len(steps)), "--color", colour)
	cmd.Stdout, cmd.Stderr = shown, os.Stdout
	tail, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("start kbridge tail: %w", err)
	}
	defer tail.Kill()

	if err := shown.awaitMarkers(ctx, tail); err != nil {
		return err
	}
	if d.committed, err = d.commits(ctx); err != nil {
		return err
	}
	began := time.Now()
	for i := range steps {
		s := &steps[i]
		fmt.Printf("\n> %s\n", s.what)
		if s.version, err = s.do(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		if err := shown.await(ctx, s, tail); err != nil {
			return err
		}
	}
	took := time.Since(began)
	fmt.Println()
	if err := d.end(ctx, tail); err != nil {
		return err
	}
	if err := d.verify(ctx, steps, secret, shown); err != nil {
		return err
	}
	if *picture != "" {
		lines := strings.Split(strings.TrimSpace(colours.ReplaceAllString(shown.String(), "")), "\n")
		if err := draw(*picture, lines[len(markers):]); err != nil {
			return err
		}
	}
	say("%d changes made, %d events received in order, none twice, the Secret's value not among them (%.1f s)", len(steps), len(steps), took.Seconds())
	return nil
}

// end waits for tail, which has shown all there is to show, and stops kbridge as an
// operator does, so that what it has stored is all there will be.
func (d *demo) end(ctx context.Context, tail *child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, p := range []struct {
		name    string
		process *child.Process
	}{{"kbridge tail", tail}, {"kbridge run", d.bridge}} {
		if p.process == d.bridge {
			say("stopping kbridge, and checking what its stream has stored")
			p.process.Signal(syscall.SIGTERM)
		}
		select {
		case <-p.process.Done():
			if err := p.process.Wait(); err != nil {
				return fmt.Errorf("%s ended: %w", p.name, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of %s: %w", p.name, ctx.Err())
		}
	}
	return nil
}
