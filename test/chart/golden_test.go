package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cases are the values in testdata, each with what the chart makes of them.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	all := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".values.yaml")] = string(data)
	}
	return all
}

func TestGeneratedManifestsAreThoseThatWereLookedAt(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run go generate ./test/chart and look at the difference; -golden +chart\n%s", diff)
			}
		})
	}
}

func TestHelmHasNothingAgainstTheChart(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := run(t, values, "lint", "--strict", folder); err != nil || !strings.Contains(out, "0 chart(s) failed") {
				t.Errorf("%v %s", err, out)
			}
		})
	}
}
