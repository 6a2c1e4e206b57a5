package cluster

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/requests"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// restoreSeen is what is observed for a restore that has not ended.
type restoreSeen struct {
	// unusable is why the cluster cannot be restored from the snapshot; empty if it can.
	unusable string
	// previous is the ClusterSnapshot of the present state; nil if it does not exist.
	previous *snapshots.Snapshot
	// request is the request for the engine; nil if something is missing.
	request *Restore
}

// restoreOf returns what is known about spec.restore.
func restoreOf(cluster *v1alpha1.Cluster, seen *observation) *snapshots.Restore {
	r := &snapshots.Restore{
		Object: cluster, Kind: "ClusterSnapshot", By: v1alpha1.LabelRestoreOf, Noun: "cluster", Content: "objects",
		Idle: whyNotRestored(cluster, seen), Unusable: seen.restore.unusable, Previous: seen.restore.previous, Done: cluster.Status.Restore,
	}
	if spec := cluster.Spec.Restore; spec != nil {
		r.Spec = spec
	}
	return r
}

// whyNotRestored returns why a cluster is not restored now; nil if it can be.
func whyNotRestored(cluster *v1alpha1.Cluster, seen *observation) *metav1.Condition {
	switch {
	case seen.stop.wanted:
		return &metav1.Condition{Reason: v1alpha1.ReasonStopped, Message: "The cluster is restored when " + seen.stop.until}
	case cluster.Status.AppliedConfigHash == "":
		return &metav1.Condition{Reason: v1alpha1.ReasonWaiting, Message: "The cluster is restored after it was provisioned"}
	}
	return nil
}

// asksForRestore reports whether the Cluster requests a restore that has not ended.
func asksForRestore(cluster *v1alpha1.Cluster) bool {
	return restoreOf(cluster, &observation{}).IsRequested()
}

// observeRestore reads the ClusterSnapshots of a restore.
func (r *Reconciler) observeRestore(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	if !asksForRestore(cluster) {
		return nil
	}
	restore := restoreOf(cluster, seen)
	snapshot, err := r.readySnapshot(ctx, cluster.Spec.Restore.Snapshot)
	switch {
	case errors.Is(err, ErrSnapshot):
		restore.Unusable = wordsOf(err)
	case err != nil:
		return err
	case snapshot.Spec.ClusterName != cluster.Name || snapshot.Status.TakenAt.Before(&cluster.CreationTimestamp):
		restore.Unusable = restore.OfAnother(kind.Kind, "spec.from")
	}
	if restore.Previous, err = r.scheduled(cluster).ObservePrevious(ctx, restore); err != nil {
		return err
	}
	seen.restore.unusable, seen.restore.previous = restore.Unusable, restore.Previous
	if restore.IsDue(r.Clock.Now()) {
		seen.restore.request = &Restore{Token: restore.Token(), Name: snapshot.Name, UID: snapshot.UID}
	}
	return nil
}

// hasBegun reports whether the engine does the restore of spec.restore, or has tried it in vain.
func hasBegun(cluster *v1alpha1.Cluster, seen observation) bool {
	o := seen.outside.Operation
	return seen.err == nil && o != nil && asksForRestore(cluster) && o.Restore == requests.Token(&cluster.Spec.Restore.RequestedAt) && o.State != v1alpha1.OperationSucceeded
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
	return spec != nil && seen.err == nil && seen.outside.Restored == requests.Token(&spec.RequestedAt)
}

// isRestoring reports whether the engine is restoring the cluster, whose processes may be stopped for that.
func isRestoring(seen observation) bool {
	o := seen.outside.Operation
	return seen.restore.request != nil && o != nil && !o.Stale && !o.Delete && o.State == v1alpha1.OperationProcessing
}

// newPrevious returns the ClusterSnapshot of the state before a restore, without its name.
func newPrevious(cluster *v1alpha1.Cluster) *v1alpha1.ClusterSnapshot {
	s := &v1alpha1.ClusterSnapshot{Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: cluster.Name}}
	s.Labels = newLabels(cluster)
	return s
}

// decideRestore decides about the ClusterSnapshot of the present state.
func decideRestore(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	if seen.err != nil || isBusy(seen) || isRestored(cluster, seen) {
		return // it may be the only copy of the objects before
	}
	p.previous = restoreOf(cluster, &seen).DecidePrevious(seen.restore.request != nil)
}

// isBusy reports whether an operation of the engine is in progress.
func isBusy(seen observation) bool {
	o := seen.outside.Operation
	return o != nil && o.State == v1alpha1.OperationProcessing
}

// actOnPrevious makes or deletes the ClusterSnapshot of the present state.
func (r *Reconciler) actOnPrevious(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	return r.scheduled(cluster).ActOnPrevious(ctx, restoreOf(cluster, &seen), p.previous, newPrevious(cluster))
}

// summarizeRestore sets or removes what the status has about spec.restore.
func summarizeRestore(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) {
	const name = v1alpha1.ConditionRestored
	if cluster.Spec.Restore == nil {
		meta.RemoveStatusCondition(&status.Conditions, name)
		return
	}
	if asksForRestore(cluster) && seen.err == nil {
		summarizeResult(cluster, seen, p, status)
	}
	is := restoredCondition(cluster, seen, p, status)
	kube.SetConditions(cluster, &status.Conditions, p.at, is)
}

// summarizeResult sets the result of a restore that has ended.
func summarizeResult(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) {
	failed, message := seen.restore.hasFailed(seen.outside), ""
	switch {
	case isRestored(cluster, seen):
		failed = false
	case !failed:
		return
	case seen.outside.Operation.Err != nil:
		message = limit(wordsOf(seen.outside.Operation.Err))
	default:
		message = limit(seen.outside.Operation.Description)
	}
	status.Restore = restoreOf(cluster, &seen).End(failed, message, p.at)
}

// restoredCondition returns the condition of a Cluster with spec.restore.
func restoredCondition(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) metav1.Condition {
	const name = v1alpha1.ConditionRestored
	r := restoreOf(cluster, &seen)
	r.Done = status.Restore
	if !r.IsDone() && (cluster.Spec.Paused || !cluster.DeletionTimestamp.IsZero()) {
		if before := meta.FindStatusCondition(cluster.Status.Conditions, name); before != nil {
			return *before
		}
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The restore has not begun")
	}
	return r.Condition(p.previous, seen.restore.request != nil)
}
