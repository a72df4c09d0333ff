// Package check owns how it is told what a start would find: findings, and the fixed
// form in which they are printed, and the time that a check may take. What is looked at,
// and how, is left to the packages whose business it is.
package check

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Group is a part of what a start needs.
type Group string

// The groups, in the order in which they are looked at.
const (
	Config      Group = "config"
	Cluster     Group = "cluster"
	Resources   Group = "resources"
	Permissions Group = "permissions"
	Sinks       Group = "sinks"
	State       Group = "state"
	Tracing     Group = "tracing"
)

// Outcome says what a finding means for a start.
type Outcome string

// The outcomes.
const (
	// OK is as the configuration has it.
	OK Outcome = "ok"
	// Warning keeps nothing from working, and should be known.
	Warning Outcome = "warning"
	// Gap is what a start would wait for, or end with, or what could not be found out.
	Gap Outcome = "gap"
	// Skipped was not looked at, because of a gap that was found before.
	Skipped Outcome = "skipped"
)

// Finding is one thing that was found out.
type Finding struct {
	Group   Group   `json:"group"`
	Outcome Outcome `json:"outcome"`
	// Subject is what was looked at, and Text what was found. Both may have any characters:
	// what prints them escapes those that are none.
	Subject string `json:"subject"`
	Text    string `json:"text"`
	// Mend is what mends a gap, nil where no more is known than the text says. Its String
	// is one line.
	Mend fmt.Stringer `json:"mend,omitempty"`
}

// Subject collects the findings about one thing. One goroutine uses it.
type Subject struct {
	Group    Group
	Name     string
	Findings []Finding
}

func (s *Subject) add(o Outcome, format string, args []any) {
	s.Findings = append(s.Findings, Finding{Group: s.Group, Outcome: o, Subject: s.Name, Text: fmt.Sprintf(format, args...)})
}

// OK notes what is as it should be.
func (s *Subject) OK(format string, args ...any) { s.add(OK, format, args) }

// Warn notes what should be known.
func (s *Subject) Warn(format string, args ...any) { s.add(Warning, format, args) }

// Gap notes what keeps a start from working.
func (s *Subject) Gap(format string, args ...any) { s.add(Gap, format, args) }

// GapMendedBy notes a gap of which it is known what mends it.
func (s *Subject) GapMendedBy(mend fmt.Stringer, format string, args ...any) {
	s.add(Gap, format, args)
	s.Findings[len(s.Findings)-1].Mend = mend
}

// Skip notes what was not looked at, and why.
func (s *Subject) Skip(format string, args ...any) { s.add(Skipped, format, args) }

// grace is what a check that ends with its context gets to say so.
const grace = time.Second

// Run runs one check, whose context ends after limit, and returns what it found. One that
// hangs all the same is left behind and is a gap.
func Run(ctx context.Context, limit time.Duration, group Group, name string, do func(context.Context, *Subject)) []Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	found := make(chan []Finding, 1)
	go func() {
		s := &Subject{Group: group, Name: name}
		do(ctx, s)
		found <- s.Findings
	}()
	select {
	case findings := <-found:
		return findings
	case <-ctx.Done():
	}
	select {
	case findings := <-found:
		return findings
	case <-time.After(grace):
		s := &Subject{Group: group, Name: name}
		s.Gap("it hangs: %v", context.Cause(ctx))
		return s.Findings
	}
}

// atOnce is how many checks run at the same time.
const atOnce = 8

// Each runs n checks, several at once, and returns their findings in order.
func Each(n int, run func(i int) []Finding) []Finding {
	found := make([][]Finding, n)
	var all sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			found[i] = run(i)
		})
	}
	all.Wait()
	var findings []Finding
	for _, f := range found {
		findings = append(findings, f...)
	}
	return findings
}

// Reason is why a check failed: that its time is over says more than what failed with it.
func Reason(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done() // what failed may have had the deadline too, and be a little faster
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
