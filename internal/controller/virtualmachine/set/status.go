package set

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// summarize returns the status of set after the plan was executed with the result actErr. It is a pure function.
func summarize(set *v1alpha1.VirtualMachineSet, seen observation, p plan, actErr error) v1alpha1.VirtualMachineSetStatus {
	status := *set.Status.DeepCopy()
	status.ObservedGeneration, status.Selector = set.Generation, selectorText(set)
	status.Replicas, status.ReadyReplicas, status.UpdatedReplicas = 0, 0, 0
	for number, machine := range seen.owned {
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		status.Replicas++
		if isReady(machine) {
			status.ReadyReplicas++
		}
		if _, due := p.due[number]; !due {
			status.UpdatedReplicas++
		}
	}
	ready := summarizeReady(set, seen, p, actErr)
	ready.Type = v1alpha1.ConditionReady
	kube.SetConditions(set, &status.Conditions, p.at, ready)
	return status
}

func summarizeReady(set *v1alpha1.VirtualMachineSet, seen observation, p plan, actErr error) metav1.Condition {
	not := func(reason, message string, args ...any) metav1.Condition {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	const exists = "VirtualMachine %q exists and has another owner. Delete it, or delete this set and create one with another name"
	var taken *takenError
	switch {
	case len(p.taken) > 0:
		return not(v1alpha1.ReasonErrResourceExists, exists, machineName(set, p.taken[0]))
	case errors.As(actErr, &taken):
		return not(v1alpha1.ReasonErrResourceExists, exists, taken.machine)
	case kube.IsRejected(actErr):
		return not(v1alpha1.ReasonTemplateRejected,
			"The API rejected a machine of the set: %s. Change the template, or the policy or quota that rejected it", kube.APIWords(actErr))
	case actErr != nil:
		return not(v1alpha1.ReasonMachineWriteFailed, "A machine could not be written, the write is retried: %s", kube.APIWords(actErr))
	}
	which, why, failed := firstNotReady(set, seen, p)
	outdated := p.waiting + len(p.changes)
	switch {
	case outdated > 0 && failed:
		return not(v1alpha1.ReasonRolloutStopped, "%d of %d machines do not have the current template, because VirtualMachine %q has it and has failed: %s. "+
			"Fix the template, or what the message says", outdated, replicas(set), which, why)
	case outdated > 0 && which != "":
		return not(v1alpha1.ReasonRollingOut, "%d of %d machines do not have the current template yet. VirtualMachine %q is not ready: %s", outdated, replicas(set), which, why)
	case outdated > 0:
		return not(v1alpha1.ReasonRollingOut, "%d of %d machines do not have the current template yet", outdated, replicas(set))
	case which != "":
		return not(v1alpha1.ReasonMachinesNotReady, "VirtualMachine %q is not ready: %s", which, why)
	case len(p.remove) > 0:
		return not(v1alpha1.ReasonMachinesNotReady, "Machines are being deleted, because the set was scaled down")
	}
	return metav1.Condition{
		Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMachinesReady, Message: fmt.Sprintf("%d of %[1]d machines are ready", replicas(set)),
	}
}

// firstNotReady returns the first machine that is not ready and why, and whether it has failed. Failed machines with the present
// template come first, then others that have it, then the rest.
func firstNotReady(set *v1alpha1.VirtualMachineSet, seen observation, p plan) (which, why string, failed bool) {
	best := 0
	for number := range replicas(set) {
		machine := seen.owned[number]
		rank, text := 2, "it is being created"
		switch {
		case machine == nil:
		case isReady(machine):
			continue
		case !machine.DeletionTimestamp.IsZero():
			text = "it is being deleted, and then created again"
		default:
			text = whyNotReady(machine)
			switch _, due := p.due[number]; {
			case due:
				rank = 1
			case isCurrent(machine) && (machine.Status.Phase == v1alpha1.PhaseFailed || isChangeRefused(machine)):
				rank = 3
			}
		}
		if rank > best {
			best, which, why = rank, machineName(set, number), text
		}
	}
	return which, why, best == 3
}

// whyNotReady returns why a machine is not ready.
func whyNotReady(machine *v1alpha1.VirtualMachine) string {
	text := machine.Status.Reason
	if synchronized := meta.FindStatusCondition(machine.Status.Conditions, v1alpha1.ConditionSynchronized); isChangeRefused(machine) {
		text = synchronized.Message
	}
	if text == "" || !isCurrent(machine) {
		return "it is being changed"
	}
	return strings.TrimSuffix(text, ".")
}

// finish writes the status if it changed, and records a warning if Ready became False for a reason that requires a user. It returns
// the result of Reconcile.
func (r *Reconciler) finish(ctx context.Context, set *v1alpha1.VirtualMachineSet, status v1alpha1.VirtualMachineSetStatus, p plan, actErr error) (reconcile.Result, error) {
	was, is := kube.ConditionTransition(set.Status.Conditions, status.Conditions, v1alpha1.ConditionReady)
	kube.LogReady(ctx, is)
	urgent := is.Status == metav1.ConditionTrue && (was.Status != is.Status || was.ObservedGeneration != is.ObservedGeneration) ||
		needsUser(is) && was.Reason != is.Reason
	outcome := kube.Outcome{Urgent: urgent, Err: actErr, Acted: p.acts()}
	switch {
	case errors.Is(actErr, kube.ErrNotOwned):
		// The deletion of the other machine triggers the next reconcile.
		outcome.Err = nil
	case kube.IsRejected(actErr):
		outcome.Err = nil
		outcome.Again = kube.RejectedPause(is.LastTransitionTime.Time, p.at)
	}
	after := set.DeepCopy()
	after.Status = status
	written, result, err := r.Status.Finish(ctx, set, after, outcome)
	if written && was.Reason != is.Reason && (needsUser(is) || is.Reason == v1alpha1.ReasonMachineWriteFailed) {
		r.Events.Warning(set, is.Reason, "KeepMachines", is.Message)
	}
	return result, err
}

// needsUser reports whether the set does not become ready without a user.
func needsUser(ready metav1.Condition) bool {
	switch ready.Reason {
	case v1alpha1.ReasonErrResourceExists, v1alpha1.ReasonTemplateRejected, v1alpha1.ReasonRolloutStopped:
		return true
	}
	return false
}
