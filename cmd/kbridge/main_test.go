package main

import (
	"slices"
	"strings"
	"testing"
)

func TestWhatIsMisspeltOnTheCommandLineIsToldWithWhatIsMeant(t *testing.T) {
	for line, want := range map[string]string{
		"chek":               `unknown command: "chek", perhaps check is meant (kbridge --help shows all)`,
		"Run":                `unknown command: "Run", perhaps run is meant (kbridge --help shows all)`,
		"something-else":     `unknown command: "something-else" (kbridge --help shows all)`,
		"run --conifg x":     "unknown flag: --conifg, perhaps --config is meant",
		"run -config x":      "unknown shorthand flag: 'c' in -config, perhaps --config is meant",
		"run -config=x":      "unknown shorthand flag: 'c' in -config=x, perhaps --config is meant",
		"check --kubeconfg":  "unknown flag: --kubeconfg, perhaps --kubeconfig is meant",
		"run --output json":  "unknown flag: --output",
		"run kbridge.yaml":   `"kbridge.yaml": kbridge run takes flags and nothing else: is --config kbridge.yaml meant?`,
		"tail pods":          `"pods": kbridge tail takes flags and nothing else`,
		"version 1":          `"1": kbridge version takes flags and nothing else`,
		"run --grace-period": "flag needs an argument: --grace-period",
		"check a b":          "expected one configuration file, as an argument or with --config",
	} {
		code, out, errs := kbridge(t, strings.Fields(line)...)
		if code != exitUsage || errs != "kbridge: "+want+"\n" || out != "" {
			t.Errorf("kbridge %s: exit code %d, %q, %q, want %q", line, code, out, errs, want)
		}
	}
}

func TestTheVersionIsAFlagToo(t *testing.T) {
	_, want, _ := kbridge(t, "version")
	code, got, errs := kbridge(t, "--version")
	if code != 0 || got != want || !strings.HasPrefix(got, "kbridge "+version) || strings.Count(got, "\n") != 1 {
		t.Errorf("exit code %d, %q, %q, want %q", code, got, errs, want)
	}
}

func TestCheckTakesTheFileAsAnArgument(t *testing.T) {
	file := writeConfig(t, "resources: [{resource: pods}]")
	_, want, _ := kbridge(t, "check", "--config", file)
	for _, args := range [][]string{{"check", file}, {"check", file, "--config", file}} {
		if code, got, errs := kbridge(t, args...); code != 0 || got != want || !strings.Contains(got, "is valid") {
			t.Errorf("%q: exit code %d, %q, %q, want %q", args, code, got, errs, want)
		}
	}
}

func TestExitCodesAreThoseOfTheDocs(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "docs/OPERATIONS.md"), "\n## Exit codes")
	section, _, _ = strings.Cut(section, "\n## ")
	if documented := matches(section, `(?m)^\| (\d+) \|`); !slices.Equal(documented, []string{"0", "1", "2"}) {
		t.Errorf("the docs have %q", documented)
	}
	valid := writeConfig(t, "cluster: c\nresources: [{resource: pods}]\nsinks: [{name: out, stdout: {}}]\n")
	wrong := writeConfig(t, "clustr: c\n")
	for line, want := range map[string]int{
		"version":                                   0,
		"check " + valid:                            0,
		"rbac --config " + valid:                    0,
		"ready --url http://127.0.0.1:1":            exitFailed,
		"run --config " + valid + " --kubeconfig /": exitFailed,
		"run --config " + wrong:                     exitUsage,
		"check " + wrong:                            exitUsage,
		"check " + wrong + ".not":                   exitUsage,
		"run":                                       exitUsage,
		"tail --count -1":                           exitUsage,
		"run --log-level loud --config " + valid:    exitUsage,
		"walk":                                      exitUsage,
	} {
		if code, _, errs := kbridge(t, strings.Fields(line)...); code != want {
			t.Errorf("kbridge %s: exit code %d, want %d: %s", line, code, want, errs)
		}
	}
}

func TestEachLineOfAListOfErrorsHasTheSameForm(t *testing.T) {
	wrong := writeConfig(t, "clustr: c\nresources: [{resource: Pods}]\n")
	_, _, errs := kbridge(t, "check", wrong)
	for line := range strings.Lines(errs) {
		if !strings.HasPrefix(line, wrong+":") {
			t.Errorf("%q does not begin with its place", line)
		}
	}
	_, _, errs = kbridge(t, "tail", "--count", "-1", "--color", "red")
	lines := strings.Split(strings.TrimSpace(errs), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "kbridge: --co") || !strings.HasPrefix(lines[1], "kbridge: --co") {
		t.Errorf("%q", lines)
	}
}
