package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// watch is where to read frames.
type watch struct {
	url, ca string
	skip    int
}

// frames are what a watch brings.
type frames struct {
	body  io.Closer
	lines *bufio.Reader
}

func (w watch) open() (*frames, error) {
	ca, err := os.ReadFile(w.ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true, DisableCompression: true,
	}}
	resp, err := client.Get(w.url)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("watch: %s", resp.Status)
	}
	f := &frames{body: resp.Body, lines: bufio.NewReaderSize(resp.Body, 256<<10)}
	for range w.skip {
		if err := f.next(); err != nil {
			return nil, errors.Join(err, resp.Body.Close())
		}
	}
	return f, nil
}

// next waits for a frame and throws it away.
func (f *frames) next() error {
	_, err := f.lines.ReadSlice('\n')
	return err
}

func (f *frames) close() { _ = f.body.Close() } // nobody reads on

// discard reads until the server ends the watch.
func (w watch) discard() error {
	f, err := w.open()
	if err != nil {
		return err
	}
	defer f.close()
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f.lines}, make([]byte, 256<<10))
	return err
}
