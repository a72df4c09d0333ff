package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestTheLogsLevelIsOneOfFourWords(t *testing.T) {
	var l logLevel
	for word, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		if err := l.Set(word); err != nil || l.Level != want || l.String() != word {
			t.Errorf("%s is read as %v, %v", word, l.Level, err)
		}
	}
	for _, word := range []string{"debug-4", "debug+1", "info-8", "trace", "-8", "", "loud"} {
		if err := l.Set(word); err == nil || !strings.Contains(err.Error(), "debug, info, warn or error") {
			t.Errorf("%q is taken as %v, %v", word, l.Level, err)
		}
	}
}

func TestClientGoLogsNoBodiesAtAnyLevel(t *testing.T) {
	defer klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	for _, level := range []slog.Level{slog.LevelError, slog.LevelDebug, slog.LevelDebug - 4, slog.LevelDebug - 100} {
		var out bytes.Buffer
		if _, err := newLogger(&out, "text", level); err != nil {
			t.Fatal(err)
		}
		for verbosity := range 11 {
			// As request.go has it, and as an older caller would.
			log := klog.FromContext(context.Background()).WithName("rest").WithValues("verb", "GET").V(verbosity)
			if verbosity > 4 && log.Enabled() {
				t.Errorf("at level %d client-go logs at verbosity %d", level, verbosity)
			}
			log.Info("said at", "verbosity", verbosity)
			klog.V(klog.Level(verbosity)).InfoS("said at", "verbosity", verbosity)
		}
		if level <= slog.LevelDebug != strings.Contains(out.String(), "verbosity=4") {
			t.Errorf("at level %d the log is\n%s", level, out.String())
		}
		if strings.Contains(out.String(), "DEBUG+") || strings.Contains(out.String(), "level=INFO") {
			t.Errorf("at level %d there are levels that nobody knows, or that are not for client-go:\n%s", level, out.String())
		}
		for _, more := range []string{"verbosity=5", "verbosity=8", "verbosity=10"} {
			if strings.Contains(out.String(), more) {
				t.Errorf("at level %d %s is in the log", level, more)
			}
		}
	}
	if _, err := newLogger(io.Discard, "xml", slog.LevelInfo); err == nil {
		t.Error("the format xml is taken")
	}
}
