//go:build unix

package file

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbridge-io/kbridge/state"
)

func mustExamine(t *testing.T, dir string) Examined {
	t.Helper()
	x, err := Examine(dir)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestAnExaminationFindsWhatIsThereAndMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "later")
	if got, want := mustExamine(t, dir), (Examined{NoFolder: true, Absent: true, Format: format}); !cmp.Equal(got, want) {
		t.Errorf("where there is nothing: %+v", got)
	}
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		t.Error("it has made a folder")
	}
	for range 3 {
		s := mustOpen(t, dir)
		mustCommit(t, s, &state.Batch{
			Epoch: 4,
			Views: map[state.ViewID]*state.ViewChange{"pods": {Info: state.ViewInfo{Cluster: "c-1"}}, "nodes": {Info: state.ViewInfo{Cluster: "c-1"}}},
			Lanes: map[state.LaneID]*state.LaneChange{{Sink: "a", View: "pods"}: {}},
		})
		mustClose(t, s)
	}
	path := filepath.Join(dir, Name)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := Examined{
		Format: format, Starts: 3, Clusters: []string{"c-1"},
		Contents: state.Contents{Views: []state.ViewID{"nodes", "pods"}, Lanes: []state.LaneID{{Sink: "a", View: "pods"}}, Epoch: 4},
	}
	for range 2 {
		if diff := cmp.Diff(want, mustExamine(t, dir)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !cmp.Equal(before, after) {
		t.Errorf("the file has changed, %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestAnExaminationNamesTheProcessThatHasTheState(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	x := mustExamine(t, dir)
	if !x.InUse || runtime.GOOS == "linux" && x.Process != os.Getpid() {
		t.Errorf("it finds %+v, and process %d has it", x, os.Getpid())
	}
	mustCommit(t, s, numbered(1))
	mustClose(t, s)
	if x := mustExamine(t, dir); x.InUse || x.Starts != 1 {
		t.Errorf("after its end it finds %+v", x)
	}
}

func TestAnExaminationFailsWhereAStartWould(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir, path string){
		"a damaged page": func(t *testing.T, _, path string) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := 2 * pageSize; i < len(data); i += pageSize {
				data[i] ^= 1
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a file of something else": func(t *testing.T, _, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("no state", 10_000)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a symbolic link": func(t *testing.T, dir, path string) {
			if err := errors.Join(os.Rename(path, path+".other"), os.Symlink(path+".other", path)); err != nil {
				t.Fatal(err)
			}
		},
		"a folder that anybody may write to": func(t *testing.T, dir, _ string) {
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir)
			mustCommit(t, s, numbered(1))
			mustClose(t, s)
			spoil(t, dir, filepath.Join(dir, Name))
			_, examined := Examine(dir)
			_, opened := open(dir, lockTimeout)
			if examined == nil || opened == nil || !strings.Contains(opened.Error(), examined.Error()) {
				t.Errorf("an examination gives %v, and opening %v", examined, opened)
			}
		})
	}
}

func TestAnExaminationHoldsTheLockForLessThanAStartWaits(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	mustCommit(t, s, numbered(1))
	if err := s.inspect(&until{s.file, time.Now().Add(-time.Second)}); !errors.Is(err, errEnough) || strings.Contains(err.Error(), "damaged") {
		t.Errorf("when the time is over: %v", err)
	}
	if examineFor >= lockTimeout {
		t.Errorf("it reads for %s, and a start waits for %s", examineFor, lockTimeout)
	}
}
