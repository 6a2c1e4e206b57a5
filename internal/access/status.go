package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// reasonNotImplemented is the reason of 501, for which apimachinery has none.
const reasonNotImplemented metav1.StatusReason = "NotImplemented"

// reasons are those of the codes with which requests are refused.
var reasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusUnauthorized:        metav1.StatusReasonUnauthorized,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusMethodNotAllowed:    metav1.StatusReasonMethodNotAllowed,
	http.StatusNotAcceptable:       metav1.StatusReasonNotAcceptable,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusNotImplemented:      reasonNotImplemented,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
}

// refusal is why a request is not served.
type refusal struct {
	code    int
	message string
	// object is the name of the object that it is about, resource that of its kind.
	object, resource string
}

// Error implements error.
func (r *refusal) Error() string { return r.message }

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// refusalOf returns the refusal for an error of a driver or of the API.
func refusalOf(err error) *refusal {
	var own *refusal
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, backend.ErrNotFound):
		return refuse(http.StatusConflict, "the machine does not exist yet: %v", err)
	case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrMissing):
		return refuse(http.StatusNotImplemented, "%v", err)
	case errors.Is(err, backend.ErrUnavailable):
		return refuse(http.StatusServiceUnavailable, "%v", err)
	case errors.As(err, &status) && reasons[int(status.Status().Code)] != "":
		return refuse(int(status.Status().Code), "%s", status.Status().Message)
	}
	return refuse(http.StatusServiceUnavailable, "%v", err)
}

// write answers with the refusal.
func (r *refusal) write(w http.ResponseWriter) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(r.code), Reason: reasons[r.code], Message: r.message,
	}
	if r.object != "" {
		status.Details = &metav1.StatusDetails{Group: client.Group, Kind: r.resource, Name: r.object}
	}
	writeJSON(w, r.code, status)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
