package cluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// finish writes the status if it changed, and records its events. It returns the result of Reconcile.
func (r *Reconciler) finish(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, status v1alpha1.ClusterStatus, p plan, actErr error) (reconcile.Result, error) {
	if p.action == release || p.action == giveUp || p.action == expire {
		if actErr == nil {
			return reconcile.Result{}, nil // the Cluster no longer exists, or is being deleted
		}
		return kube.ResultForTransient(actErr)
	}
	outcome := kube.Outcome{Urgent: isUrgent(cluster.Status, status), Err: actErr, Again: p.again}
	var engine *engineError
	switch {
	case errors.As(actErr, &engine):
		// The status reports the error. Retry after a fixed interval: the fix may be up to a user.
		outcome.Err, outcome.Again = nil, sooner(p.again, recheck)
		if errors.Is(actErr, ErrBusy) {
			outcome.Again = sooner(p.again, probeTimeout)
		}
	case errors.Is(actErr, kube.ErrNotOwned):
		outcome.Err, outcome.Again = nil, sooner(p.again, recheck)
	}
	after := cluster.DeepCopy()
	after.Status = status
	_, ready := kube.ConditionTransition(nil, status.Conditions, v1alpha1.ConditionReady)
	kube.LogReady(ctx, ready)
	written, result, err := r.Status.Finish(ctx, cluster, after, outcome)
	if written {
		r.recordEvents(cluster, seen, status)
		r.metrics.observed(cluster, status, p.at)
	}
	return result, err
}

// isUrgent reports whether the change is written without a delay: every change except the step of an operation.
func isUrgent(was, is v1alpha1.ClusterStatus) bool {
	if was.Phase != is.Phase || was.Version != is.Version || was.ObservedGeneration != is.ObservedGeneration || len(was.Conditions) != len(is.Conditions) {
		return true
	}
	if !equalUsers(was.Users, is.Users) || !equality.Semantic.DeepEqual(was.Snapshots, is.Snapshots) ||
		!equality.Semantic.DeepEqual(was.Restore, is.Restore) {
		return true
	}
	if a, b := was.LastOperation, is.LastOperation; b != nil && (a == nil || a.Type != b.Type || a.State != b.State || a.Attempts != b.Attempts) {
		return true // the backoff depends on it
	}
	for _, c := range is.Conditions {
		before := meta.FindStatusCondition(was.Conditions, c.Type)
		if before == nil || before.Status != c.Status || before.Reason != c.Reason {
			return true
		}
	}
	return false
}

// recordEvents records the events of a status that was written.
func (r *Reconciler) recordEvents(cluster *v1alpha1.Cluster, seen observation, status v1alpha1.ClusterStatus) {
	was, is := kube.ConditionTransition(cluster.Status.Conditions, status.Conditions, v1alpha1.ConditionProvisioned)
	if was.Reason != is.Reason || was.Status != is.Status {
		switch {
		case is.Status == metav1.ConditionTrue:
			r.Events.Normal(cluster, is.Reason, "Apply", is.Message)
		case is.Status == metav1.ConditionFalse && !isProgress(is.Reason):
			r.Events.Warning(cluster, is.Reason, "Apply", is.Message)
		}
	}
	was, is = kube.ConditionTransition(cluster.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	switch {
	case was.Reason != is.Reason && is.Reason == v1alpha1.ReasonStopped:
		r.Events.Normal(cluster, is.Reason, "Stop", is.Message)
	case was.Reason == v1alpha1.ReasonAvailable && is.Status == metav1.ConditionFalse && !isProgress(is.Reason):
		r.Events.Warning(cluster, is.Reason, "Probe", is.Message)
	case was.Status == metav1.ConditionFalse && is.Status == metav1.ConditionTrue:
		r.Events.Normal(cluster, is.Reason, "Probe", is.Message)
	}
	was, is = kube.ConditionTransition(cluster.Status.Conditions, status.Conditions, v1alpha1.ConditionRestored)
	switch {
	case was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration:
	case is.Status == metav1.ConditionTrue && was.Status != is.Status:
		r.Events.Normal(cluster, is.Reason, "Restore", is.Message)
	case is.Reason == v1alpha1.ReasonRestoreFailed || is.Reason == v1alpha1.ReasonSnapshotNotAvailable:
		r.Events.Warning(cluster, is.Reason, "Restore", is.Message)
	}
	for _, name := range []string{v1alpha1.ConditionKubeconfigAvailable, v1alpha1.ConditionDeleting, v1alpha1.ConditionExpiring} {
		was, is = kube.ConditionTransition(cluster.Status.Conditions, status.Conditions, name)
		if was.Reason != is.Reason && isTrouble(is.Reason) {
			r.Events.Warning(cluster, is.Reason, "Reconcile", is.Message)
		}
	}
	if old := cluster.Status.Version; old != "" && old != status.Version {
		r.Events.Normal(cluster, v1alpha1.ReasonUpgraded, "Upgrade", fmt.Sprintf("The API of the cluster now reports %s; before it was %s", status.Version, old))
	}
	before, now := cluster.Status.LastOperation, status.LastOperation
	if seen.outside.Woken && isStarting(now) && !isStarting(before) {
		r.Events.Normal(cluster, v1alpha1.ReasonClientConnected, "Start",
			fmt.Sprintf("A client has connected to %s: the idle cluster is started", status.Endpoint))
	}
	if now != nil && now.State == v1alpha1.OperationSucceeded && (before == nil || before.State != now.State) {
		for _, note := range seen.outside.Notes {
			r.Events.Warning(cluster, v1alpha1.ReasonMayBeDirty, string(now.Type), note)
		}
	}
}

// isStarting reports whether an operation that starts a stopped cluster is in progress. A change of its spec is applied with that.
func isStarting(o *v1alpha1.LastOperation) bool {
	return o != nil && o.State == v1alpha1.OperationProcessing && o.Type != v1alpha1.OperationStop
}

// isTrouble reports whether a reason is recorded as a warning.
func isTrouble(reason string) bool {
	switch reason {
	case v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonKubeconfigInvalid, v1alpha1.ReasonWriteFailed,
		v1alpha1.ReasonDeleteFailed, v1alpha1.ReasonDeletionProtected, v1alpha1.ReasonPaused, v1alpha1.ReasonExpiring:
		return true
	}
	return false
}

// isProgress reports whether a reason of Provisioned or Ready describes what was requested, so that it is not a warning.
func isProgress(reason string) bool {
	switch reason {
	case v1alpha1.ReasonProvisioning, v1alpha1.ReasonUpdating, v1alpha1.ReasonWaiting, v1alpha1.ReasonStarting, v1alpha1.ReasonStopping, v1alpha1.ReasonStopped, v1alpha1.ReasonRestoring,
		v1alpha1.ReasonRemoving:
		return true
	}
	return false
}
