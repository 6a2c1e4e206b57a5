package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StalePause is how long a controller waits for its cache to catch up before it requeues, unless
// an event comes earlier.
const StalePause = time.Second

// The limits of the backoff after the API rejected a request, see RejectedPause. A quota or a
// policy can change without an event.
const (
	firstRejectedPause = 10 * time.Second
	lastRejectedPause  = 5 * time.Minute
)

// ErrStale means that a decision was based on an outdated cache.
var ErrStale = errors.New("the cache is behind the API server")

// ErrFenced means that a write was not sent because this replica may no longer be the leader.
// Callers retry: either the lease is renewed or the process exits.
var ErrFenced = errors.New("write rejected: this replica has not renewed its lease in time, and another may be the leader")

// IsStale reports whether a write was rejected because the object or its namespace has changed
// since it was read. Callers requeue.
func IsStale(err error) bool {
	return errors.Is(err, ErrStale) || isOtherUID(err) ||
		apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// isOtherUID reports whether an update was rejected because another object has the name now. The
// API server reports a different UID as an invalid field.
func isOtherUID(err error) bool {
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	return found && cause.Field == "metadata.uid"
}

// IsNamespaceEnding reports whether a create was rejected because the namespace is being deleted,
// and the owner with it.
func IsNamespaceEnding(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRejected reports whether the API rejected an object because of its content. A retry succeeds
// only after a change to the object, a policy or a quota.
func IsRejected(err error) bool {
	if IsStale(err) || IsNamespaceEnding(err) {
		return false
	}
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsRequestEntityTooLargeError(err)
}

// APIWords returns the message of the API server in err, without the errors that wrap it.
func APIWords(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return strings.TrimSpace(status.Status().Message)
	}
	return err.Error()
}

// RejectedPause returns the pause before the next attempt of a write that the API has rejected
// since the given time: as long as that has lasted, within limits.
func RejectedPause(since, now time.Time) time.Duration {
	return min(max(now.Sub(since), firstRejectedPause), lastRejectedPause)
}

// Named wraps err with the operation and the object, such as "create Pod default/web". Nil stays nil.
func Named(err error, doing, kind, namespace, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %s/%s: %w", doing, kind, namespace, name, err)
}

// CheckLive compares an object from the cache with the API server, before something is done that cannot be undone. It reads the object
// into now. The error is ErrStale if the object is gone or was replaced, or if isOutdated, which is called when now is read, says that it
// is not what it was.
func CheckLive(ctx context.Context, live client.Reader, kind string, cached, now client.Object, isOutdated func() bool) error {
	err := live.Get(ctx, client.ObjectKeyFromObject(cached), now)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return Named(err, "get", kind, cached.GetNamespace(), cached.GetName())
	case err != nil || now.GetUID() != cached.GetUID() || isOutdated():
		return Named(ErrStale, "check", kind, cached.GetNamespace(), cached.GetName())
	}
	return nil
}

// FailurePause returns the pause after an attempt that failed. It grows with the time since the condition became other than
// True.
func FailurePause(conditions []metav1.Condition, condition string, failedAt time.Time) time.Duration {
	since := failedAt
	if is := meta.FindStatusCondition(conditions, condition); is != nil && is.Status != metav1.ConditionTrue {
		since = is.LastTransitionTime.Time
	}
	return RejectedPause(since, failedAt)
}
