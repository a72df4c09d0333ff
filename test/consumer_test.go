package test

import "github.com/kbridge-io/kbridge/examples/consumer/mirror"

// fold is what the documented consumer has after the events.
func fold(events []cloudEvent) state {
	m, names := mirror.New(), map[string]string{}
	for i, e := range events {
		told := mirror.Event{
			ID: e.ID, Type: e.Type, Resource: e.Resource, Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion,
			Entry: e.Entry, Epoch: e.Epoch, Snapshot: e.Snapshot, Inferred: e.Inferred, Data: e.Data,
		}
		m.Apply(int64(i), told)
		names[told.Key()] = e.object()
	}
	s := state{}
	m.Each(func(key string, o *mirror.Object) { s[names[key]] = [2]string{o.UID, o.Version} })
	return s
}
