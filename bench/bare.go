//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/internal/child"
)

// sample has kbridge write so many events into a file, for clients that are to send the
// same bytes.
func (b *bench) sample(ctx context.Context, count int) (path string, err error) {
	path = filepath.Join(b.dir, fmt.Sprintf("events-%d.jsonl", count))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	into := func(context.Context, *bench) (place, error) {
		f, err := os.Create(path + ".all")
		return file{f}, err
	}
	s := setup{kind: objects.Pods, objects: b.objects, to: into, block: true}
	if _, err := b.burst(ctx, s, control.Changes{Count: count}); err != nil {
		return "", err
	}
	// What the list said, and its two markers, is not part of it.
	data, err := os.ReadFile(path + ".all")
	if err != nil {
		return "", err
	}
	defer os.Remove(path + ".all")
	var updates []byte
	for line := range bytes.Lines(data) {
		if bytes.Contains(line[:min(len(line), 512)], []byte(`"type":"dev.kbridge.object.updated"`)) {
			updates = append(updates, line...)
		}
	}
	if n := bytes.Count(updates, []byte("\n")); n != count {
		return "", fmt.Errorf("kbridge wrote %d events, not %d", n, count)
	}
	return path, os.WriteFile(path, updates, 0o600)
}

// bareResult is what bare prints.
type bareResult struct {
	Events       int
	Elapsed, CPU time.Duration
}

func (r bareResult) perSecond() float64 { return float64(r.Events) / r.Elapsed.Seconds() }

// bareSend has a bare client send the events to a place; watching, one for each change
// that it reads from the API server.
func (b *bench) bareSend(ctx context.Context, to opener, events string, watching bool, extra ...string) (r bareResult, err error) {
	p, err := to(ctx, b)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx))) }()
	flags := p.flags() // -sink WHICH and so on
	args := append([]string{flags[1], "-events", events}, flags[2:]...)
	if watching {
		if err := b.server.Reset(ctx, control.Cluster{Resource: objects.Pods.Resource, Objects: b.few}); err != nil {
			return r, err
		}
		if err := b.server.Prepare(ctx, control.Changes{Count: b.queued}); err != nil {
			return r, err
		}
		// The initial events and the bookmark behind them are no changes.
		args = append(args, "-watch", watchURL(b.cluster.HTTPS), "-ca", b.cluster.ca, "-skip", strconv.Itoa(b.few+1))
	}
	var out, problems output
	cmd := exec.Command(b.programs.bare, append(args, extra...)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	proc, err := child.Start(cmd)
	if err != nil {
		return r, err
	}
	defer context.AfterFunc(ctx, proc.Kill)()
	if watching {
		err = b.awaitWatch(ctx, proc)
		if err == nil {
			_, err = b.server.Send(ctx)
		}
		if err != nil {
			proc.Kill()
			return r, fmt.Errorf("bare client: %w: %s", err, problems.bytes())
		}
	}
	if err := proc.Wait(); err != nil {
		return r, fmt.Errorf("bare client: %w: %s", err, problems.bytes())
	}
	if err := json.Unmarshal(out.bytes(), &r); err != nil {
		return r, fmt.Errorf("bare client: %w", err)
	}
	stored, err := p.stored(ctx)
	if err == nil && stored != int64(r.Events) {
		err = fmt.Errorf("the bare client sent %d events, and the broker has %d", r.Events, stored)
	}
	return r, err
}

// watchURL is the watch of pods that kbridge opens.
func watchURL(server string) string {
	return server + objects.Pods.Path() + "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
}

// awaitWatch waits until the process has a watch and has got its initial events.
func (b *bench) awaitWatch(ctx context.Context, proc *child.Process) error {
	return until(ctx, "watch of the bare client", patience, func() (bool, error) {
		if !proc.Running() {
			return false, proc.Wait()
		}
		status, err := b.server.Status(ctx)
		return status.Watches == 1, err
	})
}

// ceiling measures the API server itself, with a client that throws away what it reads.
func (b *bench) ceiling(ctx context.Context, name, url string) error {
	if err := b.server.Reset(ctx, control.Cluster{Resource: objects.Pods.Resource, Objects: b.objects}); err != nil {
		return err
	}
	cmd := exec.Command(b.programs.bare, "read", "-watch", watchURL(url), "-ca", b.cluster.ca)
	cmd.Stderr = os.Stderr
	proc, err := child.Start(cmd)
	if err != nil {
		return err
	}
	defer proc.Kill()
	if err := b.awaitWatch(ctx, proc); err != nil {
		return err
	}
	if err := b.server.Prepare(ctx, control.Changes{Count: b.changes}); err != nil {
		return err
	}
	sent, err := b.server.Send(ctx)
	if err != nil {
		return err
	}
	seconds := sent.Ended.Sub(sent.Began).Seconds()
	b.current.Add(name, ceilingEvents, float64(b.changes)/seconds)
	b.current.Add(name, ceilingBytes, float64(sent.Bytes)/seconds/mebibyte)
	return nil
}
