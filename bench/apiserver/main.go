// Command apiserver is the bench's API server: it lists, watches and streams changes as
// fast as its client reads. It holds no objects. What it sends is made from templates;
// the frames of a burst are made before the burst. It is a process of its own, so that
// what it costs is not counted as the client's.
//
// It is no model of a real API server beyond that: internal/scriptedapi is. There is one
// kind of object at a time, no history but the current version, and no selection.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/kbridge-io/kbridge/bench/control"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "apiserver:", err)
		os.Exit(1)
	}
}

// serve prints where it listens, and serves until the process ends.
func serve() error {
	s := newServer()
	config, ca, err := selfSigned()
	if err != nil {
		return err
	}
	var listeners [3]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	ended := make(chan error, len(listeners))
	go func() {
		secure := &http.Server{Handler: s.cluster(), TLSConfig: config}
		ended <- secure.ServeTLS(listeners[0], "", "")
	}()
	go func() { ended <- http.Serve(listeners[1], s.cluster()) }()
	go func() { ended <- http.Serve(listeners[2], s.control()) }()
	if err := json.NewEncoder(os.Stdout).Encode(control.Ready{
		HTTPS: "https://" + listeners[0].Addr().String(), CA: ca,
		HTTP:    "http://" + listeners[1].Addr().String(),
		Control: "http://" + listeners[2].Addr().String(),
	}); err != nil {
		return err
	}
	return <-ended
}
