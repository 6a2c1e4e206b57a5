package sampleresource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of sample, given what there was, what was to be done,
// and how that ended.
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
	ready.ObservedGeneration = sample.Generation
	ready.LastTransitionTime = metav1.NewTime(p.at)
	meta.SetStatusCondition(&status.Conditions, ready)
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
		return foreign(name)
	case isRejected(actErr):
		return not(samplev1.ReasonPodRejected,
			"The API refused Pod %q: %s. Change the SampleResource, or the policy or quota that refused it", name, kube.APIWords(actErr))
	case actErr != nil:
		return not(samplev1.ReasonPodWriteFailed, "Pod %q could not be written and is tried again: %s", name, kube.APIWords(actErr))
	}
	switch p.action {
	case blocked:
		return foreign(sample.Name)
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
		return not(samplev1.ReasonPodTerminating, "Pod %q is being deleted; a new one follows when it is gone", name)
	case waitForCollection:
		return not(samplev1.ReasonPodTerminating, "Pod %q of an earlier SampleResource of this name is about to be deleted; a new one follows when it is gone", sample.Name)
	}
	if !isReady(p.pod) {
		return not(samplev1.ReasonPodStarting, "Pod %q is not ready yet", name)
	}
	return metav1.Condition{
		Status:  metav1.ConditionTrue,
		Reason:  samplev1.ReasonPodReady,
		Message: fmt.Sprintf("Pod %q runs image %q and is ready", name, sample.Spec.PodImage),
	}
}

func foreign(name string) metav1.Condition {
	return metav1.Condition{
		Status:  metav1.ConditionFalse,
		Reason:  samplev1.ReasonErrResourceExists,
		Message: fmt.Sprintf("Pod %q exists and does not belong to this SampleResource. Delete that Pod, or create a SampleResource of another name", name),
	}
}

// finish writes the status if it changed, and a warning if Ready became False for a
// reason that does not go by itself. It returns when to look again.
func (r *Reconciler) finish(ctx context.Context, sample *samplev1.SampleResource, status samplev1.SampleResourceStatus, p plan, actErr error) (reconcile.Result, error) {
	was, is := kube.ConditionTransition(sample.Status.Conditions, status.Conditions, samplev1.ConditionReady)
	kube.LogReady(ctx, is)
	outcome := kube.Outcome{Urgent: isUrgent(was, is), Err: actErr, Acted: p.acts(), Again: p.again}
	switch {
	case errors.Is(actErr, kube.ErrNotOwned):
		// The end of the other Pod is an event.
		outcome.Err = nil
	case isRejected(actErr):
		outcome.Err = nil
		outcome.Again = kube.RejectedPause(is.LastTransitionTime.Time, p.at)
	}
	after := sample.DeepCopy()
	after.Status = status
	written, result, err := r.status.Finish(ctx, sample, after, outcome)
	if written && was.Reason != is.Reason && (needsPerson(is) || is.Reason == samplev1.ReasonPodWriteFailed) {
		r.events.Warning(sample, is.Reason, "CreatePod", is.Message)
	}
	return result, err
}

// isUrgent reports whether somebody waits for this change of Ready: the
// SampleResource became ready, or something is wrong with its Pod.
func isUrgent(was, is metav1.Condition) bool {
	if is.Status == metav1.ConditionTrue {
		return was.Status != is.Status || was.ObservedGeneration != is.ObservedGeneration
	}
	return needsPerson(is) && (was.Reason != is.Reason || was.Message != is.Message)
}

// needsPerson reports whether a person should look at it.
func needsPerson(ready metav1.Condition) bool {
	switch ready.Reason {
	case samplev1.ReasonErrResourceExists, samplev1.ReasonPodRejected, samplev1.ReasonPodFailed:
		return true
	}
	return false
}
