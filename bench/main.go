//go:build unix

// Command bench measures kbridge: the program itself, as a process, between an API
// server that is faster than it and real brokers. `make bench` runs it.
//
// Everything it starts listens on 127.0.0.1, on ports that the kernel picked, and ends
// with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/bench/report"
)

// Where figures go, from the repository's root.
const (
	resultsFile  = "bench/results.json"
	docsFile     = "docs/performance.json"
	documentFile = "docs/PERFORMANCE.md"
	plotsDir     = "docs"
)

type options struct {
	run     string
	runs    int
	quick   bool
	out     string
	update  bool
	profile string
	list    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once, and with it its children
	var o options
	flag.StringVar(&o.run, "run", "", "a regular expression of the cases to run (default: all but those of growth, which take longer)")
	flag.IntVar(&o.runs, "n", 5, "how often each figure is measured")
	flag.BoolVar(&o.quick, "quick", false, "small sizes, one run: shows that the bench works, and no more")
	flag.StringVar(&o.out, "out", resultsFile, "the file of figures; cases that are not run keep theirs")
	flag.BoolVar(&o.update, "update", false, "also write the figures into docs/: performance.json, PERFORMANCE.md and the plots")
	flag.StringVar(&o.profile, "profile", "", "a folder for CPU profiles of kbridge, one a case and subject; such figures are not for -update")
	flag.BoolVar(&o.list, "list", false, "list the cases")
	flag.Parse()
	err := run(ctx, o)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: stopped")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.update && (o.quick || o.profile != "") {
		return errors.New("-update is for figures that mean something: without -quick and -profile")
	}
	chosen, err := choose(o.run)
	if err != nil {
		return err
	}
	if o.list {
		for _, c := range chosen {
			fmt.Printf("%-16s %s\n", c.name, c.what)
		}
		return nil
	}
	b := newBench(o)
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.open(ctx); err != nil {
		return err
	}
	results, err := report.Read(o.out)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, c := range chosen {
		done, err := b.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results.Put(done)
		if err := results.Write(o.out); err != nil {
			return err
		}
		if o.update {
			if err := update(done); err != nil {
				return err
			}
		}
	}
	fmt.Printf("== targets (of all that was measured so far)\n\n%s\n", report.Verdicts(results.Check(targets)))
	fmt.Printf("done in %s; figures are in %s\n", time.Since(began).Round(time.Second), o.out)
	return nil
}

// update brings the figures of a case into the documentation.
func update(measured *report.Case) error {
	docs, err := report.Read(docsFile)
	if err != nil {
		return err
	}
	docs.Put(measured)
	if err := docs.Write(docsFile); err != nil {
		return err
	}
	if panels := plots[measured.Name]; panels != nil {
		if err := measured.Plot(filepath.Join(plotsDir, measured.Name), panels); err != nil {
			return err
		}
	}
	return docs.Update(documentFile, targets)
}

// choose returns the cases whose names match; with no expression, those that are not
// for a run of their own.
func choose(expression string) ([]benchCase, error) {
	if expression == "" {
		var chosen []benchCase
		for _, c := range cases {
			if !c.alone {
				chosen = append(chosen, c)
			}
		}
		return chosen, nil
	}
	matcher, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var chosen []benchCase
	for _, c := range cases {
		if matcher.MatchString(c.name) {
			chosen = append(chosen, c)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run: no case matches %q, see -list", expression)
	}
	return chosen, nil
}
