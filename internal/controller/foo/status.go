package foo

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of foo, given what there was, what was to be done, and
// how that ended.
func summarize(foo *v1alpha1.Foo, seen observation, p plan, actErr error) v1alpha1.FooStatus {
	status := *foo.Status.DeepCopy()
	status.ObservedGeneration = foo.Generation
	status.Selector = selectorText(foo)
	status.AvailableReplicas = 0
	if current := seen.find(foo.Spec.DeploymentName); current != nil {
		status.AvailableReplicas = current.Status.AvailableReplicas
	}
	ready := summarizeReady(foo, p, actErr)
	ready.Type = v1alpha1.ConditionReady
	ready.ObservedGeneration = foo.Generation
	ready.LastTransitionTime = metav1.NewTime(p.at)
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

func summarizeReady(foo *v1alpha1.Foo, p plan, actErr error) metav1.Condition {
	name := foo.Spec.DeploymentName
	not := func(reason, message string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	switch {
	case errors.Is(actErr, errForeign), actErr == nil && p.verdict == blocked:
		return not(v1alpha1.ReasonErrResourceExists,
			"Deployment %q exists and does not belong to this Foo. Set another spec.deploymentName, or delete that Deployment", name)
	case kube.IsRejected(actErr):
		return not(v1alpha1.ReasonDeploymentRejected,
			"The API refused Deployment %q: %s. Change the Foo, or the policy or quota that refused it", name, kube.APIWords(actErr))
	case actErr != nil:
		return not(v1alpha1.ReasonDeploymentFailed, "Deployment %q could not be written and is tried again: %s", name, kube.APIWords(actErr))
	}
	switch p.verdict {
	case create, repair:
		return not(v1alpha1.ReasonProgressing, "Deployment %q was written and is not available yet", name)
	case replace:
		return not(v1alpha1.ReasonProgressing, "Deployment %q has a selector that cannot be changed; it is deleted and created again", name)
	case waitForDeletion:
		return not(v1alpha1.ReasonProgressing, "Deployment %q is being deleted; a new one follows when it is gone", name)
	case waitForCollection:
		return not(v1alpha1.ReasonProgressing, "Deployment %q of an earlier Foo of this name is about to be deleted; a new one follows when it is gone", name)
	}
	if !isAvailable(foo, p.current) {
		return not(v1alpha1.ReasonProgressing, "Not all replicas of Deployment %q are available yet", name)
	}
	return metav1.Condition{
		Status:  metav1.ConditionTrue,
		Reason:  v1alpha1.ReasonAvailable,
		Message: fmt.Sprintf("All replicas of Deployment %q are available", name),
	}
}

// isAvailable reports whether the Deployment, which is as foo wants it, has rolled
// out: its controller has seen the present spec, no pod of an earlier one is left, and
// all are available.
func isAvailable(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	want, got := replicas(foo), deployment.Status
	return got.ObservedGeneration >= deployment.Generation &&
		got.Replicas == want && got.UpdatedReplicas == want && got.AvailableReplicas == want
}

// isUrgent reports whether somebody waits for this change of status: the Foo became
// ready, or needs a person.
func isUrgent(before, after *v1alpha1.FooStatus) bool {
	was := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionReady)
	if was == nil {
		was = &metav1.Condition{}
	}
	switch is.Reason {
	case v1alpha1.ReasonAvailable:
		return was.Status != is.Status || was.ObservedGeneration != is.ObservedGeneration
	case v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonDeploymentRejected:
		return was.Reason != is.Reason || was.Message != is.Message
	}
	return false
}

// finish writes the status if it changed, and an event if it has become one that
// needs a person. It returns when to look again.
func (r *Reconciler) finish(ctx context.Context, foo *v1alpha1.Foo, status v1alpha1.FooStatus, p plan, actErr error) (reconcile.Result, error) {
	if kube.IsStale(actErr) || kube.IsNamespaceEnding(actErr) {
		// Nothing of what was summarized is known to be true.
		return kube.Quietly(actErr)
	}
	after := foo.DeepCopy()
	after.Status = status
	written, wait, err := r.status.Write(ctx, foo, after, isUrgent(&foo.Status, &status))
	if err != nil {
		err = kube.Named(err, "write the status of", "Foo", foo.Namespace, foo.Name)
		if actErr == nil || kube.IsStale(err) {
			return kube.Quietly(err)
		}
		return reconcile.Result{}, errors.Join(actErr, err)
	}
	if written {
		r.warn(foo, &status)
	}
	if kube.IsRejected(actErr) {
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		return reconcile.Result{RequeueAfter: kube.RejectedPause(ready.LastTransitionTime.Time, p.at)}, nil
	}
	if actErr != nil && !errors.Is(actErr, errForeign) {
		return reconcile.Result{}, actErr
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// warn records an event when Ready has become False for a reason that a person should
// look at.
func (r *Reconciler) warn(foo *v1alpha1.Foo, status *v1alpha1.FooStatus) {
	was := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	switch is.Reason {
	case v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonDeploymentRejected, v1alpha1.ReasonDeploymentFailed:
		if was == nil || was.Reason != is.Reason {
			r.events.Warning(foo, is.Reason, "ApplyDeployment", is.Message)
		}
	}
}
