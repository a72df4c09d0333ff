package event

import (
	"encoding/json"
	"fmt"
)

// Truncate replaces the event's data, where the broker does not take all of it, by
// the object's apiVersion, kind and metadata, and marks the event. It is for the
// rare event that is too large, and decodes.
func (e *Event) Truncate() error {
	data := json.RawMessage(e.Value)
	if e.Format == Structured {
		var document struct{ Data json.RawMessage }
		if err := json.Unmarshal(e.Value, &document); err != nil {
			return fmt.Errorf("truncate event %s: %w", e.ID, err)
		}
		data = document.Data
	}
	type object struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   json.RawMessage `json:"metadata"`
	}
	var kept any = &object{}
	if e.Resource.Change {
		kept = &struct {
			Object object `json:"object"`
		}{}
	}
	if err := json.Unmarshal(data, kept); err != nil {
		return fmt.Errorf("truncate event %s: %w", e.ID, err)
	}
	body, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("truncate event %s: %w", e.ID, err)
	}
	e.Truncated = true
	e.setData(body)
	return nil
}
