package cluster

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// stop is whether and why a cluster is not to run now. The zero value means that it is to run.
type stop struct {
	wanted bool
	// idle is true if spec.idle stops the cluster; otherwise spec.running does.
	idle bool
	// why, until and while continue "The cluster is stopped: ", "The spec is applied when " and "No snapshots are made while ".
	why, until, while string
	// next is when spec.idle stops a cluster that is to run, if no client connects; zero if that is not known.
	next time.Time
}

// decideStop decides whether a cluster is to run now. A cluster that was stopped because it was idle stays so until a client connects.
func decideStop(cluster *v1alpha1.Cluster, seen observation, now time.Time) stop {
	idle, outside := cluster.Spec.Idle, seen.outside
	switch {
	case !ptr.Deref(cluster.Spec.Running, true):
		const cause = "spec.running is false"
		return stop{wanted: true, why: cause, until: "spec.running is true", while: cause}
	case idle == nil, !cluster.DeletionTimestamp.IsZero(), seen.err != nil:
		return stop{}
	case outside.Idle:
	case cluster.Spec.Paused, outside.LastClient.IsZero(), !outside.Applied, !outside.Attended, !outside.Running, wantsRestore(seen), isBusy(seen):
		return stop{}
	default:
		if next := outside.LastClient.Add(idle.StopAfter.Duration); now.Before(next) {
			return stop{next: next}
		}
	}
	return stop{
		wanted: true, idle: true, why: fmt.Sprintf("it is idle, no client was connected for %s", idle.StopAfter.Duration),
		until: "a client connects to the idle cluster", while: "the cluster is stopped because of spec.idle",
	}
}

// isStopped reports whether the cluster is stopped, or being stopped, as the spec requests.
func isStopped(cluster *v1alpha1.Cluster, seen observation) bool {
	return seen.stop.wanted && !cluster.Spec.Paused && seen.err == nil
}

// stoppedCondition returns a condition of a cluster for which isStopped is true.
func stoppedCondition(name string, seen observation) metav1.Condition {
	if !seen.outside.Stopped {
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonStopping, "The cluster is being stopped: %s", seen.stop.why)
	}
	status, hint := metav1.ConditionFalse, ""
	if name == v1alpha1.ConditionReady {
		status = metav1.ConditionTrue // it is as requested
	}
	if seen.stop.idle {
		hint = fmt.Sprintf(". A connection to %s starts it", seen.outside.Endpoint)
	}
	return condition(name, status, v1alpha1.ReasonStopped, "The cluster is stopped: %s%s", seen.stop.why, hint)
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
	kube.SetConditions(cluster, &status.Conditions, p.at, is)
}
