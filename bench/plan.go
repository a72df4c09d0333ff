//go:build unix

package main

import "time"

// plan is how much is measured. Numbers are of objects or of changes.
type plan struct {
	quick bool
	runs  int

	objects int // in the cluster of a burst
	few     int // that change where changes keep to few objects
	many    int // in the cluster where changes are spread over all
	changes int // in a burst to /dev/null
	queued  int // in a burst to a broker
	large   int // changes of objects of 20 KB

	// The baseline is slower: with as much as kbridge gets it would take minutes.
	baseObjects, baseChanges int

	perSecond int           // changes, for latency
	latency   time.Duration // how long they go on

	memory    int           // objects in the cluster that is looked at for memory
	resync    time.Duration // when it is said again
	resyncFor time.Duration // how long that is looked at, at most

	// For growth.
	sizes         []int // of clusters whose needs are documented
	growthObjects []int
	growthChanges []int
}

// full takes less than 15 minutes on two cores, without growth.
var full = plan{
	objects: 10_000, few: 1_000, many: 30_000, changes: 80_000, queued: 50_000, large: 10_000,
	baseObjects: 2_000, baseChanges: 5_000,
	perSecond: 1_000, latency: 3 * time.Second,
	memory: 200_000, resync: 10 * time.Second, resyncFor: 10 * time.Second,
	sizes:         []int{1_000, 10_000, 100_000},
	growthObjects: []int{1_000, 10_000, 100_000, 300_000, 1_000_000},
	growthChanges: []int{10_000, 30_000, 100_000, 300_000},
}

// quick shows that everything works.
var quick = plan{
	quick: true, runs: 1,
	objects: 2_000, few: 200, many: 5_000, changes: 20_000, queued: 10_000, large: 2_000,
	baseObjects: 500, baseChanges: 2_000,
	perSecond: 1_000, latency: time.Second,
	memory: 20_000, resync: 10 * time.Second, resyncFor: 3 * time.Second,
	sizes:         []int{1_000, 10_000},
	growthObjects: []int{1_000, 10_000},
	growthChanges: []int{10_000, 30_000},
}
