package sampleresource

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of sample after the plan was executed with the result actErr. It
// is a pure function.
func summarize(sample *samplev1.SampleResource, _ observation, p plan, actErr error) samplev1.SampleResourceStatus {
	status := *sample.Status.DeepCopy()
	status.ObservedGeneration = sample.Generation
	status.ConsecutiveFailures = failuresSoFar(sample)
	switch {
	case p.pod != nil:
		status.PodName = p.pod.Name
	case p.action == create && actErr == nil:
		status.PodName = p.name
	default:
		status.PodName = ""
	}
	switch {
	case p.action == countFailure:
		status.Replacements++
		status.ConsecutiveFailures++
		status.LastFailureTime = ptr.To(metav1.NewTime(p.at).Rfc3339Copy())
		status.LastFailedPodUID = p.pod.UID
	case p.action == keep && isReady(p.pod):
		status.ConsecutiveFailures = 0
	}
	ready := summarizeReady(sample, p, actErr)
	ready.Type = samplev1.ConditionReady
	kube.SetConditions(sample, &status.Conditions, p.at, ready)
	return status
}

func summarizeReady(sample *samplev1.SampleResource, p plan, actErr error) metav1.Condition {
	not := func(reason, message string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	name := p.name
	if p.pod != nil {
		name = p.pod.Name
	}
	switch {
	case errors.Is(actErr, kube.ErrNotOwned):
		return notOwned(name)
	case isRejected(actErr):
		return not(samplev1.ReasonPodRejected,
			"The API rejected Pod %q: %s. Change the SampleResource, or the policy or quota that rejected it", name, kube.APIWords(actErr))
	case actErr != nil:
		return not(samplev1.ReasonPodWriteFailed, "Pod %q could not be written, the write is retried: %s", name, kube.APIWords(actErr))
	}
	switch p.action {
	case blocked:
		return notOwned(sample.Name)
	case create:
		return not(samplev1.ReasonPodStarting, "Pod %q was created and is not ready yet", name)
	case changeImage:
		return not(samplev1.ReasonPodStarting, "Pod %q is restarted with image %q", name, sample.Spec.PodImage)
	case countFailure, pause:
		return not(samplev1.ReasonPodFailed, "The Pod failed or was lost with its node. The next attempt is at %s; see the logs and the events of the Pod for the cause",
			p.due.UTC().Format(time.RFC3339))
	case replace:
		return not(samplev1.ReasonPodFailed, "Pod %q failed or was lost with its node, and is being replaced", name)
	case waitForDeletion:
		return not(samplev1.ReasonPodTerminating, "Pod %q is being deleted; a new one is created afterwards", name)
	case waitForCollection:
		return not(samplev1.ReasonPodTerminating, "Pod %q of an earlier SampleResource with this name is about to be deleted; a new one is created afterwards", sample.Name)
	}
	if !isReady(p.pod) {
		if problem := kube.PodProblem(p.pod); problem != "" {
			return not(samplev1.ReasonPodStuck, "%s. To see its events, run: kubectl describe pod --namespace %s %s", problem, sample.Namespace, name)
		}
		return not(samplev1.ReasonPodStarting, "Pod %q is not ready yet", name)
	}
	return metav1.Condition{
		Status:  metav1.ConditionTrue,
		Reason:  samplev1.ReasonPodReady,
		Message: fmt.Sprintf("Pod %q runs image %q and is ready", name, sample.Spec.PodImage),
	}
}

func notOwned(name string) metav1.Condition {
	return metav1.Condition{
		Status:  metav1.ConditionFalse,
		Reason:  samplev1.ReasonErrResourceExists,
		Message: fmt.Sprintf("Pod %q exists and does not belong to this SampleResource. Delete that Pod, or create a SampleResource with another name", name),
	}
}

// finish writes the status if it changed, and records a warning if Ready became False for
// a reason that requires a user. It returns the result of Reconcile.
func (r *Reconciler) finish(ctx context.Context, sample *samplev1.SampleResource, status samplev1.SampleResourceStatus, p plan, actErr error) (reconcile.Result, error) {
	was, is := kube.ConditionTransition(sample.Status.Conditions, status.Conditions, samplev1.ConditionReady)
	kube.LogReady(ctx, is)
	outcome := kube.Outcome{Urgent: isUrgent(was, is), Err: actErr, Acted: p.acts(), Again: p.again}
	switch {
	case errors.Is(actErr, kube.ErrNotOwned):
		// The deletion of the other Pod triggers the next reconcile.
		outcome.Err = nil
	case isRejected(actErr):
		outcome.Err = nil
		outcome.Again = kube.RejectedPause(is.LastTransitionTime.Time, p.at)
	}
	after := sample.DeepCopy()
	after.Status = status
	written, result, err := r.Status.Finish(ctx, sample, after, outcome)
	if written && was.Reason != is.Reason && (needsUser(is) || is.Reason == samplev1.ReasonPodStuck || is.Reason == samplev1.ReasonPodWriteFailed) {
		r.Events.Warning(sample, is.Reason, "CreatePod", is.Message)
	}
	return result, err
}

// isUrgent reports whether the change of Ready is written without a delay: the
// SampleResource became ready or requires a user.
func isUrgent(was, is metav1.Condition) bool {
	if is.Status == metav1.ConditionTrue {
		return was.Status != is.Status || was.ObservedGeneration != is.ObservedGeneration
	}
	return needsUser(is) && (was.Reason != is.Reason || was.Message != is.Message)
}

// needsUser reports whether a user should look at the SampleResource.
func needsUser(ready metav1.Condition) bool {
	switch ready.Reason {
	case samplev1.ReasonErrResourceExists, samplev1.ReasonPodRejected, samplev1.ReasonPodFailed:
		return true
	}
	return false
}
