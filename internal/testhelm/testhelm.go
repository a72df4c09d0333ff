// Package testhelm gives tests a Helm to run: it is built from the tool module test/helm, once for all clones of the
// repository.
package testhelm

import (
	"context"
	"io"

	"github.com/kbridge-io/kbridge/internal/testbuild"
)

// Path returns the program, which is built if it is not there. progress may be nil.
func Path(ctx context.Context, progress io.Writer) (string, error) {
	module, err := testbuild.FindModule("helm")
	if err != nil {
		return "", err
	}
	key, err := testbuild.ModuleKey(module)
	if err != nil {
		return "", err
	}
	dir, err := testbuild.CacheDir("helm", key)
	if err != nil {
		return "", err
	}
	helm := testbuild.Set{
		Module: module, Dir: dir,
		Programs: []testbuild.Program{{Name: "helm", Package: "helm.sh/helm/v4/cmd/helm", LDFlags: "-s -w"}},
		Why:      "tests of the chart run it. This happens once for this user, and takes about five minutes of CPU",
	}
	if err := helm.Build(ctx, progress); err != nil {
		return "", err
	}
	return helm.Path("helm"), nil
}
