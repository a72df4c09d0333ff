package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// gcPercent is GOGC where the environment does not say: the index, which is most of
// the heap, has few pointers, so that a collection is cheap; see docs/PERFORMANCE.md.
const gcPercent = 40

// listPercent is GOGC until the first lists are with the sinks and stored: what they take
// beside the index is not to be doubled by garbage.
const listPercent = 10

// boundMemory lets the heap grow to nine tenths of the container's memory limit at most,
// and garbage to less than Go's default.
func boundMemory(log *slog.Logger) {
	if limit, err := memlimit.Set(); err != nil {
		log.Warn("the container's memory limit is not known: set GOMEMLIMIT where there is one", "err", err)
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
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if settled() {
				if os.Getenv("GOGC") == "" {
					debug.SetGCPercent(gcPercent)
				}
				debug.FreeOSMemory()
				return
			}
		}
	}
}
