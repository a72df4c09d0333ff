//go:build man

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// addMan adds the command by which a release writes the man pages. It is not in the kbridge that is released, nor is what
// it needs.
func addMan(root *cobra.Command) {
	var source string
	man := &cobra.Command{
		Use:    "man DIR",
		Short:  "Writes the man pages into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: source, Manual: "kbridge"}, args[0])
		},
	}
	man.Flags().StringVar(&source, "source", "kbridge", "the program and its version, for the foot of the pages")
	root.AddCommand(man)
}
