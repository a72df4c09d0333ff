//go:build race

package informer

// raceAllocs are the allocations that the race detector adds to each event.
const raceAllocs = 1
