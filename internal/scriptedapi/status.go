package scriptedapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// statusOf returns the Status of an API error as it is sent, with its type.
func statusOf(err *apierrors.StatusError) *metav1.Status {
	st := err.Status()
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &st
}

// writeStatus answers with an error.
func writeStatus(w http.ResponseWriter, st *metav1.Status) {
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(st.Code))
	_, _ = w.Write(append(encode(st), '\n')) // a client that has gone sees no error
}

// notServed answers for a path that no resource is registered for, which a real server does in plain text.
func notServed(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }

// failure is the Status that a server sends for a code, worded for the request.
func failure(code int, req *Request) *metav1.Status {
	gr := req.GVR.GroupResource()
	switch code {
	case http.StatusBadRequest:
		return statusOf(apierrors.NewBadRequest("the request is malformed"))
	case http.StatusUnauthorized:
		return statusOf(apierrors.NewUnauthorized("Unauthorized"))
	case http.StatusForbidden:
		where := "at the cluster scope"
		if req.Namespace != "" {
			where = fmt.Sprintf("in the namespace %q", req.Namespace)
		}
		//nolint:staticcheck // the real server's text
		return statusOf(apierrors.NewForbidden(gr, req.Name, fmt.Errorf("User %q cannot %s resource %q in API group %q %s",
			"kbridge", req.Verb, gr.Resource, gr.Group, where)))
	case http.StatusNotFound:
		return statusOf(apierrors.NewNotFound(gr, req.Name))
	case http.StatusGone:
		return expired("too old resource version")
	case http.StatusTooManyRequests:
		return statusOf(apierrors.NewTooManyRequests("storage is (re)initializing", 0))
	case http.StatusInternalServerError:
		return statusOf(apierrors.NewInternalError(errors.New("etcdserver: leader changed")))
	case http.StatusServiceUnavailable:
		return statusOf(apierrors.NewServiceUnavailable("the server is shutting down"))
	case http.StatusGatewayTimeout:
		return statusOf(apierrors.NewTimeoutError("request did not complete within requested timeout", 0))
	}
	return statusOf(apierrors.NewGenericServerResponse(code, string(req.Verb), gr, req.Name, http.StatusText(code), 0, true))
}

func expired(message string) *metav1.Status {
	return statusOf(apierrors.NewResourceExpired(message))
}

// tooOld is the answer to a watch from a version whose successors are forgotten.
func (r *resource) tooOld(version int64) *metav1.Status {
	return expired(fmt.Sprintf("too old resource version: %d (%d)", version, r.compacted))
}

// tooLarge is the answer to a list that asks for data at least as new as a version that is not there yet.
func tooLarge(wanted, current int64) *metav1.Status {
	st := statusOf(apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, current), 1))
	st.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return st
}

// invalidOption is the answer to an option of a list or watch that is malformed or not allowed.
func invalidOption(err *field.Error) *metav1.Status {
	return statusOf(apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{err}))
}

func invalidVersion(label string, err error) *metav1.Status {
	return invalidOption(field.Invalid(field.NewPath("resourceVersion"), label, err.Error()))
}
