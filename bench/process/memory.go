//go:build unix

package process

import (
	"context"
	"slices"
	"sync"
	"time"
)

// samplePeriod is how often memory is looked at. A peak that is shorter is missed.
const samplePeriod = 20 * time.Millisecond

// Peak looks at the program's memory until the returned function is called, which
// returns the most it had, in bytes.
func (p *Process) Peak() (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var peak int64
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for ctx.Err() == nil {
			now, err := p.Memory()
			if err != nil {
				return // it has ended
			}
			peak = max(peak, now)
			_ = sleep(ctx, samplePeriod) // its end is the loop's
		}
	})
	return func() int64 {
		cancel()
		sampling.Wait()
		return peak
	}
}

// Settled waits until the program's memory stays as it is: for a quiet time it moves by
// less than a hundredth. It returns the mean of that time, or of the last such time
// before the limit.
func (p *Process) Settled(ctx context.Context, quiet, limit time.Duration) (int64, error) {
	const pause = 100 * time.Millisecond
	n := int(quiet / pause)
	var samples []int64
	for deadline := time.Now().Add(limit); ; {
		now, err := p.Memory()
		if err != nil {
			return 0, err
		}
		samples = append(samples, now)
		if len(samples) > n {
			samples = samples[1:]
		}
		if len(samples) == n && steady(samples) || time.Now().After(deadline) {
			return mean(samples), nil
		}
		if err := sleep(ctx, pause); err != nil {
			return 0, err
		}
	}
}

func steady(samples []int64) bool {
	low, high := slices.Min(samples), slices.Max(samples)
	return (high-low)*100 < high
}

func mean(samples []int64) int64 {
	sum := int64(0)
	for _, s := range samples {
		sum += s
	}
	return sum / int64(len(samples))
}
