//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/internal/embedded"
)

// received is what is compared of an event.
type received struct {
	ID              string
	Type            string
	Cluster         string
	Group           string
	Resource        string
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	Data            struct {
		Count    int // of a snapshot's end
		Kind     string
		Metadata struct{ UID, Name, ResourceVersion string }
	}
}

func (r *received) resource() string {
	if r.Group != "" {
		return r.Resource + "." + r.Group
	}
	return r.Resource
}

func (r *received) String() string {
	return strings.TrimPrefix(r.Type, "dev.kbridge.object.") + " " + r.resource() + " " + r.Namespace + "/" + r.Name
}

// marker is what the event says of a snapshot, as kbridge tail has it.
func (r *received) marker() (string, bool) {
	end, ok := strings.CutPrefix(r.Type, "dev.kbridge.snapshot.")
	line := r.resource() + " " + end + " in " + r.Namespace
	if end == "completed" {
		line += fmt.Sprintf(", %d objects", r.Data.Count)
	}
	return line, ok
}

// verify compares what the stream has stored with what was done, all of it and no
// more, and looks for the Secret's value everywhere.
func (d *demo) verify(ctx context.Context, steps []step, secret secretValue, shown *transcript) error {
	messages, err := d.stored(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var got, want, snapshots []string
	for _, m := range messages {
		var r received
		if err := json.Unmarshal(m.Data(), &r); err != nil {
			return fmt.Errorf("read the event on %s: %w", m.Subject(), err)
		}
		if line, ok := r.marker(); ok {
			snapshots = append(snapshots, line)
			if len(got) > 0 {
				errs = append(errs, fmt.Errorf("a snapshot after the first events: %s", line))
			}
			continue
		}
		if len(got) < len(steps) {
			errs = append(errs, r.check(steps[len(got)], m.Headers().Get(jetstream.MsgIDHeader)))
		}
		got = append(got, r.String())
	}
	for _, s := range steps {
		want = append(want, s.event+" "+s.resource+" "+s.name)
	}
	// Each change was made when the event of the one before had come, so the whole
	// stream is in order, not only the events of one object.
	if g, w := strings.Join(got, "\n  "), strings.Join(want, "\n  "); g != w {
		errs = append(errs, fmt.Errorf("the stream has\n  %s\nexpected\n  %s", g, w))
	}
	errs = append(errs, checkMarkers(snapshots))
	errs = append(errs, d.search(secret, messages, shown))
	return errors.Join(errs...)
}

// check compares an event with its step, but for what String tells.
func (r *received) check(s step, dedup string) error {
	id := r.UID + "." + r.ResourceVersion
	if s.event == "deleted" {
		id = r.UID + ".deleted"
	}
	switch {
	case r.UID == "" || r.ID != id || !strings.HasSuffix(dedup, "/"+id):
		return fmt.Errorf("%s: the event's id is %q, and its message's %q, expected %q", s.what, r.ID, dedup, id)
	case s.version != "" && r.ResourceVersion != s.version:
		return fmt.Errorf("%s: the event's version is %s, the API server's answer was %s", s.what, r.ResourceVersion, s.version)
	case r.Cluster != "demo" || r.Data.Kind == "" || r.Data.Metadata.UID != r.UID || r.Data.Metadata.Name != r.Name || r.Data.Metadata.ResourceVersion != r.ResourceVersion:
		return fmt.Errorf("%s: the event %+v and its object do not agree", s.what, *r)
	}
	return nil
}

// stored reads all of the stream, from the store that kbridge has left.
func (d *demo) stored(ctx context.Context) ([]jetstream.Msg, error) {
	dir := filepath.Join(d.data(), "embedded")
	server, err := embedded.Start(embedded.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	login, err := nats.NkeyOptionFromSeed(embedded.KeyFile(dir))
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	nc, err := nats.Connect(server.URL(), login)
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := js.Stream(ctx, "KBRIDGE")
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	it, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("read the stream: %w", err)
	}
	defer it.Stop()
	var messages []jetstream.Msg
	for n := stream.CachedInfo().State.Msgs; n > 0; n-- {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the stream: %w", err)
		}
		messages = append(messages, m)
	}
	return messages, nil
}

// search looks for the Secret's value in the events, in the logs, in what was shown,
// and in every file that kbridge has written.
func (d *demo) search(secret secretValue, messages []jetstream.Msg, shown *transcript) error {
	places := map[string][]byte{
		"kbridge's log":              []byte(d.log.String()),
		"the output of kbridge tail": []byte(shown.String()),
	}
	for i, m := range messages {
		places["event "+strconv.Itoa(i+1)] = fmt.Appendf(nil, "%s %v %s", m.Subject(), m.Headers(), m.Data())
	}
	err := filepath.WalkDir(d.data(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		places[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return fmt.Errorf("search for the Secret's value: %w", err)
	}
	var errs []error
	inEvents, inFiles := false, false
	for _, place := range slices.Sorted(maps.Keys(places)) {
		text := places[place]
		if bytes.Contains(text, []byte(canary)) {
			inEvents = inEvents || strings.HasPrefix(place, "event ")
			inFiles = inFiles || strings.HasPrefix(place, d.data())
		}
		if slices.ContainsFunc(secret.forms(), func(form string) bool { return bytes.Contains(text, []byte(form)) }) {
			errs = append(errs, fmt.Errorf("the Secret's value is in %s", place))
		}
	}
	if !inEvents || !inFiles {
		errs = append(errs, errors.New("the search for the Secret's value proves nothing: it does not find what must be there either"))
	}
	return errors.Join(errs...)
}
