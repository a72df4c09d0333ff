package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/embedded"
	"github.com/kbridge-io/kbridge/internal/tail"
)

// tailOptions are the flags of `kbridge tail`.
type tailOptions struct {
	config  string
	sink    string
	dataDir string
	// dataDirGiven says that the command line names it.
	dataDirGiven bool
	output       string
	filter       string
	since        string
	all          bool
	count        int
	color        string
}

func tailCommand(stdout, stderr io.Writer) *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Shows the events that were published, as they come",
		Long: `Shows the events of a NATS or Kafka sink, one line each, as they come: time, type,
resource, namespace/name, resourceVersion, and what an update changed. Where a
snapshot begins and ends there is a line too.

It reads the stream of the configuration's NATS sink, or the topics of its Kafka
sink, with that sink's credentials. Without --config, or where the configuration has
no sink, it reads from the embedded server of the kbridge that runs with the same
--data-dir or, if the configuration has state, beside that state. It waits for a
server, a stream or a topic that is not there yet, and goes on after a lost
connection.

Of Kafka it reads all topics that the sink's template can have made, also those that
come up later, and joins no consumer group. Events of one object come in their order,
others roughly by their time.

An update is compared with the state of the object that was shown before it, or
with the event's oldObject ('data: change'). Values in Secrets are never shown in
lines; -o json shows what is in the event.

With a NATS sink --filter takes a subject: '*' stands for one token, '>' for the
rest. With the default subjects, k8s.CLUSTER.GROUP.RESOURCE.NAMESPACE.NAME, in which the core group
is 'core', no namespace is '_', and a dot inside a name is %2E:

  k8s.*.core.pods.>                     all pods
  k8s.*.*.*.shop.>                      everything in the namespace shop
  k8s.*.apps.deployments.shop.checkout  one deployment

With a Kafka sink --filter takes a pattern of whole topics: '*' stands for any text,
dots too, '?' for one character, '[ab]' for one of these. With the default topics,
k8s.GROUP.RESOURCE:

  k8s.core.*                            everything in the core group
  k8s.*.deployments                     all deployments

With either, --filter takes words: cluster, entry, group, resource, kind, namespace, name and type,
each with a value, or several of which one has to fit. All words have to. The events of the whole
stream are read for it, and those that fit are shown:

  kind=Deployment namespace=shop        what happens to the deployments of shop
  type=deleted                          all that is deleted
  namespace=shop,billing type=added     what is new in two namespaces`,
		Example: `  kbridge tail
  kbridge tail --config kbridge.yaml --sink live --since 10m
  kbridge tail --config kbridge.yaml --sink audit --filter 'k8s.core.*'
  kbridge tail --filter 'kind=Pod namespace=shop type=deleted'
  kbridge tail --filter 'k8s.*.core.pods.>' -o json | jq .data.status.phase`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.dataDirGiven = cmd.Flags().Changed("data-dir")
			read, err := o.reading(time.Now())
			if err != nil {
				return err
			}
			read.Event = o.printing(stdout)
			read.Note = func(text string) { fmt.Fprintln(stderr, "kbridge: "+tail.Printable(text)) }
			return tail.Run(cmd.Context(), read)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "the configuration file (default: the embedded server)")
	f.StringVar(&o.sink, "sink", "", "the NATS or Kafka sink to read from (default: the only one); "+embeddedSink+" is the embedded server")
	f.StringVar(&o.dataDir, "data-dir", defaultDataDir(), "the data-dir of the kbridge that runs the embedded server, unless the configuration has state: then it is beside that")
	f.StringVarP(&o.output, "output", "o", "text", "text, or json: a CloudEvent a line")
	f.StringVar(&o.filter, "filter", "", "only events that fit words, such as 'kind=Pod namespace=shop type=deleted'; or on these subjects, such as 'k8s.*.core.pods.>', or with a Kafka sink in these topics, such as 'k8s.core.*'")
	f.StringVar(&o.since, "since", "", "also events since then: 10m, or 2026-11-30T04:18:07Z (default: only new ones)")
	f.BoolVar(&o.all, "all", false, "also all events that the stream or the topics still have")
	f.IntVar(&o.count, "count", 0, "end after so many events")
	f.StringVar(&o.color, "color", "auto", "auto, always or never; auto obeys NO_COLOR")
	if err := cmd.MarkFlagFilename("config", "yaml", "yml"); err != nil {
		panic("BUG: " + err.Error())
	}
	return cmd
}

// reading turns the flags into what to read.
func (o *tailOptions) reading(now time.Time) (tail.Options, error) {
	read := tail.Options{Filter: o.filter, All: o.all, Count: o.count}
	var problems []error
	wrong := func(flag, value, want string) {
		problems = append(problems, fmt.Errorf("--%s %q: expected %s", flag, value, want))
	}
	if o.output != "text" && o.output != "json" {
		wrong("output", o.output, "text or json")
	}
	if !slices.Contains([]string{"auto", "always", "never"}, o.color) {
		wrong("color", o.color, "auto, always or never")
	}
	if o.count < 0 {
		wrong("count", fmt.Sprint(o.count), "a number of events")
	}
	if o.since != "" {
		var ok bool
		if read.Since, ok = parseSince(o.since, now); !ok {
			wrong("since", o.since, "a duration such as 10m, or a time such as "+now.UTC().Format(time.RFC3339))
		}
		if o.all {
			problems = append(problems, errors.New("--since beside --all: expected one of the two"))
		}
	}
	if tail.IsWords(o.filter) {
		var err error
		if read.Match, err = tail.Match(o.filter); err != nil {
			problems = append(problems, fmt.Errorf("--filter %q: %w", o.filter, err))
		}
		o.filter, read.Filter = "", ""
	}
	if len(problems) > 0 {
		return read, usageError{errors.Join(problems...)}
	}
	var sinks []config.Sink
	if o.config != "" {
		cfg, err := loadConfig(o.config)
		if err != nil {
			return read, err
		}
		sinks = cfg.Sinks
		if cfg.State != nil && !o.dataDirGiven {
			o.dataDir = cfg.State.File.Dir // as run has it
		}
	}
	sink, err := pickSink(sinks, o.sink)
	if err != nil {
		return read, usageError{err}
	}
	switch {
	case sink != nil && sink.Kafka != nil:
		read.Source = tail.Kafka{Config: *sink.Kafka}
		if o.filter != "" && !isTopicPattern(o.filter) {
			wrong("filter", o.filter, "a pattern of topics such as k8s.core.*, as the sink is a Kafka sink")
		}
	case sink != nil:
		read.Source = tail.JetStream{Where: func() (config.NATS, error) { return *sink.NATS, nil }}
	default:
		read.Source = tail.JetStream{Where: o.embedded, ServerName: embeddedServerName}
	}
	if _, ok := read.Source.(tail.JetStream); ok && o.filter != "" && !isSubject(o.filter) {
		wrong("filter", o.filter, "a NATS subject such as k8s.*.core.pods.>")
	}
	if len(problems) > 0 {
		return read, usageError{errors.Join(problems...)}
	}
	return read, nil
}

// embedded is where the embedded server of the data directory listens now.
func (o *tailOptions) embedded() (config.NATS, error) {
	url, err := embedded.Address(embeddedDir(o.dataDir))
	if err != nil {
		return config.NATS{}, fmt.Errorf("no kbridge runs with --embedded here: %s has no address of one; start it with the same --data-dir, or give --config for its sink or its state", o.dataDir)
	}
	return *embeddedConfig(url, o.dataDir, embeddedStream).NATS, nil
}

// embeddedServerName is what the embedded server calls itself. An address may be left
// over from a kbridge that was killed, and be another server's now.
const embeddedServerName = "kbridge-embedded"

// pickSink returns the sink to read from, nil for the embedded server.
func pickSink(sinks []config.Sink, name string) (*config.Sink, error) {
	var names []string
	var picked *config.Sink
	for i := range sinks {
		s := &sinks[i]
		readable := s.NATS != nil || s.Kafka != nil
		switch {
		case name == s.Name && !readable:
			return nil, fmt.Errorf("--sink %s: it is no NATS or Kafka sink, and only those can be read from", name)
		case name == s.Name:
			return s, nil
		case readable:
			names = append(names, s.Name)
			picked = s
		}
	}
	have := "the configuration has no NATS or Kafka sink"
	if len(names) > 0 {
		have = "the sinks that can be read are " + strings.Join(names, ", ")
	}
	switch {
	case name == embeddedSink || name == "" && len(sinks) == 0:
		return nil, nil
	case name != "":
		return nil, fmt.Errorf("--sink %q: no such sink; %s", name, have)
	case len(names) != 1:
		return nil, fmt.Errorf("--sink is required, as %s; '--sink %s' is the server of 'kbridge run --embedded'", have, embeddedSink)
	}
	return picked, nil
}

// parseSince reads a duration before now, or a time.
func parseSince(s string, now time.Time) (time.Time, bool) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), d > 0
	}
	at, err := time.Parse(time.RFC3339, s)
	return at, err == nil
}

// isSubject reports whether s has the form of a subject, with or without wildcards.
func isSubject(s string) bool {
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		last := i == len(tokens)-1
		if t == "" || strings.ContainsFunc(t, unicode.IsSpace) || len(t) > 1 && strings.ContainsAny(t, "*>") || t == ">" && !last {
			return false
		}
	}
	return true
}

// isTopicPattern reports whether s is a pattern as path.Match has it that a topic's
// name can match.
func isTopicPattern(s string) bool {
	_, err := path.Match(s, "")
	return err == nil && topicPattern.MatchString(s)
}

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._*?^\[\]-]+$`)

// printing returns what prints an event.
func (o *tailOptions) printing(stdout io.Writer) func(*tail.Event) error {
	if o.output == "json" {
		return func(e *tail.Event) error {
			line, err := e.JSON()
			if err != nil {
				return err
			}
			if _, err := stdout.Write(append(line, '\n')); err != nil {
				return fmt.Errorf("print event: %w", err)
			}
			return nil
		}
	}
	p := &tail.Printer{Out: stdout, Colour: o.color == "always", Today: time.Now().Format(time.DateOnly)}
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.Colour = p.Colour || o.color == "auto" && os.Getenv("NO_COLOR") == ""
		p.Width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0
			}
			return width
		}
	}
	return p.Print
}
