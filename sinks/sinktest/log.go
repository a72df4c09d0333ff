package sinktest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Log keeps what a sink logs, and can be searched meanwhile.
type Log struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

// Handler writes to the log, one line a record.
func (l *Log) Handler() slog.Handler { return slog.NewTextHandler(l, nil) }

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// Reset forgets what was logged.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.Reset()
}

// Count is how often the text is in the log.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
