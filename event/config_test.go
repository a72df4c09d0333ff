package event_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
)

// checkSubject has the configuration judge a subject template.
func checkSubject(template string) error {
	_, err := config.Parse("f.yaml", fmt.Appendf(nil, "resources: [{resource: pods}]\nsinks: [{name: live, nats: {urls: ['nats://n:4222'], subject: %q}}]", template))
	return err
}

func TestTheConfigurationAndTheEventsKnowTheSamePlaceholders(t *testing.T) {
	names := event.Placeholders()
	for _, name := range names {
		if err := checkSubject("k8s.{" + name + "}"); err != nil {
			t.Errorf("the configuration refuses {%s}: %v", name, err)
		}
	}
	// The configuration names all those it knows when it meets another.
	var problem *config.Error
	if err := checkSubject("k8s.{nonsense}"); !errors.As(err, &problem) {
		t.Fatalf("the configuration takes {nonsense}: %v", err)
	}
	_, list, found := strings.Cut(problem.Error(), "it may be one of ")
	if !found {
		t.Fatal(problem)
	}
	known := strings.Split(strings.TrimRight(strings.Split(list, "\n")[0], ".) "), ", ")
	slices.Sort(known)
	if !slices.Equal(known, names) {
		t.Errorf("the configuration knows %q, events have %q", known, names)
	}
}
