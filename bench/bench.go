//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kbridge-io/kbridge/bench/control"
	"github.com/kbridge-io/kbridge/bench/report"
	"github.com/kbridge-io/kbridge/internal/kafkabroker"
)

// bench is what the cases share: programs, the API server, the brokers. One goroutine
// uses it.
type bench struct {
	plan
	profile  string // the folder of profiles; empty: none are taken
	dir      string
	programs programs
	cluster  *cluster
	server   control.Client
	nats     *natsServer          // started by the first case that needs it
	kafka    *kafkabroker.Cluster // likewise
	starts   int                  // of programs, so that each has a folder of its own
	current  *report.Case
}

func newBench(o options) *bench {
	b := &bench{plan: full, profile: o.profile}
	b.runs = o.runs
	if o.quick {
		b.plan = quick
	}
	return b
}

// open builds the programs and starts the API server. close is called whatever it
// returns.
func (b *bench) open(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "kbridge-bench-"); err != nil {
		return err
	}
	if b.programs, err = build(ctx, b.dir, b.profile != ""); err != nil {
		return err
	}
	if b.cluster, err = startCluster(ctx, b.programs.apiserver, b.dir); err != nil {
		return err
	}
	b.server = control.Client{URL: b.cluster.Control}
	return nil
}

// close ends what was started, and removes the folder.
func (b *bench) close() error {
	var errs []error
	if b.kafka != nil {
		errs = append(errs, b.kafka.Stop())
	}
	if b.nats != nil {
		b.nats.stop()
	}
	if b.cluster != nil {
		b.cluster.child.Kill()
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// measure runs one case and prints its table.
func (b *bench) measure(ctx context.Context, c benchCase) (*report.Case, error) {
	fmt.Printf("== %s: %s\n", c.name, c.what)
	began := time.Now()
	b.current = &report.Case{Name: c.name, When: began.UTC().Truncate(time.Second), Machine: report.ThisMachine(), Quick: b.plan.quick}
	if err := c.run(ctx, b); err != nil {
		return nil, err
	}
	for _, t := range b.current.Tables() {
		fmt.Printf("\n%s", t)
	}
	fmt.Println()
	for _, note := range b.current.Notes {
		fmt.Printf("note: %s\n", note)
	}
	fmt.Printf("took %s\n\n", time.Since(began).Round(time.Second))
	return b.current, nil
}

// folder makes a folder for one start of a program.
func (b *bench) folder() (string, error) {
	b.starts++
	dir := filepath.Join(b.dir, fmt.Sprintf("run-%d", b.starts))
	return dir, os.Mkdir(dir, 0o700)
}

// each runs every subject of a case as often as figures are measured, in turns, so that
// what disturbs the machine for a while disturbs all of them.
func (b *bench) each(ctx context.Context, subjects []measurement) error {
	for n := range b.runs {
		for _, s := range subjects {
			if err := ctx.Err(); err != nil {
				return err
			}
			began := time.Now()
			if err := s.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Printf("run %d of %d: %s (%s)\n", n+1, b.runs, s.name, time.Since(began).Round(100*time.Millisecond))
		}
	}
	return nil
}

// measurement is one run of one subject of a case.
type measurement struct {
	name string
	run  func(context.Context) error
}
