package kube

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StalePause is how long a controller waits for its cache to catch up, if no event
// wakes it earlier.
const StalePause = time.Second

// The pause before something is tried again that the API refused: as long as it has
// been refused, within these limits. A quota or a policy can change without an event.
const (
	firstRejectedPause = 10 * time.Second
	lastRejectedPause  = 5 * time.Minute
)

// ErrStale says that a decision was made on something that has changed since.
var ErrStale = errors.New("the cache is behind the API server")

// ErrFenced says that a write was not sent because this replica may not be the leader any
// more. It is tried again: either the lease is renewed, or the process ends.
var ErrFenced = errors.New("nothing is written: this replica has not renewed its lease in time, so another may be the leader by now")

// IsStale reports whether a write was refused because the object, or its namespace, is
// not or no longer what was read: look again.
func IsStale(err error) bool {
	return errors.Is(err, ErrStale) || isOtherUID(err) ||
		apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// isOtherUID reports whether an update named the UID of another object than the one
// that has the name now. The API server calls that an invalid object.
func isOtherUID(err error) bool {
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return found && cause.Field == "metadata.uid"
}

// IsNamespaceEnding reports whether nothing can be created because the namespace is
// being deleted. The owner goes with it.
func IsNamespaceEnding(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRejected reports whether the API refused an object for what it is: somebody has
// to change the object, a policy or a quota.
func IsRejected(err error) bool {
	if IsStale(err) || IsNamespaceEnding(err) {
		return false
	}
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// APIWords returns what the API said, without what was wrapped around it.
func APIWords(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return strings.TrimSpace(status.Status().Message)
	}
	return err.Error()
}

// RejectedPause is how long to wait before trying again what has been refused since
// the given time.
func RejectedPause(since, now time.Time) time.Duration {
	return min(max(now.Sub(since), firstRejectedPause), lastRejectedPause)
}

// Named wraps err with what was being done to which object; nil stays nil.
func Named(err error, doing, kind, namespace, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s/%s: %w", doing, kind, namespace, name, err)
}
