package main

import (
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
