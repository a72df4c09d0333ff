// Command save writes the licenses and notices of what is linked into kbridge into a file: go run ./internal/licenses/save FILE.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/kbridge-io/kbridge/internal/licenses"
)

func main() {
	if err := save(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "save the licenses:", err)
		os.Exit(1)
	}
}

func save(args []string) error {
	if len(args) != 1 {
		return errors.New("name one file")
	}
	modules, err := licenses.Linked(context.Background(), ".")
	if err != nil {
		return err
	}
	if _, err := licenses.Table(modules); err != nil {
		return err
	}
	return os.WriteFile(args[0], licenses.Texts(modules), 0o644)
}
