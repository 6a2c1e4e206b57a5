package cluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarizeNodes sets the condition about the nodes. There is none with an engine that does not report them.
func summarizeNodes(cluster *v1alpha1.Cluster, seen observation, p plan, status *v1alpha1.ClusterStatus) {
	const name = v1alpha1.ConditionNodesReady
	var is metav1.Condition
	nodes := seen.outside.Nodes
	switch {
	case !cluster.DeletionTimestamp.IsZero() || seen.engine != v1alpha1.EngineLocal:
		return
	case isStopped(cluster, seen):
		is = stoppedCondition(name, seen)
	case seen.err == nil && !seen.outside.Applied:
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonStarting, "The nodes are checked after the spec is applied")
	case isRestoring(seen) && nodes == nil:
		is = *interruption(name, seen, p)
	case nodes == nil:
		is = asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The nodes were not observed yet"))
	case nodes.Ready:
		is = condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "All nodes of the spec are ready")
	case nodes.Problem != "":
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonNodesNotReady, "%s", nodes.Problem)
	default:
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonStarting, "The nodes are starting")
	}
	kube.SetConditions(cluster, &status.Conditions, p.at, is)
}
