package informer

import (
	"fmt"
	"io"
	"net/http"
)

// DefaultMaxObject is how large an object may be, in bytes, where nothing else is said.
// etcd takes 1.5 MiB; aggregated servers may have larger ones. client-go takes no larger
// frame of a watch.
const DefaultMaxObject = 16 << 20

// tooLargeError says that the server sent an object that is larger than is taken. A frame
// of a watch may have no end at all.
type tooLargeError struct {
	what string
	max  int
}

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes (kubernetes.maxObject)", e.what, e.max)
}

// maxError is how much of an answer that is an error is read, in bytes. client-go reads
// such answers whole. One that is cut is still an error, by its code.
const maxError = 64 << 10

// boundErrors bounds the bodies of answers that are errors.
type boundErrors struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundErrors) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxError), response.Body}
	}
	return response, err
}

// WrappedRoundTripper lets client-go find what is inside.
func (b boundErrors) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }
