//go:build !race

package informer

const raceAllocs = 0
