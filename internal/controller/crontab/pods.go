package crontab

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
)

// observePods adds what only Pods tell: the exit code of a failure, and why a run is stuck.
func (r *Reconciler) observePods(ctx context.Context, cronTab *stablev1.CronTab, st *state, seen *observation, now time.Time) {
	seen.failure = r.observeFailure(ctx, cronTab, st, seen.runs)
	seen.stuck = r.observeStuck(ctx, cronTab, st, seen.runs, now)
}

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
	return crontab.ExitCode(pods)
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

// stuckAfter is how long a Job may have no ready Pod, or may be being deleted, before its Pods are
// examined. The next examinations are after twice the time, four times the time, and so on.
const stuckAfter = time.Minute

// stuckCheck is the last examination of the Pods of an active run.
type stuckCheck struct {
	job string
	uid types.UID
	at  time.Time
	// deleting means that the Job is being deleted.
	deleting bool
	// cause is why the run is stuck; empty if it is not.
	cause string
}

// waitingSince returns since when a run has been waiting: for a ready Pod, or for the end of its
// deletion; zero if it does not wait.
func (r *run) waitingSince() time.Time {
	switch {
	case r.deleting:
		return r.job.DeletionTimestamp.Time
	case r.phase == active && !r.ready && !r.suspended:
		return r.startTime
	}
	return time.Time{}
}

// longestWaiting returns the run that has been waiting longest, or nil.
func longestWaiting(runs []run) *run {
	var longest *run
	for i := range runs {
		r := &runs[i]
		if since := r.waitingSince(); !since.IsZero() && (longest == nil || since.Before(longest.waitingSince())) {
			longest = r
		}
	}
	return longest
}

// nextStuckCheck returns the first time after now at which a run that waits is examined; the first
// wait may not be zero.
func nextStuckCheck(r *run, wait time.Duration, now time.Time) time.Time {
	since := r.waitingSince()
	for !since.Add(wait).After(now) {
		wait *= 2
	}
	return since.Add(wait)
}

// observeStuck examines the Pods of the run that has been waiting longest. It reads them from the API server: a watch of all Pods would cost more than all else that this controller
// does.
func (r *Reconciler) observeStuck(ctx context.Context, cronTab *stablev1.CronTab, st *state, runs []run, now time.Time) *stuckCheck {
	waiting := longestWaiting(runs)
	if waiting == nil || r.stuckAfter == 0 || now.Before(waiting.waitingSince().Add(r.stuckAfter)) {
		st.stuck = nil
		return nil
	}
	if st.stuck != nil && st.stuck.uid == waiting.uid && now.Before(nextStuckCheck(waiting, r.stuckAfter, st.stuck.at)) {
		return st.stuck
	}
	pods, err := r.podsOf(ctx, cronTab.Namespace, waiting)
	if err != nil {
		log.FromContext(ctx).Info("Cannot read the Pods of a Job", "Job", waiting.name, "error", err.Error())
		return st.stuck
	}
	st.stuck = &stuckCheck{job: waiting.name, uid: waiting.uid, at: now, deleting: waiting.deleting}
	if waiting.deleting {
		st.stuck.cause = deletionCause(waiting.job, pods, now)
	} else {
		st.stuck.cause = stuckCause(pods)
	}
	return st.stuck
}

// podsOf reads the Pods of a Job from the API server.
func (r *Reconciler) podsOf(ctx context.Context, namespace string, job *run) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.Live.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{batchv1.JobNameLabel: job.name}, client.Limit(maxPods))
	var pods []corev1.Pod
	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil && owner.UID == job.uid {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, err
}

// maxPods limits how many Pods of a Job are read.
const maxPods = 100

// stuckCause returns why none of the Pods of a Job is ready; empty if they only take their time.
func stuckCause(pods []corev1.Pod) string {
	if len(pods) == 0 {
		return "It has no Pod; kubectl describe job has the reason"
	}
	for i := range pods {
		if problem := kube.PodProblem(&pods[i]); problem != "" {
			return problem
		}
	}
	return ""
}

// deletionCause returns what keeps a deleted Job from going away; empty if its Pods only take their
// time.
func deletionCause(job *batchv1.Job, pods []corev1.Pod, now time.Time) string {
	if held := foreignFinalizer(job.Finalizers); held != "" {
		return fmt.Sprintf("The finalizer %q holds it; remove that if nothing else will", held)
	}
	for i := range pods {
		// The deletion timestamp includes the grace period.
		switch pod := &pods[i]; {
		case pod.DeletionTimestamp == nil || now.Before(pod.DeletionTimestamp.Time):
		case foreignFinalizer(pod.Finalizers) != "":
			return fmt.Sprintf("The finalizer %q holds its Pod %q; remove that if nothing else will", foreignFinalizer(pod.Finalizers), pod.Name)
		default:
			return fmt.Sprintf("Its Pod %q does not end; check the node %q", pod.Name, pod.Spec.NodeName)
		}
	}
	if len(pods) == 0 {
		return "It has no Pod, and the garbage collector of Kubernetes has not removed it"
	}
	return ""
}

// foreignFinalizer returns the first finalizer that is not one of Kubernetes itself; empty if there
// is none.
func foreignFinalizer(finalizers []string) string {
	for _, name := range finalizers {
		if name != metav1.FinalizerDeleteDependents && name != metav1.FinalizerOrphanDependents && name != batchv1.JobTrackingFinalizer {
			return name
		}
	}
	return ""
}

// summarizeStuck returns the condition RunsStuck.
func summarizeStuck(namespace string, check *stuckCheck) metav1.Condition {
	if check == nil || check.cause == "" {
		return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionFalse,
			Reason: stablev1.ReasonNoRunStuck, Message: "No run waits for its Pods longer than usual"}
	}
	if check.deleting {
		return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionTrue, Reason: stablev1.ReasonJobNotDeleted,
			Message: fmt.Sprintf("Job %q is being deleted and counts toward concurrencyPolicy until it is gone. %s. To see it, run: kubectl get job --namespace %s %s --output yaml",
				check.job, check.cause, namespace, check.job)}
	}
	return metav1.Condition{Type: stablev1.ConditionRunsStuck, Status: metav1.ConditionTrue, Reason: stablev1.ReasonPodsNotReady,
		Message: fmt.Sprintf("Job %q has no ready Pod. %s. To see its events, run: kubectl describe pods --namespace %s --selector %s=%s",
			check.job, check.cause, namespace, batchv1.JobNameLabel, check.job)}
}
