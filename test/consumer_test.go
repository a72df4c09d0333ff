package test

import (
	"encoding/json"
	"slices"
)

// consumer is the one that docs/EVENTS.md describes. It keeps a map of what is there.
type consumer struct {
	objects map[string]held
	last    map[string]last // by uid
	began   map[string]int  // by snapshot: the place of its first marker
}

// held is what the consumer has of an object that is there.
type held struct {
	uid, version             string
	source, entry, namespace string
	place                    int // of its last event
}

// last is what the consumer knows of the last event of a uid.
type last struct {
	epoch   uint32
	version string
	deleted bool
}

func newConsumer() *consumer {
	return &consumer{objects: map[string]held{}, last: map[string]last{}, began: map[string]int{}}
}

// apply takes the event at that place of the stream.
func (c *consumer) apply(place int, e cloudEvent) {
	switch {
	case e.Type == "dev.kbridge.snapshot.started":
		if _, begun := c.began[e.Snapshot]; !begun {
			c.began[e.Snapshot] = place
		}
	case e.Type == "dev.kbridge.snapshot.completed":
		c.sweep(e)
	case e.marker():
	default:
		c.change(place, e)
	}
}

// change takes an event of an object, unless it is older than what is known of the uid.
func (c *consumer) change(place int, e cloudEvent) {
	is := last{e.Epoch, e.ResourceVersion, e.short() == "deleted"}
	if was, known := c.last[e.UID]; known && (is.isOlder(was) || was.deleted && !was.isOlder(is)) {
		return
	}
	c.last[e.UID] = is
	switch {
	case !is.deleted:
		c.objects[e.object()] = held{uid: e.UID, version: e.ResourceVersion, source: e.Source, entry: e.Entry, namespace: e.Namespace, place: place}
	case c.objects[e.object()].uid == e.UID:
		delete(c.objects, e.object())
	}
}

// isOlder compares the epochs, and within one the versions. That a deletion which was found
// by comparison has the version before is no reason to pass over it.
func (l last) isOlder(than last) bool {
	if l.epoch != than.epoch {
		return l.epoch < than.epoch
	}
	return newer(than.version, l.version)
}

// sweep drops what is in the snapshot's scope and has had no event since its begin.
func (c *consumer) sweep(completed cloudEvent) {
	began, begun := c.began[completed.Snapshot]
	if !begun {
		return // it came too late for the begin
	}
	var data struct {
		Scope struct{ Namespaces, ExcludeNamespaces []string }
	}
	if err := json.Unmarshal(completed.Data, &data); err != nil {
		panic(err)
	}
	s := data.Scope
	for key, h := range c.objects {
		if h.place < began && h.source == completed.Source && h.entry == completed.Entry &&
			(completed.Namespace == "" || completed.Namespace == h.namespace) &&
			(len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, h.namespace)) && !slices.Contains(s.ExcludeNamespaces, h.namespace) {
			delete(c.objects, key)
		}
	}
}

// fold is what the documented consumer has after the events.
func fold(events []cloudEvent) state {
	c := newConsumer()
	for i, e := range events {
		c.apply(i, e)
	}
	s := state{}
	for key, h := range c.objects {
		s[key] = [2]string{h.uid, h.version}
	}
	return s
}
