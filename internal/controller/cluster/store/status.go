package store

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/objectstore"
)

// summarize returns the status of a ClusterSnapshot, given the plan and the error of carrying it out. It changes only what belongs to
// this controller.
func summarize(s *v1alpha1.ClusterSnapshot, seen observation, p plan, actErr error) v1alpha1.ClusterSnapshotStatus {
	status := *s.Status.DeepCopy()
	is := summarizeStored(s, seen, p, actErr)
	if is.Status == metav1.ConditionTrue {
		status.Location = p.location
	}
	is.Type = v1alpha1.ConditionStored
	kube.SetConditions(s, &status.Conditions, p.now, is)
	return status
}

// summarizeStored returns the condition Stored.
func summarizeStored(s *v1alpha1.ClusterSnapshot, seen observation, p plan, actErr error) metav1.Condition {
	no := func(reason, message string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	switch {
	case p.action == noStore:
		return no(v1alpha1.ReasonStoreMissing, "The snapshot has to be read from a store, and the manager has none: set snapshotStore.location in its configuration, or delete the ClusterSnapshot")
	case p.action == wait:
		return no(v1alpha1.ReasonWaiting, "The snapshot is copied to the store when it is taken")
	case p.action == unreadable:
		return no(v1alpha1.ReasonStoreFailed, "The files of the snapshot on this host cannot be read: %v", seen.err)
	case p.action == remove:
		return no(v1alpha1.ReasonSnapshotDeleting, "The copy of the ClusterSnapshot %s in %s could not be deleted, and Keelson retries: %v. To leave it there, set the annotation %s to true",
			s.Name, p.location, actErr, v1alpha1.AnnotationKeepCopy)
	case errors.Is(actErr, objectstore.ErrNotFound):
		return no(v1alpha1.ReasonCopyMissing, "The store has no copy of the ClusterSnapshot %s in %s: check the name and the store, or delete the ClusterSnapshot", s.Name, p.location)
	case actErr != nil && p.action == download:
		return no(v1alpha1.ReasonStoreFailed, "The ClusterSnapshot %s could not be read from %s, and Keelson retries: %v", s.Name, p.location, actErr)
	case actErr != nil:
		return no(v1alpha1.ReasonStoreFailed, "The ClusterSnapshot %s could not be copied to %s, and Keelson retries: %v", s.Name, p.location, actErr)
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStored, Message: "A copy is in " + p.location}
}

// finish writes the status if it changed, then records events.
func (r *Reconciler) finish(ctx context.Context, s *v1alpha1.ClusterSnapshot, seen observation, p plan, actErr error) (reconcile.Result, error) {
	status := summarize(s, seen, p, actErr)
	was, is := kube.ConditionTransition(s.Status.Conditions, status.Conditions, v1alpha1.ConditionStored)
	outcome := kube.Outcome{Urgent: was.Status != is.Status || was.Reason != is.Reason}
	if kube.IsStale(actErr) {
		outcome.Err = actErr
	} else if is.Status != metav1.ConditionTrue && p.action != wait {
		outcome.Again = kube.FailurePause(s.Status.Conditions, v1alpha1.ConditionStored, p.now)
	}
	after := s.DeepCopy()
	after.Status = status
	written, result, err := r.Status.Finish(ctx, s, after, outcome)
	if !written || was.Reason == is.Reason {
		return result, err
	}
	switch is.Reason {
	case v1alpha1.ReasonStored:
		r.Events.Normal(s, is.Reason, "Store", is.Message)
	case v1alpha1.ReasonWaiting:
	default:
		r.Events.Warning(s, is.Reason, "Store", is.Message)
	}
	return result, err
}
