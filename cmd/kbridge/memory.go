package main

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// GOGC where the environment does not say: garbage may be so much of what is in use, in
// percent; see docs/PERFORMANCE.md.
const (
	gcPercent = 40
	// Until the first lists are with the sinks and stored, which needs more than the index
	// by itself.
	listPercent = 20
	// After which it is gcPercent anyway: a resource or a sink may be missing for days.
	listLimit = 2 * time.Minute
)

// boundMemory lets the heap grow to nine tenths of the container's memory limit at most,
// and garbage to less than Go's default.
func boundMemory(log *slog.Logger) {
	if limit, err := memlimit.Set(); err != nil {
		log.Warn("the container's memory limit is not known: set GOMEMLIMIT where there is one", "err", err)
	} else if limit == math.MaxInt64 {
		log.Debug("no memory limit is known, and the heap is not bounded")
	} else {
		log.Debug("the heap is bounded", "bytes", limit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(listPercent)
	}
}

// releaseMemory gives back what the first lists took, once all is told that they found.
func releaseMemory(ctx context.Context, settled func() bool) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	began, listing := time.Now(), os.Getenv("GOGC") == ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		done := settled()
		if listing && (done || time.Since(began) > listLimit) {
			listing = false
			debug.SetGCPercent(gcPercent)
		}
		if done {
			debug.FreeOSMemory()
			return
		}
	}
}
