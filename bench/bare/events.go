package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// message is an event with what kbridge puts beside it.
type message struct {
	value   []byte
	id      string // the Nats-Msg-Id
	subject string
	key     []byte // the Kafka key
}

// load reads events, one a line.
func load(file string) ([]message, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	var list []message
	for line := range bytes.Lines(data) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		var e struct{ ID, Source, Cluster, Group, Resource, Namespace, Name string }
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read event: %w", err)
		}
		if e.Group == "" {
			e.Group = "core"
		}
		list = append(list, message{
			value: line, id: e.Source + "/" + e.ID,
			subject: "k8s." + e.Cluster + "." + e.Group + "." + e.Resource + "." + e.Namespace + "." + e.Name,
			key:     []byte(e.Cluster + "/" + e.Group + "/" + e.Resource + "/" + e.Namespace + "/" + e.Name),
		})
	}
	return list, nil
}
