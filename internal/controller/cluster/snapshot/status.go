package snapshot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of a ClusterSnapshot, given the observation, the plan, and the error of carrying it out.
func summarize(s *v1alpha1.ClusterSnapshot, seen observation, p plan, actErr error) v1alpha1.ClusterSnapshotStatus {
	status := *s.Status.DeepCopy()
	status.ObservedGeneration = s.Generation
	if taken := seen.taken; taken != nil {
		at := metav1.NewTime(taken.TakenAt.UTC().Truncate(time.Second))
		status.TakenAt, status.Size = &at, resource.NewQuantity(taken.Size, resource.BinarySI)
		status.Revision, status.Version = taken.Revision, taken.Version
	}
	kube.SetConditions(s, &status.Conditions, p.now, summarizeReady(s, seen, p, actErr))
	return status
}

// summarizeReady returns the condition Ready.
func summarizeReady(s *v1alpha1.ClusterSnapshot, seen observation, p plan, actErr error) metav1.Condition {
	name := s.Spec.ClusterName
	switch {
	case p.action == remove:
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotDeleting, fmt.Sprintf("The snapshot could not be deleted, and Keelson retries: %v", actErr))
	case p.action == unreadable:
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotLost, "The snapshot cannot be read: "+seen.err.Error())
	case p.action == read:
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonReading, "This host has no files of the snapshot: "+whyNotRead(s))
	case p.action == lost:
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotLost,
			"This host has no files of the snapshot any more: restore the state directory of the manager, or delete the ClusterSnapshot")
	case p.action == missing:
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonClusterMissing,
			fmt.Sprintf("There is no Cluster %s: create it, or delete this ClusterSnapshot", name))
	case p.action == unsupported:
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonEngineNotSupported,
			fmt.Sprintf("The Cluster %s has the engine rke, which has no snapshots here: run rke etcd snapshot-save", name))
	case p.action == wait, errors.Is(actErr, ErrNotRunning):
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonClusterNotRunning,
			fmt.Sprintf("The Cluster %s does not run: the snapshot is taken when it is ready", name))
	case seen.taken != nil:
		return newCondition(metav1.ConditionTrue, v1alpha1.ReasonSnapshotTaken, fmt.Sprintf("The snapshot of the Cluster %s is taken", seen.taken.Cluster))
	case actErr != nil && !kube.IsStale(actErr):
		return newCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed, kube.Sentence(actErr.Error())+". Keelson retries")
	}
	return newCondition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotFailed, "The snapshot was not taken. Keelson retries") // not written
}

// whyNotRead returns why the files are not read from the store yet.
func whyNotRead(s *v1alpha1.ClusterSnapshot) string {
	is := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStored)
	if is != nil && is.Status == metav1.ConditionFalse && is.Reason != v1alpha1.ReasonWaiting {
		return is.Message
	}
	return "they are read from the store of the manager"
}

// finish writes the status if it changed, then records events.
func (r *Reconciler) finish(ctx context.Context, s *v1alpha1.ClusterSnapshot, status v1alpha1.ClusterSnapshotStatus, p plan, actErr error) (reconcile.Result, error) {
	was, is := kube.ConditionTransition(s.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	kube.LogReady(ctx, is)
	outcome := kube.Outcome{Urgent: was.Status != is.Status || was.Reason != is.Reason, Again: p.requeueAfter, Err: actErr}
	if errors.Is(actErr, ErrNotRunning) {
		outcome.Err, outcome.Again = nil, waitInterval
	}
	after := s.DeepCopy()
	after.Status = status
	written, result, err := r.Status.Finish(ctx, s, after, outcome)
	if !written || was.Reason == is.Reason {
		return result, err
	}
	switch is.Reason {
	case v1alpha1.ReasonSnapshotTaken:
		r.Events.Normal(s, is.Reason, "Take", is.Message)
	case v1alpha1.ReasonClusterNotRunning, v1alpha1.ReasonReading:
	default:
		r.Events.Warning(s, is.Reason, "Take", is.Message)
	}
	return result, err
}
