//go:build unix

package main

import "github.com/kbridge-io/kbridge/bench/report"

// targets are what kbridge is to reach on two cores, with the brokers on the same
// machine.
var targets = []report.Target{
	{Case: "stdout", Subject: stateOn, Metric: cpuPerEvent.Name, Limit: 25},
	{Case: "stdout", Subject: baseline, Metric: ratioCPU.Name, Limit: 15, AtLeast: true},
	{Case: "stdout", Subject: stateSpread, Metric: cpuPerEvent.Name, Limit: 40},
	{Case: "stdout", Subject: stateOn, Metric: eventsPerSecond.Name, Limit: 40_000, AtLeast: true},
	{Case: "stdout", Subject: stateOn, Metric: allocsPerEvent.Name, Limit: 12},
	{Case: "jetstream", Subject: stateOn, Metric: eventsPerSecond.Name, Limit: 20_000, AtLeast: true},
	{Case: "jetstream", Subject: stateOn, Metric: ratioBare.Name, Limit: 70, AtLeast: true},
	{Case: "kafka", Subject: stateOn + ", zstd", Metric: eventsPerSecond.Name, Limit: 20_000, AtLeast: true},
	{Case: "kafka", Subject: stateOn + ", zstd", Metric: ratioBare.Name, Limit: 70, AtLeast: true},
	{Case: "kafka", Subject: stateOn + ", lz4", Metric: eventsPerSecond.Name, Limit: 20_000, AtLeast: true},
	{Case: "kafka", Subject: stateOn + ", lz4", Metric: ratioBare.Name, Limit: 70, AtLeast: true},
	{Case: "latency", Subject: "stdout, state on", Metric: latency99.Name, Limit: 5},
	{Case: "latency", Subject: "JetStream, state on", Metric: latency99.Name, Limit: 15},
	{Case: "memory", Subject: stateOn, Metric: memPerObject.Name, Limit: 800},
	{Case: "memory", Subject: stateOn, Metric: memRatio.Name, Limit: 1.5},
	{Case: "memory", Subject: resumed, Metric: latency99.Name, Limit: 50},
}
