package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// message is a part of govulncheck's output, https://pkg.go.dev/golang.org/x/vuln/internal/govulncheck.
type message struct {
	Config *struct {
		ScanLevel string `json:"scan_level"`
	}
	OSV *struct {
		ID, Summary string
	}
	Finding *struct {
		OSV   string
		Fixed string `json:"fixed_version"`
		Trace []frame
	}
}

// frame is a step from what is vulnerable, first, to kbridge's code. It has a function only where that is called.
type frame struct {
	Module, Version, Package, Receiver, Function string
}

const standardLibrary = "stdlib"

// finding is a vulnerability that is reached.
type finding struct {
	id, module, version, fixed string
	from                       string // the function of kbridge by which it is reached
}

// report is what a scan has found.
type report struct {
	findings  []finding // by id, one for each module
	summaries map[string]string
	unreached int // vulnerabilities of required modules that kbridge's code does not reach
}

// read reads the messages. A report without the scan's configuration, or of another scan than one by functions, is an error.
func read(r io.Reader) (report, error) {
	found := report{summaries: map[string]string{}}
	reached, known := map[string]bool{}, map[string]bool{}
	level := ""
	for decoder := json.NewDecoder(r); ; {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return report{}, fmt.Errorf("read govulncheck's report: %w", err)
		}
		switch {
		case m.Config != nil:
			level = m.Config.ScanLevel
		case m.OSV != nil:
			found.summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) > 0:
			first, last := m.Finding.Trace[0], m.Finding.Trace[len(m.Finding.Trace)-1]
			known[m.Finding.OSV] = true
			if key := m.Finding.OSV + first.Module; first.Function != "" && !reached[key] {
				reached[key], reached[m.Finding.OSV] = true, true
				found.findings = append(found.findings, finding{
					id: m.Finding.OSV, module: first.Module, version: first.Version, fixed: m.Finding.Fixed,
					from: strings.TrimPrefix(last.Package+"."+last.Function, "github.com/kbridge-io/kbridge/"),
				})
			}
		}
	}
	if level != "symbol" {
		return report{}, fmt.Errorf("read govulncheck's report: its scan level is %q, want symbol", level)
	}
	for id := range known {
		if !reached[id] {
			found.unreached++
		}
	}
	slices.SortFunc(found.findings, func(a, b finding) int { return strings.Compare(a.id+a.module, b.id+b.module) })
	return found, nil
}

// judge prints what was found, and says whether it is a failure.
func (r report) judge(out io.Writer, std bool) error {
	var modules, library int
	for _, f := range r.findings {
		if modules++; f.module == standardLibrary {
			modules, library = modules-1, library+1
		}
		fixed := "not fixed yet"
		if f.fixed != "" {
			fixed = "fixed in " + f.fixed
		}
		fmt.Fprintf(out, "%s %s\n    %s %s, %s; reached from %s\n", f.id, r.summaries[f.id], f.module, f.version, fixed, f.from)
	}
	fmt.Fprintf(out, "vulncheck: kbridge's code reaches %d vulnerabilities of modules and %d of the standard library; %d more are in required modules and not reached\n",
		modules, library, r.unreached)
	switch {
	case modules > 0:
		return fmt.Errorf("%d vulnerabilities of modules are reached: update them in go.mod", modules)
	case library > 0 && std:
		return fmt.Errorf("%d vulnerabilities of the standard library are reached: build with a compiler that has the fixes", library)
	}
	return nil
}
