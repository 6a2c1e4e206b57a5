package cluster

import (
	"time"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// runs reports whether the cluster is to run now.
func runs(cluster *v1alpha1.Cluster, seen observation) bool { return isRunning(cluster) && !seen.idle }

// isIdle reports whether spec.idle stops a cluster that spec.running would let run. A cluster that was stopped stays so until a client
// connects to it.
func isIdle(cluster *v1alpha1.Cluster, seen observation, now time.Time) bool {
	switch {
	case cluster.Spec.Idle == nil, !isRunning(cluster), !cluster.DeletionTimestamp.IsZero(), seen.err != nil:
		return false
	case seen.outside.Idle:
		return true
	case cluster.Spec.Paused:
		return false
	}
	left, known := untilIdle(cluster, seen, now)
	return known && left <= 0
}

// untilIdle returns the time until a running cluster is idle, if no client connects. known is false if it cannot become idle now: an
// operation is due or in progress, or it is not known when a client was connected.
func untilIdle(cluster *v1alpha1.Cluster, seen observation, now time.Time) (left time.Duration, known bool) {
	outside := seen.outside
	if cluster.Spec.Idle == nil || outside.LastClient.IsZero() || !outside.Applied || !outside.Attended || !outside.Running || wantsRestore(seen) {
		return 0, false
	}
	if o := outside.Operation; o != nil && o.State == v1alpha1.OperationProcessing {
		return 0, false
	}
	return outside.LastClient.Add(cluster.Spec.Idle.StopAfter.Duration).Sub(now), true
}

// whenStarted says when a stopped cluster starts.
func whenStarted(seen observation) string {
	if seen.idle {
		return "a client connects to the idle cluster"
	}
	return "spec.running is true"
}
