package informer

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"k8s.io/client-go/rest"
)

// renewed reads the file of the server's authorities again as soon as a server's
// certificate is of none of them: client-go looks into it every five minutes, and until
// then nothing would be watched after an authority was replaced. It makes one transport
// for the contents that it has; the transports that it has left close by themselves.
type renewed struct {
	config *rest.Config // with the file

	mu        sync.Mutex
	authority []byte // the file's contents
	current   http.RoundTripper
}

// transportFor returns the transport for a configuration.
func transportFor(config *rest.Config) (http.RoundTripper, error) {
	if config.CAFile == "" || len(config.CAData) > 0 || config.Insecure {
		return rest.TransportFor(config)
	}
	r := &renewed{config: config}
	if _, err := r.read(); err != nil {
		return nil, err
	}
	return r, nil
}

// read makes the transport anew where the file has changed, and says whether it has.
func (r *renewed) read() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	contents, err := os.ReadFile(r.config.CAFile)
	if err != nil {
		return false, fmt.Errorf("read the API server's authority: %w", err)
	}
	if r.current != nil && bytes.Equal(contents, r.authority) {
		return false, nil
	}
	config := rest.CopyConfig(r.config)
	config.CAFile, config.CAData = "", contents
	transport, err := rest.TransportFor(config)
	if err != nil {
		return false, fmt.Errorf("read the API server's authority from %s: %w", r.config.CAFile, err)
	}
	if old, ok := r.current.(interface{ CloseIdleConnections() }); ok {
		old.CloseIdleConnections()
	}
	r.authority, r.current = contents, transport
	return true, nil
}

func (r *renewed) transport() http.RoundTripper {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// RoundTrip implements http.RoundTripper. Where the server is not trusted nothing was sent
// yet, so that the request can be sent again.
func (r *renewed) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.transport().RoundTrip(request)
	if err == nil || !isUntrusted(err) {
		return response, err
	}
	changed, readErr := r.read()
	if readErr != nil || !changed {
		return nil, errors.Join(err, readErr)
	}
	if request.GetBody != nil {
		if request.Body, err = request.GetBody(); err != nil {
			return nil, err
		}
	}
	return r.transport().RoundTrip(request)
}

// WrappedRoundTripper lets client-go find what is inside.
func (r *renewed) WrappedRoundTripper() http.RoundTripper { return r.transport() }
