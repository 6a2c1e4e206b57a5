package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// isStopped reports whether the cluster is stopped, or being stopped, as the spec requests.
func isStopped(cluster *v1alpha1.Cluster, seen observation) bool {
	return !runs(cluster, seen) && !cluster.Spec.Paused && seen.err == nil
}

// stoppedCondition returns a condition of a cluster for which isStopped is true.
func stoppedCondition(name string, cluster *v1alpha1.Cluster, seen observation) metav1.Condition {
	why, hint := "spec.running is false", ""
	if seen.idle {
		why = fmt.Sprintf("it is idle, no client was connected for %s", cluster.Spec.Idle.StopAfter.Duration)
		hint = fmt.Sprintf(". A connection to %s starts it", seen.outside.Endpoint)
	}
	if !seen.outside.Stopped {
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonStopping, "The cluster is being stopped: %s", why)
	}
	status := metav1.ConditionFalse
	if name == v1alpha1.ConditionReady {
		status = metav1.ConditionTrue // it is as requested
	}
	return condition(name, status, v1alpha1.ReasonStopped, "The cluster is stopped: %s%s", why, hint)
}

// summarizeExpiry sets or removes what the status has about spec.expiresAfter.
func summarizeExpiry(cluster *v1alpha1.Cluster, p plan, status *v1alpha1.ClusterStatus) {
	const name = v1alpha1.ConditionExpiring
	at, expires := expiresAt(cluster, p.at)
	if !expires {
		status.ExpiresAt = nil
		meta.RemoveStatusCondition(&status.Conditions, name)
		return
	}
	status.ExpiresAt = &metav1.Time{Time: at}
	is := condition(name, metav1.ConditionFalse, v1alpha1.ReasonNotExpiring, "The deletion is announced %s before status.expiresAt", v1alpha1.ExpiryNotice)
	if text := at.UTC().Format("2006-01-02T15:04:05Z"); !p.at.Before(at.Add(-v1alpha1.ExpiryNotice)) {
		switch {
		case cluster.Spec.DeletionProtection:
			is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonDeletionProtected, "The Cluster expires at %s, but spec.deletionProtection is true", text)
		case cluster.Spec.Paused:
			is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonPaused, "The Cluster expires at %s, but spec.paused is true", text)
		default:
			is = condition(name, metav1.ConditionTrue, v1alpha1.ReasonExpiring, "The Cluster is deleted at %s. To keep it, raise or remove spec.expiresAfter", text)
		}
	}
	is.ObservedGeneration, is.LastTransitionTime = cluster.Generation, metav1.NewTime(p.at)
	meta.SetStatusCondition(&status.Conditions, is)
}
