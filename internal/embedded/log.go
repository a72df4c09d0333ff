package embedded

import (
	"fmt"
	"log/slog"
	"sync"
)

// logger hands the server's warnings and errors on to slog, and nothing else.
type logger struct {
	log *slog.Logger

	mu  sync.Mutex
	err error // what the server would have ended its process for
}

func newLogger(log *slog.Logger) *logger {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &logger{log: log}
}

func (l *logger) Noticef(string, ...any) {}
func (l *logger) Debugf(string, ...any)  {}
func (l *logger) Tracef(string, ...any)  {}

func (l *logger) Warnf(format string, v ...any) {
	l.log.Warn("embedded NATS server", "message", fmt.Sprintf(format, v...))
}

func (l *logger) Errorf(format string, v ...any) {
	l.log.Error("embedded NATS server", "message", fmt.Sprintf(format, v...))
}

// Fatalf keeps the error for Start, which decides what it means.
func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = fmt.Errorf(format, v...)
}

func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
