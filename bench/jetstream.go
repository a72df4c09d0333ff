//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/internal/child"
)

// natsServer is a nats-server of the version that this module requires, as a process of
// its own, with JetStream on file storage and its defaults otherwise.
type natsServer struct {
	url   string
	child *child.Process
}

// listening is what the server logs with the port that the kernel picked.
var listening = regexp.MustCompile(`Listening for client connections on (127\.0\.0\.1:\d+)`)

func startNATS(ctx context.Context, dir string) (*natsServer, error) {
	program := filepath.Join(dir, "nats-server")
	if err := goBuild(ctx, program, "github.com/nats-io/nats-server/v2"); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("host: 127.0.0.1\nport: -1\njetstream {store_dir: %q}\n", filepath.Join(dir, "jetstream"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var log output
	cmd := exec.Command(program, "-c", config)
	cmd.Stdout, cmd.Stderr = &log, &log
	s := &natsServer{}
	var err error
	if s.child, err = child.Start(cmd); err != nil {
		return nil, fmt.Errorf("start nats-server: %w", err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		said := log.bytes()
		if port := listening.FindSubmatch(said); port != nil && bytes.Contains(said, []byte("Server is ready")) {
			s.url = "nats://" + string(port[1])
			return s, nil
		}
		select {
		case <-s.child.Done():
			return nil, fmt.Errorf("nats-server ended: %w\n%s", s.child.Wait(), log.bytes())
		case <-ctx.Done():
			s.child.Kill()
			return nil, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.child.Kill()
			return nil, fmt.Errorf("nats-server is not ready:\n%s", log.bytes())
		}
	}
}

// stop ends the server.
func (s *natsServer) stop() {
	s.child.Signal(syscall.SIGTERM)
	select {
	case <-s.child.Done():
	case <-time.After(10 * time.Second):
		s.child.Kill()
	}
}

// stream is a place in JetStream: a stream that nobody has published to.
type stream struct {
	file
	server *natsServer
	url    string
	name   string
	nc     *nats.Conn
	js     jetstream.JetStream
}

// openStream starts the server where none runs, and makes a stream as kbridge would, but
// for its limit: nothing is thrown away.
func openStream(ctx context.Context, b *bench) (place, error) {
	if b.nats == nil {
		var err error
		if b.nats, err = startNATS(ctx, b.dir); err != nil {
			return nil, err
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	s := &stream{file: file{null}, server: b.nats, url: b.nats.url, name: "BENCH"}
	if s.nc, err = nats.Connect(s.url); err == nil {
		if s.js, err = jetstream.New(s.nc); err == nil {
			_, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
				Name: s.name, Subjects: []string{"k8s.>"}, Storage: jetstream.FileStorage, Duplicates: 2 * time.Minute,
			})
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a stream: %w", err), null.Close())
	}
	return s, nil
}

func (s *stream) settings() string {
	return fmt.Sprintf("nats: {urls: ['%s'], stream: {name: %s, create: false}}", s.url, s.name)
}

func (s *stream) flags() []string {
	return []string{"-sink", "nats", "-address", s.url, "-name", s.name}
}

func (s *stream) broker() int { return s.server.child.PID() }

func (s *stream) stored(ctx context.Context) (int64, error) {
	found, err := s.js.Stream(ctx, s.name)
	if err != nil {
		return 0, fmt.Errorf("ask for the stream: %w", err)
	}
	return int64(found.CachedInfo().State.Msgs), nil
}

// follow uses a consumer of the stream: what it gets is stored. A plain subscription
// would get messages before that.
func (s *stream) follow(ctx context.Context, each func([]byte)) error {
	consumer, err := s.js.OrderedConsumer(ctx, s.name, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return fmt.Errorf("follow the stream: %w", err)
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) { each(m.Data()) })
	if err != nil {
		return fmt.Errorf("follow the stream: %w", err)
	}
	<-ctx.Done()
	consuming.Stop()
	<-consuming.Closed()
	return nil
}

func (s *stream) close(ctx context.Context) error {
	err := s.js.DeleteStream(ctx, s.name)
	s.nc.Close()
	return errors.Join(err, s.file.Close())
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.buf.Bytes())
}
