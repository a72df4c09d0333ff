// Package embedded owns the nats-server that runs inside kbridge where no sink is
// configured: on the loopback address only, its store bounded and on disk, every
// message synced before it is acknowledged.
//
// It lets in who can read the key in its directory, and nobody else: any process of the
// machine, or of the pod, can reach the address. What is put into it, and under which
// stream, is the sink's.
package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kbridge-io/kbridge/internal/owned"
)

const (
	// defaultPort is where NATS clients look.
	defaultPort = 4222
	// defaultMaxBytes bounds the store.
	defaultMaxBytes = 2 << 30
	// maxPayload takes what the API server takes: an object may be larger than
	// NATS's usual 1 MB.
	maxPayload = 8 << 20
	// maxConnections are more than the sink and those who read need, and fewer than
	// file descriptors.
	maxConnections = 256
	// startTimeout covers the recovery of a large store.
	startTimeout = time.Minute

	lockFile    = "lock"
	addressFile = "address"
)

// ErrInUse says that another process has the directory.
var ErrInUse = errors.New("directory is in use by another kbridge")

// Options are the settings of a server.
type Options struct {
	Dir      string // for the store, the lock, the key and the address; made if absent
	Port     int    // 0: 4222 if it is free, else one that is
	MaxBytes int64  // of the store; 0: 2 GiB
	Log      *slog.Logger
}

// Server is a running nats-server.
type Server struct {
	dir  string
	url  string
	srv  *server.Server
	lock *os.File
	stop sync.Once
}

// Start runs a server and returns when it takes connections.
func Start(o Options) (_ *Server, err error) {
	if err := owned.Dir(o.Dir); err != nil {
		return nil, fmt.Errorf("start embedded NATS server: %w", err)
	}
	lock, err := acquire(filepath.Join(o.Dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("start embedded NATS server: %s: %w", o.Dir, err)
	}
	s := &Server{dir: o.Dir, lock: lock}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	key, err := ensureKey(KeyFile(o.Dir))
	if err != nil {
		return nil, fmt.Errorf("start embedded NATS server: %w", err)
	}
	if o.Port != 0 {
		err = s.run(o, o.Port, key)
	} else if err = s.run(o, defaultPort, key); err != nil {
		err = s.run(o, server.RANDOM_PORT, key)
	}
	if err != nil {
		return nil, fmt.Errorf("start embedded NATS server: %w", err)
	}
	s.url = s.srv.ClientURL()
	if err := owned.Replace(filepath.Join(o.Dir, addressFile), []byte(s.url)); err != nil {
		return nil, fmt.Errorf("start embedded NATS server: %w", err)
	}
	return s, nil
}

// Check fails where the directory is none that Start would use, and makes nothing. process
// is the one that has it, zero where none has or where that is not known.
func Check(dir string) (process int, err error) {
	_, err = owned.CheckDir(dir)
	return owned.Holder(filepath.Join(dir, lockFile)), err
}

// run starts the server on one port for whoever has the key, or returns what it says
// against it.
func (s *Server) run(o Options, port int, key string) error {
	maxBytes := o.MaxBytes
	if maxBytes == 0 {
		maxBytes = defaultMaxBytes
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "kbridge-embedded",
		Host:       "127.0.0.1", Port: port,
		NoSigs: true, DisableJetStreamBanner: true,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true,
		JetStreamMaxStore: maxBytes, JetStreamMaxMemory: 64 << 20,
		MaxPayload: maxPayload, MaxConn: maxConnections,
		Nkeys: []*server.NkeyUser{{Nkey: key}},
	})
	if err != nil {
		return err
	}
	log := newLogger(o.Log)
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	deadline := time.Now().Add(startTimeout)
	for !srv.ReadyForConnections(50 * time.Millisecond) {
		if err = log.fatal(); err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("not ready within %v", startTimeout)
		}
		if err != nil {
			srv.Shutdown()
			srv.WaitForShutdown()
			return err
		}
	}
	s.srv = srv
	return nil
}

// URL is where clients connect to.
func (s *Server) URL() string { return s.url }

// Stop ends the server and returns when its store is closed. It may be called
// more than once.
func (s *Server) Stop() {
	s.stop.Do(func() {
		if s.srv != nil {
			os.Remove(filepath.Join(s.dir, addressFile))
			s.srv.Shutdown()
			s.srv.WaitForShutdown()
		}
		s.lock.Close() // and with it the lock
	})
}

// Address returns the URL of the server that runs in the directory.
func Address(dir string) (string, error) {
	data, err := owned.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return "", fmt.Errorf("find embedded NATS server: %w", err)
	}
	return string(data), nil
}
