//go:build race

package test

// raceEnabled says that the tests run with the race detector, and so shall kbridge.
const raceEnabled = true
