package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"k8s.io/klog/v2"
)

// logLevel is the value of --log-level. It has no level below debug: from there on
// client-go logs the bodies of the API server's answers, Secrets with their values.
type logLevel struct{ slog.Level }

// Set implements pflag.Value. slog's own parser takes arithmetic too, such as debug-4.
func (l *logLevel) Set(word string) error {
	level, ok := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[word]
	if !ok {
		return errors.New("expected debug, info, warn or error")
	}
	l.Level = level
	return nil
}

// String implements pflag.Value.
func (l *logLevel) String() string { return strings.ToLower(l.Level.String()) }

// Type implements pflag.Value.
func (l *logLevel) Type() string { return "level" }

// newLogger makes the process's logger, and klog's.
func newLogger(w io.Writer, format string, level slog.Level) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch format {
	case "text":
		handler = slog.NewTextHandler(w, options)
	case "json":
		handler = slog.NewJSONHandler(w, options)
	default:
		return nil, fmt.Errorf("--log-format %q: expected text or json", format)
	}
	klog.SetSlogLogger(slog.New(withoutBodies{handler.WithAttrs([]slog.Attr{slog.String("from", "client-go")})}))
	return slog.New(handler), nil
}

// withoutBodies is client-go's handler. Whatever the process logs, client-go logs
// nothing below debug, its verbosity 4: from verbosity 8 on it logs bodies. What it informs
// of is for debugging too: it has a line for each attempt of a watch that fails, where
// informers have one for each cause.
type withoutBodies struct{ slog.Handler }

// Enabled implements slog.Handler.
func (h withoutBodies) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelInfo {
		level = slog.LevelDebug
	}
	return level >= slog.LevelDebug && h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler. client-go's verbosities are levels between those that
// there are, which slog writes as DEBUG+3.
func (h withoutBodies) Handle(ctx context.Context, r slog.Record) error {
	if r.Level <= slog.LevelInfo {
		r.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h withoutBodies) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutBodies{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h withoutBodies) WithGroup(name string) slog.Handler {
	return withoutBodies{h.Handler.WithGroup(name)}
}
