//go:build unix

package sinktest

import (
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Measure runs the benchmark and reports acknowledged events a second.
func Measure(b *testing.B, publish func(n int, done func(error))) {
	var all sync.WaitGroup
	var failed error
	var before, after runtime.MemStats
	all.Add(b.N)
	b.ResetTimer()
	runtime.ReadMemStats(&before)
	cpu := cpuTime(b)
	began := time.Now()
	publish(b.N, func(err error) {
		if err != nil {
			failed = err
		}
		all.Done()
	})
	all.Wait()
	b.StopTimer()
	cpu = cpuTime(b) - cpu
	runtime.ReadMemStats(&after)
	if failed != nil {
		b.Fatal(failed)
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "acks/s")
	// Of this process, the broker not counted: the figure that other load on the
	// machine does not change much.
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-us/event")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/event")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
