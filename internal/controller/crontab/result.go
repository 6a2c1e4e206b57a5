package crontab

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// failure is the failed run that finished last.
type failure struct {
	run
	// exitCode is that of the container that failed last; nil if it is not known.
	exitCode *int32
	// reported means that an event reported it.
	reported bool
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// observeFailure returns the failed run that finished last, or nil if the status records it. It
// reads the Pods of each failed run once.
func (r *Reconciler) observeFailure(ctx context.Context, cronTab *stablev1.CronTab, st *state, runs []run) *failure {
	last := lastFinished(runs, func(phase runPhase) bool { return phase == failed })
	if recorded := cronTab.Status.LastRun; last == nil || recorded != nil && !last.finishTime.Truncate(time.Second).After(recorded.FinishTime.Time) {
		return nil
	}
	if st.failure == nil || st.failure.uid != last.uid {
		st.failure = &failure{run: *last, exitCode: r.exitCode(ctx, cronTab.Namespace, last)}
	}
	return st.failure
}

// lastFinished returns the last of the runs to finish in one of some phases, or nil.
func lastFinished(runs []run, is func(runPhase) bool) *run {
	var last *run
	for i := range runs {
		if r := &runs[i]; is(r.phase) && !r.finishTime.IsZero() && (last == nil || !r.finishTime.Before(last.finishTime)) {
			last = r
		}
	}
	return last
}

// exitCode returns the exit code of the container of a Job that failed last, or nil if no Pod has
// one. An error only costs the message a detail.
func (r *Reconciler) exitCode(ctx context.Context, namespace string, job *run) *int32 {
	pods, err := r.podsOf(ctx, namespace, job)
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the exit code of a Job from its Pods", "Job", job.name, "error", err.Error())
		return nil
	}
	var last *corev1.ContainerStateTerminated
	for i := range pods {
		pod := &pods[i]
		for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
			for i := range statuses {
				for _, ended := range []*corev1.ContainerStateTerminated{statuses[i].LastTerminationState.Terminated, statuses[i].State.Terminated} {
					if ended != nil && ended.ExitCode != 0 && (last == nil || !ended.FinishedAt.Before(&last.FinishedAt)) {
						last = ended
					}
				}
			}
		}
	}
	if last == nil {
		return nil
	}
	return &last.ExitCode
}

// lastRun returns the last finished run for the status; known is the recorded one.
func lastRun(known *stablev1.FinishedRun, runs []run, f *failure) *stablev1.FinishedRun {
	last := lastFinished(runs, func(phase runPhase) bool { return phase != active })
	if last == nil || known != nil && !replaces(last, known, runs) {
		return known
	}
	finished := &stablev1.FinishedRun{
		JobName: last.name, Result: stablev1.RunSucceeded, FinishTime: *toMetaTime(last.finishTime),
	}
	if last.phase == failed {
		finished.Result, finished.Reason = stablev1.RunFailed, last.reason
		if f != nil && f.uid == last.uid {
			finished.ExitCode = f.exitCode
		}
	}
	return finished
}

// replaces reports whether a run finished after the recorded one. If both finished in the same
// second, the one with the later scheduled time is last, as long as both have their Jobs.
func replaces(last *run, known *stablev1.FinishedRun, runs []run) bool {
	switch finish := last.finishTime.Truncate(time.Second); {
	case last.name == known.JobName:
		return false
	case finish.Equal(known.FinishTime.Time):
		return slices.ContainsFunc(runs, func(r run) bool { return r.name == known.JobName })
	default:
		return finish.After(known.FinishTime.Time)
	}
}

// summarizeLastRun returns the condition LastRunSucceeded.
func summarizeLastRun(namespace string, last *stablev1.FinishedRun) metav1.Condition {
	condition := metav1.Condition{Type: stablev1.ConditionLastRunSucceeded, Status: metav1.ConditionUnknown,
		Reason: stablev1.ReasonNoRunFinished, Message: "No run has finished yet"}
	switch {
	case last == nil:
	case last.Result == stablev1.RunSucceeded:
		condition.Status, condition.Reason = metav1.ConditionTrue, stablev1.ReasonJobSucceeded
		condition.Message = fmt.Sprintf("Job %q succeeded", last.JobName)
	default:
		condition.Status, condition.Reason = metav1.ConditionFalse, stablev1.ReasonJobFailed
		condition.Message = failureMessage(namespace, last.JobName, last.Reason, last.ExitCode)
	}
	return condition
}

// failureMessage describes the failure of a Job, with the command that prints its logs.
func failureMessage(namespace, job, reason string, exitCode *int32) string {
	message := fmt.Sprintf("Job %q failed", job)
	separator := ": "
	if reason != "" {
		message += separator + reason
		separator = ", "
	}
	if exitCode != nil {
		message += fmt.Sprintf("%sexit code %d", separator, *exitCode)
	}
	return message + fmt.Sprintf(". To see its logs, run: kubectl logs --namespace %s job/%s", namespace, job)
}
