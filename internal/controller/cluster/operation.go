package cluster

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// summarizeOperation returns the last operation: the one that the engine reports, or the one that was just started.
func summarizeOperation(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) *v1alpha1.LastOperation {
	last := cluster.Status.LastOperation.DeepCopy()
	var engine *engineError
	switch {
	case p.operation != "" && errors.As(actErr, &engine):
		last = &v1alpha1.LastOperation{Type: p.operation, State: v1alpha1.OperationFailed, Attempts: p.attempts, Description: wordsOf(engine)}
	case p.operation != "":
		last = &v1alpha1.LastOperation{Type: p.operation, State: v1alpha1.OperationProcessing, Attempts: p.attempts, Description: "Started"}
	case last != nil && last.Type == v1alpha1.OperationRestore && last.State == v1alpha1.OperationProcessing && isRestored(cluster, seen) && !isBusy(seen):
		last.State, last.Description = v1alpha1.OperationSucceeded, "The objects of the snapshot are restored"
	case last != nil && seen.outside.Operation != nil && seen.outside.Operation.Delete == (last.Type == v1alpha1.OperationDelete):
		o := seen.outside.Operation
		if o.State == v1alpha1.OperationSucceeded && last.State == v1alpha1.OperationSucceeded || o.Stale && o.State != v1alpha1.OperationProcessing {
			return last // it was reported before, or is outdated
		}
		last.State, last.Description = o.State, o.Description
	case last != nil && last.State == v1alpha1.OperationProcessing && seen.err == nil && isDone(cluster, seen, last.Type):
		// It ended while no manager was running.
		last.State, last.Description = v1alpha1.OperationSucceeded, "Done"
	}
	if last == nil {
		return nil
	}
	last.Description = limit(last.Description)
	if before := cluster.Status.LastOperation; before == nil || before.State != last.State || before.Description != last.Description ||
		before.Type != last.Type || before.Attempts != last.Attempts {
		last.LastUpdateTime = metav1.NewTime(p.at)
	}
	return last
}

// isDone reports whether the observed state is the result of an operation.
func isDone(cluster *v1alpha1.Cluster, seen observation, operation v1alpha1.OperationType) bool {
	switch operation {
	case v1alpha1.OperationDelete:
		return false
	case v1alpha1.OperationStop:
		return !seen.stop.wanted || seen.outside.Stopped
	case v1alpha1.OperationRestore:
		return !wantsRestore(seen)
	}
	return seen.outside.Applied
}
