// Package control is how the bench tells its API server what to do: plain HTTP on a
// port of its own, beside the one that clients of the cluster use.
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Ready is what the server prints, as one line of JSON, when it serves.
type Ready struct {
	// HTTPS and HTTP are URLs of the cluster: HTTP/2 over TLS, as a real API server
	// speaks it, and plain HTTP/1.1.
	HTTPS, HTTP string
	// CA is the certificate to trust, as PEM.
	CA []byte
	// Control is the URL for Client.
	Control string
}

// Cluster is what the cluster holds: objects of one kind.
type Cluster struct {
	Resource string // as in a URL
	Objects  int
}

// Changes are changes of objects, each a new version and a few other fields.
type Changes struct {
	Count int
	// Objects is how many of the cluster's objects change, in turn; 0 is all.
	Objects int
}

// Paced are changes at a rate. Each frame is made when it is due, with the time in it.
type Paced struct {
	Changes
	PerSecond int
}

// Sent is what a stream of changes was like.
type Sent struct {
	Began, Ended time.Time // when the first byte was to be written, and when the last one was
	Bytes        int64
}

// Status is what clients have open.
type Status struct {
	Watches int   // that have got their initial events
	Lists   int64 // lists and initial events that were served since the start; probes with limit=1 do not count
}

// The paths of the control port.
const (
	PathCluster = "/cluster"
	PathPrepare = "/prepare"
	PathSend    = "/send"
	PathPace    = "/pace"
	PathStatus  = "/status"
)

// Client talks to the server's control port. Its methods may be called from any goroutine.
type Client struct{ URL string }

// Reset gives the server another cluster, and ends the watches of the one before.
func (c Client) Reset(ctx context.Context, cluster Cluster) error {
	return c.call(ctx, PathCluster, cluster, nil)
}

// Prepare makes the frames of changes, for Send.
func (c Client) Prepare(ctx context.Context, changes Changes) error {
	return c.call(ctx, PathPrepare, changes, nil)
}

// Send sends what Prepare made to the one watch that is open, as fast as its client
// reads, and returns when all of it is written.
func (c Client) Send(ctx context.Context) (Sent, error) {
	var sent Sent
	return sent, c.call(ctx, PathSend, nil, &sent)
}

// Pace sends changes to the one watch that is open, at their rate, and returns when all
// are written.
func (c Client) Pace(ctx context.Context, paced Paced) (Sent, error) {
	var sent Sent
	return sent, c.call(ctx, PathPace, paced, &sent)
}

// Status asks what clients have open.
func (c Client) Status(ctx context.Context) (Status, error) {
	var status Status
	return status, c.call(ctx, PathStatus, nil, &status)
}

func (c Client) call(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("ask the API server for %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the API server for %s: %w", path, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask the API server for %s: %w", path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(data))
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		return fmt.Errorf("ask the API server for %s: %w", path, err)
	}
	return nil
}

// Serve answers one path: handle gets the question and returns the answer, or an error
// that the caller of Client gets.
func Serve[Q, A any](mux *http.ServeMux, path string, handle func(context.Context, Q) (A, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var question Q
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := handle(r.Context(), question)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}
