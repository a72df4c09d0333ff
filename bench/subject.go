//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/objects"
	"github.com/kbridge-io/kbridge/bench/process"
)

// setup is how a program under measurement runs.
type setup struct {
	baseline bool // client-go's informer in place of kbridge
	kind     *objects.Kind
	objects  int
	to       opener
	state    bool
	// dir is the folder of an earlier start on the same cluster, with its state; empty:
	// the start is on a new cluster, in a new folder.
	dir   string
	plain bool // HTTP/1.1 without TLS to the API server
	// block has a full window hold the watch up, so that each change is an event of its
	// own, however long the broker takes.
	block  bool
	resync time.Duration
	env    []string
	follow func(message []byte) // gets what arrives at the place; nil: nobody looks
	// profile names the profile, where one is taken.
	profile string
}

// subject is a program that runs, with the place that its events go to.
type subject struct {
	*process.Process
	setup
	bench *bench
	place place
	lists int64 // that the API server had served before

	stopFollowing context.CancelFunc
	followed      chan error
}

// patience is how long anything that must come may take, on a slow machine.
const patience = 5 * time.Minute

// start gives the API server a new cluster and starts the program on it, unless it is to
// go on where an earlier one has ended.
func (b *bench) start(ctx context.Context, s setup) (started *subject, err error) {
	if s.dir == "" {
		if err := b.server.Reset(ctx, control.Cluster{Resource: s.kind.Resource, Objects: s.objects}); err != nil {
			return nil, err
		}
		if s.dir, err = b.folder(); err != nil {
			return nil, err
		}
	}
	status, err := b.server.Status(ctx)
	if err != nil {
		return nil, err
	}
	sub := &subject{setup: s, bench: b, lists: status.Lists, stopFollowing: func() {}}
	if sub.place, err = s.to(ctx, b); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = sub.end(ctx, err)
		}
	}()
	if s.follow != nil {
		following, stop := context.WithCancel(ctx)
		sub.stopFollowing, sub.followed = stop, make(chan error, 1)
		go func() { sub.followed <- sub.place.follow(following, s.follow) }() // close waits
	}
	cmd, err := sub.command()
	if err != nil {
		return nil, err
	}
	sub.Process, err = process.Start(ctx, cmd)
	return sub, err
}

func (s *subject) command() (*exec.Cmd, error) {
	kubeconfig := s.bench.cluster.kubeconfig
	if s.plain {
		kubeconfig = s.bench.cluster.plain
	}
	var cmd *exec.Cmd
	if s.baseline {
		cmd = exec.Command(s.bench.programs.baseline, append([]string{"-kubeconfig", kubeconfig, "-resource", s.kind.Resource}, s.place.flags()...)...)
	} else {
		file := filepath.Join(s.dir, "kbridge.yaml")
		if err := os.WriteFile(file, []byte(s.configuration()), 0o600); err != nil {
			return nil, err
		}
		cmd = exec.Command(s.bench.programs.kbridge, "run", "--config", file, "--kubeconfig", kubeconfig, "--data-dir", s.dir)
	}
	cmd.Env = append(os.Environ(), s.env...)
	if s.profiled() {
		cmd.Env = append(cmd.Env, profileVariable+"="+filepath.Join(s.bench.profile, s.profile))
	}
	cmd.Stdout = s.place.output()
	return cmd, nil
}

// configuration is kbridge's.
func (s *subject) configuration() string {
	text := fmt.Sprintf("cluster: bench\nserver: {address: '127.0.0.1:0'}\nresources:\n- group: '%s'\n  resource: %s\n", s.kind.Group, s.kind.Resource)
	if s.resync > 0 {
		text += fmt.Sprintf("  resync: %s\n", s.resync)
	}
	text += "sinks:\n- name: out\n"
	if s.block {
		text += "  whenFull: block\n"
	}
	text += "  " + s.place.settings() + "\n"
	if s.state {
		text += fmt.Sprintf("state: {file: {dir: '%s'}}\n", filepath.Join(s.dir, "state"))
	}
	return text
}

// counts is what a program says of its work.
type counts struct {
	acknowledged float64 // objects and changes that the broker has, or that were folded
	folded       float64
	mallocs      float64
	allocated    float64 // bytes
}

func (s *subject) counts(ctx context.Context) (counts, error) {
	m, err := s.Scrape(ctx)
	if err != nil {
		return counts{}, err
	}
	c := counts{mallocs: m.Sum("go_memstats_mallocs_total"), allocated: m.Sum("go_memstats_alloc_bytes_total")}
	if s.baseline {
		c.acknowledged = m.Sum("baseline_acknowledged_total")
		if failures := m.Sum("baseline_failures_total"); failures > 0 {
			return c, fmt.Errorf("the baseline could not send %v objects", failures)
		}
		return c, nil
	}
	c.folded = m.Sum("kbridge_folded_total")
	c.acknowledged = m.Sum("kbridge_published_total", "type", "added") + m.Sum("kbridge_published_total", "type", "updated") + c.folded
	if dead := m.Sum("kbridge_dead_letters_total"); dead > 0 {
		return c, fmt.Errorf("%v events went to the dead letters", dead)
	}
	return c, nil
}

// until asks ask until it says yes: often at first, and then so often that a twentieth of
// the time passes between two times, so that asking costs little.
func until(ctx context.Context, what string, limit time.Duration, ask func() (bool, error)) error {
	for began := time.Now(); ; {
		ok, err := ask()
		if ok || err != nil {
			return err
		}
		gone := time.Since(began)
		if gone > limit {
			return fmt.Errorf("%s: not within %s", what, limit)
		}
		select {
		case <-time.After(max(5*time.Millisecond, gone/20)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitSynced waits until the first list was handed over, and returns how long that took
// from the start of the program.
func (s *subject) awaitSynced(ctx context.Context) (time.Duration, error) {
	err := until(ctx, "first list", patience, func() (bool, error) {
		if !s.baseline {
			return s.Ready(ctx), s.Ended()
		}
		m, err := s.Scrape(ctx)
		return err == nil && m.Sum("baseline_synced") == 1, err
	})
	return time.Since(s.Started), err
}

// awaitAcknowledged waits until the broker has so many objects and changes.
func (s *subject) awaitAcknowledged(ctx context.Context, n float64) (time.Time, counts, error) {
	var c counts
	err := until(ctx, fmt.Sprintf("%v acknowledgements", n), patience, func() (ok bool, err error) {
		c, err = s.counts(ctx)
		return c.acknowledged >= n, err
	})
	if err != nil && c.acknowledged > 0 {
		err = fmt.Errorf("%w; there were %v", err, c.acknowledged)
	}
	return time.Now(), c, err
}

// awaitAnnounced waits for the first list and for the acknowledgement of all its objects.
func (s *subject) awaitAnnounced(ctx context.Context) (synced, announced time.Duration, err error) {
	if synced, err = s.awaitSynced(ctx); err != nil {
		return 0, 0, err
	}
	at, _, err := s.awaitAcknowledged(ctx, float64(s.objects))
	return synced, at.Sub(s.Started), err
}

// end ends the program and removes what was made for it. Where the run has failed, the
// error gets what the program said. What makes the run's figures doubtful is noted.
func (s *subject) end(ctx context.Context, err error) error {
	errs := []error{err}
	if s.Process != nil {
		if status, err := s.bench.server.Status(ctx); err == nil && status.Lists > s.lists+1 {
			s.bench.current.Note("a watch was lost: the API server served %d lists in place of one", status.Lists-s.lists)
		}
		switch {
		case ctx.Err() != nil:
			s.Kill() // interrupted: nobody waits for an orderly end
		case err != nil:
			s.Kill()
			errs = append(errs, errors.New(s.Log()))
		default:
			errs = append(errs, s.Stop())
		}
	}
	s.stopFollowing()
	if s.followed != nil {
		errs = append(errs, <-s.followed)
	}
	// The run may have been interrupted, and the broker goes on.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	errs = append(errs, s.place.close(closing), os.RemoveAll(s.dir))
	return errors.Join(errs...)
}
