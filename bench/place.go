//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// place is where a program's events go in one run.
type place interface {
	// settings is its entry under sinks, in kbridge's configuration.
	settings() string
	// flags tell the baseline, or a bare client, the same.
	flags() []string
	// output is the program's standard output.
	output() *os.File
	// stored is how many messages the broker has; -1 where nobody knows.
	stored(ctx context.Context) (int64, error)
	// follow calls each with what arrives, until ctx ends. message is valid during the
	// call only.
	follow(ctx context.Context, each func(message []byte)) error
	// broker is the broker's process, 0 where there is none or it is not known.
	broker() int
	// close removes what was made for the run.
	close(ctx context.Context) error
}

// opener makes the place of one run.
type opener func(ctx context.Context, b *bench) (place, error)

// file is a place that swallows events, or keeps them.
type file struct{ *os.File }

func devNull(context.Context, *bench) (place, error) {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	return file{f}, err
}

func (f file) settings() string                      { return "stdout: {}" }
func (f file) flags() []string                       { return []string{"-sink", "stdout"} }
func (f file) output() *os.File                      { return f.File }
func (f file) stored(context.Context) (int64, error) { return -1, nil }
func (f file) broker() int                           { return 0 }
func (f file) close(context.Context) error           { return f.Close() }

func (f file) follow(context.Context, func([]byte)) error {
	return errors.New("BUG: nobody can follow a file")
}

// pipe is a place that a reader empties: what it has read, whoever reads standard output
// has.
type pipe struct{ read, write *os.File }

func openPipe(context.Context, *bench) (place, error) {
	read, write, err := os.Pipe()
	return pipe{read, write}, err
}

func (p pipe) settings() string                      { return "stdout: {}" }
func (p pipe) flags() []string                       { return []string{"-sink", "stdout"} }
func (p pipe) output() *os.File                      { return p.write }
func (p pipe) stored(context.Context) (int64, error) { return -1, nil }
func (p pipe) broker() int                           { return 0 }
func (p pipe) close(context.Context) error           { return errors.Join(p.read.Close(), p.write.Close()) }

func (p pipe) follow(ctx context.Context, each func([]byte)) error {
	defer context.AfterFunc(ctx, func() {
		_ = p.read.SetReadDeadline(time.Unix(1, 0)) // a pipe takes it
	})()
	lines := bufio.NewReaderSize(p.read, 1<<20)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == nil:
			each(line)
		case ctx.Err() != nil || errors.Is(err, io.EOF):
			return nil
		default:
			return fmt.Errorf("read standard output: %w", err)
		}
	}
}
