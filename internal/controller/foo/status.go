package foo

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of foo after the plan was executed with the result
// actErr. It is a pure function.
func summarize(foo *v1alpha1.Foo, seen observation, p plan, actErr error) v1alpha1.FooStatus {
	status := *foo.Status.DeepCopy()
	status.ObservedGeneration = foo.Generation
	status.Selector = selectorText(foo)
	status.Replicas, status.AvailableReplicas = 0, 0
	if current := seen.find(foo.Spec.DeploymentName); current != nil {
		status.Replicas, status.AvailableReplicas = current.Status.Replicas, current.Status.AvailableReplicas
	}
	ready := summarizeReady(foo, seen, p, actErr)
	ready.Type = v1alpha1.ConditionReady
	kube.SetConditions(foo, &status.Conditions, p.at, ready)
	return status
}

func summarizeReady(foo *v1alpha1.Foo, seen observation, p plan, actErr error) metav1.Condition {
	name := foo.Spec.DeploymentName
	not := func(reason, message string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	switch {
	case errors.Is(actErr, kube.ErrNotOwned), actErr == nil && p.action == blocked:
		return not(v1alpha1.ReasonErrResourceExists,
			"Deployment %q exists and %s. Change spec.deploymentName or delete that Deployment", name, describeOwner(seen.other))
	case kube.IsRejected(actErr):
		return not(v1alpha1.ReasonDeploymentRejected,
			"The API rejected Deployment %q: %s. Change the Foo, or the policy or quota that rejected it", name, kube.APIWords(actErr))
	case actErr != nil:
		return not(v1alpha1.ReasonDeploymentWriteFailed, "Deployment %q could not be written, the write is retried: %s", name, kube.APIWords(actErr))
	}
	switch p.action {
	case create, repair:
		return not(v1alpha1.ReasonProgressing, "Deployment %q was written and is not available yet", name)
	case replace:
		return not(v1alpha1.ReasonProgressing, "Deployment %q has another selector, which is immutable; it is deleted and created again", name)
	case waitForDeletion:
		return not(v1alpha1.ReasonProgressing, "Deployment %q is being deleted; a new one is created afterwards", name)
	case waitForCollection:
		return not(v1alpha1.ReasonProgressing, "Deployment %q of an earlier Foo with this name is about to be deleted; a new one is created afterwards", name)
	}
	if !isAvailable(foo, p.current) {
		if cause := cmp.Or(stuckCause(p.current), seen.podProblem); cause != "" {
			return not(v1alpha1.ReasonRolloutStuck, "Deployment %q is stuck: %s. To see the events of its Pods, run: kubectl describe pods --namespace %s --selector %s",
				name, cause, foo.Namespace, selectorText(foo))
		}
		return not(v1alpha1.ReasonProgressing, "Not all replicas of Deployment %q are available yet", name)
	}
	return metav1.Condition{
		Status:  metav1.ConditionTrue,
		Reason:  v1alpha1.ReasonAvailable,
		Message: fmt.Sprintf("All replicas of Deployment %q are available", name),
	}
}

// describeOwner describes the owner of a Deployment that another object or nobody controls; nil
// if the cache does not have it yet.
func describeOwner(other *appsv1.Deployment) string {
	if other == nil {
		return "does not belong to this Foo"
	}
	if owner := metav1.GetControllerOfNoCopy(other); owner != nil {
		return fmt.Sprintf("belongs to %s %q", owner.Kind, owner.Name)
	}
	return "has no owner"
}

// isAvailable reports whether the Deployment has rolled out: its controller has observed
// the current spec, no Pod of an earlier spec is left, and all Pods are available.
func isAvailable(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	want, got := replicas(foo), deployment.Status
	return got.ObservedGeneration >= deployment.Generation &&
		got.Replicas == want && got.UpdatedReplicas == want && got.AvailableReplicas == want
}

// stuckCause returns why the Deployment makes no progress, according to its controller; empty if it makes some.
func stuckCause(deployment *appsv1.Deployment) string {
	if deployment.Status.ObservedGeneration < deployment.Generation {
		// The conditions are about an earlier spec.
		return ""
	}
	cause := ""
	for _, condition := range deployment.Status.Conditions {
		switch {
		case isReplicaFailure(condition):
			// This is the cause of the other one.
			return condition.Reason + ": " + condition.Message
		case isNoProgress(condition):
			cause = condition.Reason + ": " + condition.Message
		}
	}
	return cause
}

func isReplicaFailure(condition appsv1.DeploymentCondition) bool {
	return condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue
}

func isNoProgress(condition appsv1.DeploymentCondition) bool {
	return condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionFalse
}

// finish writes the status if it changed, and records a warning if Ready became False for
// a reason that requires a user. It returns the result of Reconcile.
func (r *Reconciler) finish(ctx context.Context, foo *v1alpha1.Foo, status v1alpha1.FooStatus, p plan, actErr error) (reconcile.Result, error) {
	was, is := kube.ConditionTransition(foo.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	kube.LogReady(ctx, is)
	outcome := kube.Outcome{Urgent: isUrgent(was, is), Err: actErr, Acted: p.acts(), Again: p.again}
	switch {
	case errors.Is(actErr, kube.ErrNotOwned):
		// The deletion of the other Deployment triggers the next reconcile.
		outcome.Err = nil
	case kube.IsRejected(actErr):
		outcome.Err = nil
		outcome.Again = kube.RejectedPause(is.LastTransitionTime.Time, p.at)
	}
	after := foo.DeepCopy()
	after.Status = status
	written, result, err := r.Status.Finish(ctx, foo, after, outcome)
	if written && was.Reason != is.Reason && (needsUser(is) || is.Reason == v1alpha1.ReasonRolloutStuck || is.Reason == v1alpha1.ReasonDeploymentWriteFailed) {
		r.Events.Warning(foo, is.Reason, "ApplyDeployment", is.Message)
	}
	return result, err
}

// isUrgent reports whether the change of Ready is written without a delay: the Foo became
// ready or requires a user.
func isUrgent(was, is metav1.Condition) bool {
	if is.Status == metav1.ConditionTrue {
		return was.Status != is.Status || was.ObservedGeneration != is.ObservedGeneration
	}
	return needsUser(is) && (was.Reason != is.Reason || was.Message != is.Message)
}

// needsUser reports whether the Foo does not become ready without a user.
func needsUser(ready metav1.Condition) bool {
	return ready.Reason == v1alpha1.ReasonErrResourceExists || ready.Reason == v1alpha1.ReasonDeploymentRejected
}
