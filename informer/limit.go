package informer

import (
	"fmt"
	"io"
	"mime"
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

// answers bounds the bodies of answers that are errors, and refuses others that are no
// JSON: what a proxy says in place of the server, for instance.
type answers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if form := response.Header.Get("Content-Type"); response.StatusCode == http.StatusOK && form != "" && !isJSON(form) {
		response.Body.Close()
		return nil, fmt.Errorf("%w: an answer of the type %s in place of JSON: does a proxy answer?", errUnreadable, form)
	}
	if response.StatusCode >= http.StatusBadRequest {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxError), response.Body}
	}
	return response, nil
}

func isJSON(contentType string) bool {
	form, _, err := mime.ParseMediaType(contentType)
	return err == nil && form == "application/json"
}

// WrappedRoundTripper lets client-go find what is inside.
func (a answers) WrappedRoundTripper() http.RoundTripper { return a.RoundTripper }
