package main

import (
	"slices"
	"testing"

	"github.com/kbridge-io/kbridge/config"
)

func TestNoTwoEntriesHaveOneNameInTheMetrics(t *testing.T) {
	named := entry()
	named.Name = "configmaps"
	widgets := entry()
	widgets.Group, widgets.Resource = "example.dev", "widgets"
	got := entryNames([]config.Resource{entry(), widgets, named, widgets, entry()})
	if want := []string{"configmaps", "widgets.example.dev", "configmaps/2", "widgets.example.dev/2", "configmaps/3"}; !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}
