package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// previousValid is how old the snapshot of the present state may be when the restore begins. If it is older, the restore was
// interrupted, and another one is made: the cluster may have changed since.
const previousValid = 15 * time.Minute

// restoreSeen is what is observed for a restore that has not ended.
type restoreSeen struct {
	// err is an ErrSnapshot if the cluster cannot be restored from the snapshot.
	err error
	// previous is the ClusterSnapshot of the present state; nil if it does not exist.
	previous *v1alpha1.ClusterSnapshot
	// request is the request for the engine; nil if something is missing.
	request *Restore
}

// asksForRestore reports whether the Cluster requests a restore that has not ended.
func asksForRestore(cluster *v1alpha1.Cluster) bool {
	spec, status := cluster.Spec.Restore, cluster.Status.Restore
	return spec != nil && cluster.DeletionTimestamp.IsZero() && (status == nil || status.RequestedAt != spec.RequestedAt)
}

// observeRestore reads the ClusterSnapshots of a restore.
func (r *Reconciler) observeRestore(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	if !asksForRestore(cluster) {
		return nil
	}
	spec := cluster.Spec.Restore
	snapshot, err := r.readySnapshot(ctx, spec.Snapshot)
	if err != nil && !errors.Is(err, ErrSnapshot) {
		return err
	}
	switch {
	case err != nil:
		seen.restore.err = err
	case snapshot.Spec.ClusterName != cluster.Name || snapshot.Status.TakenAt.Before(&cluster.CreationTimestamp):
		seen.restore.err = fmt.Errorf("%w: the ClusterSnapshot %s is of another Cluster: create a new Cluster of it with spec.from", ErrSnapshot, spec.Snapshot)
	}
	var previous v1alpha1.ClusterSnapshot
	switch err := kube.GetNew(ctx, r.client, r.live, client.ObjectKey{Name: previousName(cluster)}, &previous); {
	case err == nil:
		seen.restore.previous = &previous
	case client.IgnoreNotFound(err) != nil:
		return kube.Named(err, "get", "ClusterSnapshot", "", previousName(cluster))
	}
	isReady := isValid(seen.restore.previous, cluster, r.Clock.Now())
	if !keepsCurrent(cluster) {
		isReady = !isPending(seen.restore.previous, cluster)
	}
	if seen.restore.err == nil && cluster.Status.AppliedConfigHash != "" && isRunning(cluster) && isReady {
		seen.restore.request = &Restore{Token: spec.RequestedAt, Name: snapshot.Name, UID: snapshot.UID}
	}
	return nil
}

// keepsCurrent reports whether a ClusterSnapshot of the present state is made before the restore.
func keepsCurrent(cluster *v1alpha1.Cluster) bool {
	return ptr.Deref(cluster.Spec.Restore.KeepCurrent, true)
}

// isPending reports whether a ClusterSnapshot that was made for a restore is not taken yet. It must not be taken after the restore.
func isPending(previous *v1alpha1.ClusterSnapshot, cluster *v1alpha1.Cluster) bool {
	return previous != nil && previous.Labels[v1alpha1.LabelRestoreOf] == string(cluster.UID) && previous.DeletionTimestamp.IsZero() &&
		previous.Status.TakenAt == nil
}

// isValid reports whether a ClusterSnapshot has the present state.
func isValid(previous *v1alpha1.ClusterSnapshot, cluster *v1alpha1.Cluster, now time.Time) bool {
	return previous != nil && previous.Labels[v1alpha1.LabelRestoreOf] == string(cluster.UID) && previous.DeletionTimestamp.IsZero() &&
		meta.IsStatusConditionTrue(previous.Status.Conditions, v1alpha1.ConditionReady) &&
		previous.Status.TakenAt != nil && now.Before(previous.Status.TakenAt.Add(previousValid))
}

// hasFailed reports whether the engine has tried the restore in vain.
func (s *restoreSeen) hasFailed(outside Observation) bool {
	o := outside.Operation
	return s.request != nil && outside.Restored != s.request.Token && o != nil && !o.Stale && !o.Delete && o.State == v1alpha1.OperationFailed
}

// wantsRestore reports whether the engine has to begin or to continue the restore.
func wantsRestore(seen observation) bool {
	r := &seen.restore
	return r.request != nil && seen.outside.Restored != r.request.Token && !r.hasFailed(seen.outside)
}

// isRestored reports whether the engine has done the restore of spec.restore.
func isRestored(cluster *v1alpha1.Cluster, seen observation) bool {
	spec := cluster.Spec.Restore
	return spec != nil && seen.err == nil && seen.outside.Restored == spec.RequestedAt
}

// isRestoring reports whether the engine is restoring the cluster, whose processes may be stopped for that.
func isRestoring(seen observation) bool {
	o := seen.outside.Operation
	return seen.restore.request != nil && o != nil && !o.Stale && !o.Delete && o.State == v1alpha1.OperationProcessing
}

// restoringCondition is a condition of a component that does not run because of that.
func restoringCondition(name string) metav1.Condition {
	return condition(name, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "The cluster is being restored and starts again")
}

// previousName returns the name of the ClusterSnapshot of the state before the restore. A request has one name.
func previousName(cluster *v1alpha1.Cluster) string {
	sum := sha256.Sum256([]byte(string(cluster.UID) + "/" + cluster.Spec.Restore.RequestedAt))
	suffix := "-before-restore-" + hex.EncodeToString(sum[:])[:10]
	return kube.Shorten(cluster.Name, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// newPrevious returns that ClusterSnapshot.
func newPrevious(cluster *v1alpha1.Cluster) *v1alpha1.ClusterSnapshot {
	labels := newLabels(cluster)
	labels[v1alpha1.LabelRestoreOf] = string(cluster.UID)
	return &v1alpha1.ClusterSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: previousName(cluster), Labels: labels},
		Spec:       v1alpha1.ClusterSnapshotSpec{ClusterName: cluster.Name},
	}
}

// decideRestore decides about the ClusterSnapshot of the present state.
func decideRestore(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	previous := seen.restore.previous
	switch {
	case !asksForRestore(cluster) || seen.restore.err != nil || seen.restore.request != nil && keepsCurrent(cluster):
		p.previous = childKeep
	case seen.err != nil || isBusy(seen) || isRestored(cluster, seen):
		p.previous = childKeep // it may be the only copy of the objects before
	case previous != nil && previous.Labels[v1alpha1.LabelRestoreOf] != string(cluster.UID):
		p.previous = childBlocked
		if !keepsCurrent(cluster) {
			p.previous = childKeep
		}
	case previous != nil && !previous.DeletionTimestamp.IsZero():
		p.previous = childWait
	case !keepsCurrent(cluster) && isPending(previous, cluster):
		p.previous = childRemove
	case !keepsCurrent(cluster) || !runs(cluster, seen) || cluster.Status.AppliedConfigHash == "":
		p.previous = childKeep
	case previous == nil:
		p.previous = childCreate
	case previous.Status.TakenAt != nil:
		p.previous = childRemove // it is too old, or lost
	}
}

// isBusy reports whether an operation of the engine is in progress.
func isBusy(seen observation) bool {
	o := seen.outside.Operation
	return o != nil && o.State == v1alpha1.OperationProcessing
}

// actOnPrevious makes or deletes the ClusterSnapshot of the present state.
func (r *Reconciler) actOnPrevious(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	switch p.previous {
	case childCreate:
		if err := r.checkLive(ctx, cluster); err != nil {
			return err
		}
		s := newPrevious(cluster)
		err := r.client.Create(ctx, s, client.FieldOwner(kube.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			err = kube.ErrStale // the next reconcile sees whose it is
		}
		if err != nil {
			return kube.Named(err, "create", "ClusterSnapshot", "", s.Name)
		}
		log.FromContext(ctx).Info("Made a snapshot of the state before a restore", "ClusterSnapshot", s.Name)
	case childRemove:
		return kube.Named(kube.Delete(ctx, r.client, seen.restore.previous), "delete", "ClusterSnapshot", "", seen.restore.previous.Name)
	}
	return nil
}

// summarizeRestore sets or removes what the status has about spec.restore.
func summarizeRestore(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) {
	const name = v1alpha1.ConditionRestored
	spec := cluster.Spec.Restore
	if spec == nil {
		meta.RemoveStatusCondition(&status.Conditions, name)
		return
	}
	if asksForRestore(cluster) && seen.err == nil {
		summarizeResult(cluster, seen, p, status)
	}
	is := restoredCondition(cluster, seen, p, status)
	is.ObservedGeneration, is.LastTransitionTime = cluster.Generation, metav1.NewTime(p.at)
	meta.SetStatusCondition(&status.Conditions, is)
}

// summarizeResult sets the result of a restore that has ended.
func summarizeResult(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) {
	result := &v1alpha1.ClusterRestoreStatus{
		RequestedAt: cluster.Spec.Restore.RequestedAt, Snapshot: cluster.Spec.Restore.Snapshot, CompletedAt: &metav1.Time{Time: p.at},
	}
	if previous := seen.restore.previous; previous != nil && previous.Status.TakenAt != nil && previous.Labels[v1alpha1.LabelRestoreOf] == string(cluster.UID) {
		result.Previous = previous.Name
	}
	switch {
	case isRestored(cluster, seen):
		result.Result = v1alpha1.RestoreSucceeded
	case seen.restore.hasFailed(seen.outside):
		o := seen.outside.Operation
		result.Result, result.Message = v1alpha1.RestoreFailed, limit(o.Description)
		if o.Err != nil {
			result.Message = limit(wordsOf(o.Err))
		}
	default:
		return
	}
	status.Restore = result
}

// restoredCondition returns the condition of a Cluster with spec.restore.
func restoredCondition(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) metav1.Condition {
	const name = v1alpha1.ConditionRestored
	spec, done := cluster.Spec.Restore, status.Restore
	if done != nil && done.RequestedAt == spec.RequestedAt {
		switch {
		case done.Result == v1alpha1.RestoreFailed:
			return condition(name, metav1.ConditionFalse, v1alpha1.ReasonRestoreFailed,
				"The cluster was not restored and has the objects that it had before: %s. To try again, change spec.restore.requestedAt", done.Message)
		case done.Previous != "":
			return condition(name, metav1.ConditionTrue, v1alpha1.ReasonRestored,
				"The cluster has the objects of the ClusterSnapshot %s. Those before are in the ClusterSnapshot %s", done.Snapshot, done.Previous)
		}
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonRestored, "The cluster has the objects of the ClusterSnapshot %s", done.Snapshot)
	}
	before := meta.FindStatusCondition(cluster.Status.Conditions, name)
	switch previous := seen.restore.previous; {
	case (cluster.Spec.Paused || !cluster.DeletionTimestamp.IsZero()) && before != nil:
		return *before
	case cluster.Spec.Paused || !cluster.DeletionTimestamp.IsZero():
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The restore has not begun")
	case !runs(cluster, seen):
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonStopped, "The cluster is restored when %s", whenStarted(seen))
	case cluster.Status.AppliedConfigHash == "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "The cluster is restored after it was provisioned")
	case seen.restore.err != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonSnapshotNotAvailable, "%s", wordsOf(seen.restore.err))
	case p.previous == childBlocked:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists,
			"There is a ClusterSnapshot %s that Keelson has not made: delete it, or change spec.restore.requestedAt", previous.Name)
	case seen.restore.request == nil && p.previous != childRemove:
		cause := ""
		if previous != nil {
			if ready := meta.FindStatusCondition(previous.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status != metav1.ConditionTrue {
				cause = ": " + ready.Message
			}
		}
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending,
			"Before the restore, the present objects are kept in the ClusterSnapshot %s, which is not taken yet%s. To restore without it, set spec.restore.keepCurrent to false",
			previousName(cluster), cause)
	}
	return condition(name, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "The cluster is being restored from the ClusterSnapshot %s", spec.Snapshot)
}
