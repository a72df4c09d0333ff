// Command bare is the bench's clients that do one end of kbridge's work and nothing
// else: what they reach is what kbridge could reach at most, on the same machine with the
// same servers.
//
//	bare read -watch URL -ca FILE   reads a watch and throws it away
//	bare nats FLAGS                 publishes events to JetStream and waits for all acknowledgements
//	bare kafka FLAGS                produces them to Kafka, acks all, likewise
//
// The events are those of a run of kbridge, one a line, so that the bytes are the same.
// With -watch an event is sent for each frame that a watch brings: both ends of kbridge's
// work, and nothing between them.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("expected read, nats or kafka")
	}
	var w watch
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	file := flags.String("events", "", "the file of events")
	address := flags.String("address", "", "the broker's URL or address")
	name := flags.String("name", "", "the stream or topic, which is there")
	compression := flags.String("compression", "zstd", "zstd or lz4, for kafka")
	flags.StringVar(&w.url, "watch", "", "the URL of a watch; without one, events are sent at once")
	flags.StringVar(&w.ca, "ca", "", "the file of the API server's CA")
	flags.IntVar(&w.skip, "skip", 0, "frames of the watch for which nothing is sent")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "read" {
		return w.discard()
	}
	events, err := load(*file)
	if err != nil {
		return err
	}
	switch args[0] {
	case "nats":
		return measure(len(events), w, func(next func() error) error { return publish(*address, *name, events, next) })
	case "kafka":
		return measure(len(events), w, func(next func() error) error { return produce(*address, *name, *compression, events, next) })
	default:
		return fmt.Errorf("unknown client %q", args[0])
	}
}

// Result is what is printed, as one line of JSON.
type Result struct {
	Events  int
	Elapsed time.Duration // from the first event's sending to the last acknowledgement
	CPU     time.Duration // of this process in that time
}

// measure runs do, which calls next before each event, once it is connected.
func measure(count int, w watch, do func(next func() error) error) error {
	var began time.Time
	var used time.Duration
	wait := func() error { return nil }
	if w.url != "" {
		frames, err := w.open()
		if err != nil {
			return err
		}
		defer frames.close()
		wait = frames.next
	}
	if err := do(func() error {
		err := wait()
		if began.IsZero() {
			began, used = time.Now(), cpu()
		}
		return err
	}); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Result{Events: count, Elapsed: time.Since(began), CPU: cpu() - used})
}

// cpu is what this process has used.
func cpu() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // can not fail
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
